//! Nodes, leadership, shared facts, state cells and API keys.

use std::time::Duration;

use chrono::TimeDelta;
use punctual_domain::id::{KeyId, NodeId};
use punctual_domain::json::Json;
use punctual_domain::key::{ApiKey, Role};
use punctual_domain::news::News;
use punctual_domain::node::{Leadership, Node};
use punctual_domain::store::Page;

use crate::support::*;

fn node(world: &World, started_secs_ago: i64) -> Node {
    Node {
        id: NodeId::generate(),
        version: "0.1.0".into(),
        tz_version: "2026a".into(),
        about: Json::parse(r#"{"host":"hé 🎉","n":1.50}"#).unwrap(),
        started_at: world.in_secs(-started_secs_ago),
        seen_at: world.now(),
    }
}

fn key(world: &World, name: &str, byte: u8) -> ApiKey {
    ApiKey {
        id: KeyId::generate(),
        name: name.into(),
        role: Role::Submit,
        topics: vec!["mail".parse().unwrap(), "operations.*".parse().unwrap()],
        hash: [byte; 32],
        created_at: world.now(),
        revoked_at: None,
    }
}

fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

const MINUTE: Duration = Duration::from_secs(60);

pub(crate) async fn the_stores_instant_is_that_of_its_clock(world: World) {
    world.advance(TimeDelta::microseconds(123_457));
    assert_eq!(world.store.now().await, Ok(world.now()));
}

pub(crate) async fn the_databases_own_clock_never_goes_backwards(world: World) {
    let world = world.reopen_on_the_databases_clock().await;
    let mut last = world.store.now().await.unwrap();
    for _ in 0..100 {
        let now = world.store.now().await.unwrap();
        assert!(last <= now);
        last = now;
    }
}

pub(crate) async fn announcing_changes_nothing(world: World) {
    let pending = world.add(task("mail")).await;
    world.store.announce(&News::unheard()).await.unwrap();
    assert_eq!(world.read(pending.id).await, pending);
}

pub(crate) async fn a_cluster_has_one_id_that_stays(world: World) {
    let ids = side_by_side(world.eight_nodes().await, |node| async move { node.cluster_id().await.unwrap() }).await;
    let world = world.reopen().await;
    let id = world.cluster_id().await.unwrap();
    assert!(!id.is_empty() && ids.iter().all(|other| *other == id), "{ids:?}");
}

pub(crate) async fn a_node_is_seen_when_the_store_says(world: World) {
    let mut node = node(&world, 5);
    node.seen_at = world.in_secs(9999);
    world.heartbeat(&node).await.unwrap();
    node.seen_at = world.now();
    assert_eq!(world.nodes(MINUTE).await, Ok(vec![node.clone()]));

    world.advance_secs(30);
    node.about = json("{}");
    node.tz_version = "2026b".into();
    world.heartbeat(&node).await.unwrap();
    node.seen_at = world.now();
    assert_eq!(world.nodes(MINUTE).await, Ok(vec![node]));
}

pub(crate) async fn nodes_that_were_not_heard_of_are_left_out(world: World) {
    world.heartbeat(&node(&world, 1)).await.unwrap();
    world.advance_secs(61);
    let heard = node(&world, 1);
    assert_eq!(world.heartbeat(&heard).await, Ok(world.now()));
    assert_eq!(world.nodes(MINUTE).await, Ok(vec![heard]));
    assert_eq!(world.nodes(MINUTE * 2).await.unwrap().len(), 2);
}

pub(crate) async fn the_longest_running_node_comes_first(world: World) {
    let [young, old, middle] = [1, 30, 20].map(|seconds| node(&world, seconds));
    for node in [&young, &old, &middle] {
        world.heartbeat(node).await.unwrap();
    }
    assert_eq!(world.nodes(MINUTE).await, Ok(vec![old, middle, young]));
}

pub(crate) async fn a_removed_node_is_forgotten(world: World) {
    let [gone, stays] = [1, 2].map(|seconds| node(&world, seconds));
    world.heartbeat(&gone).await.unwrap();
    world.heartbeat(&stays).await.unwrap();
    world.remove_node(gone.id).await.unwrap();
    world.remove_node(NodeId::generate()).await.unwrap();
    assert_eq!(world.nodes(MINUTE).await, Ok(vec![stays]));
}

pub(crate) async fn a_leader_keeps_the_leadership_while_it_renews(world: World) {
    let first = world.lead("ticker", world.id, LEASE).await.unwrap();
    assert_eq!((first.owner, first.expires_at, first.left), (world.id, world.now() + LEASE, LEASE));
    world.advance_secs(20);
    let renewed = world.lead("ticker", world.id, LEASE).await.unwrap();
    assert_eq!((renewed.owner, renewed.epoch, renewed.expires_at), (world.id, first.epoch, world.now() + LEASE));
}

pub(crate) async fn nobody_takes_a_leadership_that_holds(world: World) {
    let leads = world.lead("ticker", world.id, LEASE).await.unwrap();
    let other = world.another_node().await;
    world.advance(TimeDelta::seconds(30) - TimeDelta::microseconds(1));
    let answer = other.lead("ticker", other.id, LEASE * 9).await.unwrap();
    assert_eq!(answer, Leadership { left: Duration::from_micros(1), ..leads });
    // The answer changed nothing: it ends when it would have.
    world.advance(TimeDelta::microseconds(2));
    assert_eq!(other.lead("ticker", other.id, LEASE).await.unwrap().owner, other.id);
}

pub(crate) async fn a_leadership_that_ran_out_changes_hands_and_its_epoch_grows(world: World) {
    let first = world.lead("ticker", world.id, LEASE).await.unwrap();
    world.advance_secs(31);
    let other = world.another_node().await;
    let second = other.lead("ticker", other.id, LEASE).await.unwrap();
    assert_eq!((second.owner, second.expires_at), (other.id, world.now() + LEASE));
    assert!(second.epoch > first.epoch);
    assert_eq!(world.lead("ticker", world.id, LEASE).await, Ok(second));
    world.advance_secs(31);
    assert!(world.lead("ticker", world.id, LEASE).await.unwrap().epoch > second.epoch);
}

pub(crate) async fn a_leader_that_resigns_is_followed_at_once(world: World) {
    let first = world.lead("ticker", world.id, LEASE).await.unwrap();
    let other = world.another_node().await;
    // Only its own leadership can be given up.
    other.resign("ticker", other.id).await.unwrap();
    assert_eq!(other.lead("ticker", other.id, LEASE).await, Ok(first));
    world.resign("ticker", world.id).await.unwrap();
    let second = other.lead("ticker", other.id, LEASE).await.unwrap();
    assert_eq!(second.owner, other.id);
    assert!(second.epoch > first.epoch);
    world.resign("nobody leads this", world.id).await.unwrap();
}

pub(crate) async fn leaderships_are_told_apart_by_name(world: World) {
    let other = world.another_node().await;
    assert_eq!(world.lead("ticker", world.id, LEASE).await.unwrap().owner, world.id);
    assert_eq!(other.lead("reconciler", other.id, LEASE).await.unwrap().owner, other.id);
}

pub(crate) async fn of_eight_candidates_one_leads(world: World) {
    for _ in 0..5 {
        let answers = side_by_side(world.eight_nodes().await, |node| async move {
            (node.id, node.lead("ticker", node.id, LEASE).await.unwrap())
        })
        .await;
        let leader = answers[0].1;
        assert!(answers.iter().all(|(_, answer)| *answer == leader), "{answers:?}");
        assert!(answers.iter().any(|(id, _)| *id == leader.owner));
        world.advance_secs(31);
    }
}

pub(crate) async fn the_newest_zone_data_wins(world: World) {
    for (noted, newest) in [
        ("2025b", "2025b"),
        ("2026a", "2026a"),
        ("2025b", "2026a"),
        ("2026e", "2026e"),
        ("2026a", "2026e"),
        ("2026e", "2026e"),
        ("2027a", "2027a"),
    ] {
        assert_eq!(world.note_tz_version(noted).await.as_deref(), Ok(newest));
    }
    let world = world.reopen().await;
    assert_eq!(world.note_tz_version("1996l").await.as_deref(), Ok("2027a"));
}

pub(crate) async fn a_state_cell_is_written_by_version(world: World) {
    assert_eq!(world.state_cell("cell é").await, Ok(None));
    assert_eq!(world.put_state_cell("cell é", &json("0"), 5).await, Ok(None));
    let first = world.put_state_cell("cell é", &json("{ \"n\":1.50 }"), 0).await.unwrap().unwrap();
    assert!(first > 0);
    assert_eq!(world.state_cell("cell é").await, Ok(Some((json("{ \"n\":1.50 }"), first))));
    // It is there now, so 0 is stale.
    assert_eq!(world.put_state_cell("cell é", &json("2"), 0).await, Ok(None));
    let second = world.put_state_cell("cell é", &json("\"🎉\""), first).await.unwrap().unwrap();
    assert!(second > first);
    assert_eq!(world.put_state_cell("cell é", &json("3"), first).await, Ok(None));
    assert_eq!(world.state_cell("cell é").await, Ok(Some((json("\"🎉\""), second))));
    assert_eq!(world.state_cell("another").await, Ok(None));
}

pub(crate) async fn eight_racing_counters_lose_no_step(world: World) {
    side_by_side(world.eight_nodes().await, |node| async move {
        let mut steps = 0;
        while steps < 10 {
            let (count, version) = match node.state_cell("count").await.unwrap() {
                Some((value, version)) => (value.as_str().parse::<u64>().unwrap(), version),
                None => (0, 0),
            };
            let next = json(&(count + 1).to_string());
            if node.put_state_cell("count", &next, version).await.unwrap().is_some() {
                steps += 1;
            }
        }
    })
    .await;
    assert_eq!(world.state_cell("count").await.unwrap().unwrap().0, json("80"));
}

pub(crate) async fn a_key_is_found_by_its_hash(world: World) {
    for (byte, role) in (1..).zip(Role::ALL) {
        let key = ApiKey { role, ..key(&world, "schlüssel", byte) };
        world.create_key(&key).await.unwrap();
        assert_eq!(world.key(key.id).await, Ok(Some(key.clone())));
        assert_eq!(world.key_by_hash(&[byte; 32]).await, Ok(Some(key)));
    }
    let unlimited = ApiKey { topics: vec![], ..key(&world, "any topic", 9) };
    world.create_key(&unlimited).await.unwrap();
    assert_eq!(world.key_by_hash(&[9; 32]).await, Ok(Some(unlimited)));
    assert_eq!(world.key_by_hash(&[0; 32]).await, Ok(None));
}

pub(crate) async fn a_revoked_key_is_not_found_but_listed(world: World) {
    let mut keys: Vec<_> = (1..=3).map(|byte| key(&world, "key", byte)).collect();
    for (i, key) in keys.iter_mut().enumerate() {
        key.created_at = world.in_secs(i as i64 - 3);
        world.create_key(key).await.unwrap();
    }
    world.advance_secs(5);
    assert_eq!(world.revoke_key(keys[1].id).await, Ok(true));
    keys[1].revoked_at = Some(world.now());
    world.advance_secs(5);
    assert_eq!(world.revoke_key(keys[1].id).await, Ok(false));
    assert_eq!(world.revoke_key(KeyId::generate()).await, Ok(false));
    assert_eq!(world.key_by_hash(&[2; 32]).await, Ok(None));
    assert_eq!(world.key(keys[1].id).await, Ok(None));
    assert_eq!(world.key_by_hash(&[1; 32]).await, Ok(Some(keys[0].clone())));
    assert_eq!(world.keys().await, Ok(keys.clone()));

    let newest = async |after, limit| world.newest_keys(Page { after, limit }).await.unwrap();
    assert_eq!(newest(None, 2).await, [keys[2].clone(), keys[1].clone()], "revoked ones too");
    assert_eq!(newest(Some(keys[1].id), 2).await, keys[..1]);
    assert_eq!(newest(Some(keys[0].id), 2).await, []);
    for key in [0, 2] {
        assert_eq!(world.has_valid_key().await, Ok(true));
        assert_eq!(world.revoke_key(keys[key].id).await, Ok(true));
    }
    assert_eq!(world.has_valid_key().await, Ok(false));
}

pub(crate) async fn facts_are_shared_by_all_nodes(world: World) {
    assert_eq!(world.fact("place").await.unwrap(), None);
    world.note_fact("place", "1").await.unwrap();
    let other = world.another_node().await;
    other.note_fact("place", "2").await.unwrap();
    other.note_fact("another", "x").await.unwrap();
    assert_eq!(world.fact("place").await.unwrap().as_deref(), Some("2"));
}
