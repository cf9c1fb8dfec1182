//! Definitions of topics.

use punctual_domain::retry::{Backoff, Growth, RetryPolicy};
use punctual_domain::store::StoreError;
use punctual_domain::topic::{Route, TopicDefinition};

use crate::support::*;

fn definition(name: &str, route: Route) -> TopicDefinition {
    TopicDefinition::new(name.parse().unwrap(), route)
}

pub(crate) async fn every_field_of_a_topic_comes_back(world: World) {
    let full = TopicDefinition {
        concurrency: 7,
        rate_per_second: Some(0.1),
        retry: Some(RetryPolicy {
            attempts: 5,
            backoff: Backoff { growth: Growth::Fixed, delay: 1, max_delay: 2, jitter: 0.3 },
        }),
        timeout_seconds: Some(9),
        paused: true,
        retention_days: Some(3),
        ..definition("operations.*", Route::Pull)
    };
    assert_eq!(world.put_topic(&full).await, Ok(true));
    assert_eq!(world.topics().await, Ok(vec![full]));
}

pub(crate) async fn every_route_comes_back(world: World) {
    let secrets = vec!["whsec_é'\"".into(), "second".into()];
    let routes = [
        Route::Handler,
        Route::Webhook { url: "https://example.com/?a=1&b=é".into(), secrets },
        Route::Pull,
        Route::Bullmq { queue: "notifications__email".into(), prefix: "other".into() },
        Route::Event,
    ];
    for route in routes {
        let definition = definition("mail", route);
        world.put_topic(&definition).await.unwrap();
        assert_eq!(world.topics().await, Ok(vec![definition]));
    }
}

pub(crate) async fn a_topic_is_replaced_whole(world: World) {
    let first = TopicDefinition { paused: true, retention_days: Some(1), ..definition("mail", Route::Pull) };
    assert_eq!(world.put_topic(&first).await, Ok(true));
    let second = definition("mail", Route::Event);
    assert_eq!(world.put_topic(&second).await, Ok(false));
    assert_eq!(world.topics().await, Ok(vec![second]));
}

pub(crate) async fn a_topic_is_added_only_where_there_is_none(world: World) {
    let first = TopicDefinition { paused: true, ..definition("mail", Route::Pull) };
    assert_eq!(world.add_topic(&first).await, Ok(true));
    assert_eq!(world.add_topic(&definition("mail", Route::Event)).await, Ok(false));
    assert_eq!(world.topics().await, Ok(vec![first]));
    world.delete_topic(&"mail".parse().unwrap()).await.unwrap();
    assert_eq!(world.add_topic(&definition("mail", Route::Event)).await, Ok(true));
}

pub(crate) async fn of_eight_nodes_that_add_a_topic_one_does(world: World) {
    let added = side_by_side(world.eight_nodes().await, |node| async move {
        node.add_topic(&definition("mail", Route::Event)).await.unwrap()
    })
    .await;
    assert_eq!(added.iter().filter(|added| **added).count(), 1);
}

pub(crate) async fn topics_are_listed_by_name(world: World) {
    let mut names = ["mail.b", "mail.*", "mail", "mail-2", "a", "Z"];
    for name in names {
        world.put_topic(&definition(name, Route::Event)).await.unwrap();
    }
    names.sort_unstable();
    let found = world.topics().await.unwrap();
    assert_eq!(found.iter().map(|definition| definition.name.as_str()).collect::<Vec<_>>(), names);
}

pub(crate) async fn a_topic_is_deleted_once(world: World) {
    world.put_topic(&definition("mail.*", Route::Event)).await.unwrap();
    world.put_topic(&definition("mail.fast", Route::Event)).await.unwrap();
    assert_eq!(world.delete_topic(&"mail".parse().unwrap()).await, Ok(false));
    assert_eq!(world.delete_topic(&"mail.*".parse().unwrap()).await, Ok(true));
    assert_eq!(world.delete_topic(&"mail.*".parse().unwrap()).await, Ok(false));
    assert_eq!(world.topics().await.unwrap().len(), 1);
}

pub(crate) async fn a_topic_with_a_handler_keeps_that_route(world: World) {
    let name = "mail".parse().unwrap();
    for _ in 0..2 {
        world.register_topic(&name).await.unwrap();
        assert_eq!(world.topics().await, Ok(vec![definition("mail", Route::Handler)]));
    }
    let refused = StoreError::HandlerRegistered("mail".into());
    assert_eq!(world.put_topic(&definition("mail", Route::Pull)).await, Err(refused.clone()));
    assert_eq!(world.delete_topic(&name).await, Err(refused));
    let edited = TopicDefinition { concurrency: 3, ..definition("mail", Route::Handler) };
    assert_eq!(world.put_topic(&edited).await, Ok(false));
    world.register_topic(&name).await.unwrap();
    assert_eq!(world.topics().await, Ok(vec![edited]), "what the operator said stays");
    assert_eq!(world.put_topic(&definition("mail.*", Route::Pull)).await, Ok(true), "a prefix is another name");
}

pub(crate) async fn a_handler_takes_over_what_had_another_route(world: World) {
    let before = TopicDefinition { paused: true, concurrency: 7, ..definition("mail", Route::Pull) };
    world.put_topic(&before).await.unwrap();
    world.register_topic(&before.name).await.unwrap();
    assert_eq!(world.topics().await, Ok(vec![TopicDefinition { route: Route::Handler, ..before }]));
}

pub(crate) async fn a_topic_is_paused_and_resumed_and_otherwise_stays_as_it_is(world: World) {
    let first = TopicDefinition { concurrency: 7, ..definition("mail.*", Route::Pull) };
    world.put_topic(&first).await.unwrap();
    for paused in [true, true, false] {
        let expected = TopicDefinition { paused, ..first.clone() };
        assert_eq!(world.pause_topic(&first.name, paused).await, Ok(Some(expected.clone())));
        assert_eq!(world.topics().await, Ok(vec![expected]));
    }
    assert_eq!(world.pause_topic(&"mail".parse().unwrap(), true).await, Ok(None));
}
