//! What is different behind a pooler, where every transaction may meet another connection of the server.

use futures::future::join_all;
use punctual_domain::store::{Settled, StoreError};
use punctual_sdk::{Migration, NewTask, on_either};
use punctual_store::{Access, Options, connect};

use crate::postgres_only::LOSE;
use crate::support::*;

#[test]
fn a_lost_race_for_a_serial_key_does_not_take_the_claim_along() {
    on_pooled(async |world: World| {
        world.database.execute(LOSE).await;
        world.add(task("mail").serial_key("k").priority(9)).await;
        assert_eq!(world.claim_up_to(9, "mail").await, []);
        let others = world.add_all((0..2).map(|_| task("mail"))).await;
        assert_eq!(ids(&world.claim_up_to(9, "mail").await), ids(&others));
    });
}

#[test]
fn many_calls_at_once_each_see_what_was_answered_before() {
    on_pooled(async |world: World| {
        let lives = join_all((0..40).map(async |n| {
            let name = format!("topic-{n}");
            let written = world.add(task(&name)).await;
            let claimed = world.claim_one(&name).await;
            assert_eq!((written.id, world.read(written.id).await.epoch), (claimed.id, claimed.epoch));
            assert_eq!(world.settle_as(&claimed, completed()).await, Settled::Now);
            assert_eq!(world.settle_as(&claimed, completed()).await, Settled::Before);
        }));
        assert_eq!(lives.await.len(), 40);
        assert_eq!(world.database.count("punctual_task_history").await, 40);
    });
}

#[test]
fn whoever_only_looks_writes_nothing() {
    on_pooled(async |world: World| {
        let written = world.add(task("mail")).await;
        let looking = Options { access: Access::Look, ..options(None) };
        let store = connect(&world.database.url(), looking).await.unwrap();
        assert_eq!(store.task(written.id).await.unwrap().unwrap().task, written);
        let refused = store.create_tasks(vec![task("mail").build()], None).await;
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
        assert_eq!(world.database.count("punctual_tasks").await, 1);
    });
}

#[test]
fn nobody_is_heard_and_it_is_said_so_at_once() {
    on_pooled(async |world: World| {
        let deaf = world.store.hear().await.unwrap_err().to_string();
        assert!(deaf.contains("pooler"), "{deaf}");
    });
}

#[test]
fn statements_and_transactions_of_plugins_do_not_get_in_each_others_way() {
    const NOTES: Migration =
        Migration { name: "1_notes", sqlite: "", postgres: "CREATE TABLE notes (number bigint PRIMARY KEY)" };
    on_pooled(async |world: World| {
        world.migrate_plugin("memo", &[NOTES]).await.unwrap();
        let (insert, count) = ("INSERT INTO notes VALUES ($1)", "SELECT count(*) FROM notes WHERE number = $1");
        let writing = (0..40_i64).map(async |n| {
            if n % 2 == 0 {
                on_either!(world.database(), |pool| {
                    sqlx::query(insert).bind(n).execute(pool).await.unwrap();
                });
            } else {
                let mut transaction = world.database().begin().await.unwrap();
                on_either!(transaction, |connection| {
                    sqlx::query(insert).bind(n).execute(connection).await.unwrap();
                });
                transaction.enqueue(NewTask::new("mail").payload(n)).await.unwrap();
                transaction.commit().await.unwrap();
                let seen: i64 = on_either!(world.database(), |pool| {
                    sqlx::query_scalar(count).bind(n).fetch_one(pool).await.unwrap()
                });
                assert_eq!(seen, 1, "a transaction that was committed is seen");
            }
        });
        join_all(writing).await;
        // One that fails hurts nobody else.
        let again = on_either!(world.database(), |pool| sqlx::query(insert).bind(1_i64).execute(pool).await.is_err());
        assert!(again);
        // A single statement is committed when its connection comes back, a moment after it was answered.
        while world.database.count("notes").await < 40 {
            tokio::task::yield_now().await;
        }
        assert_eq!(world.database.count("punctual_tasks").await, 20);
    });
}
