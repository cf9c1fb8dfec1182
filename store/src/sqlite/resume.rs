//! Going on with a file that somebody used before.
//!
//! Whoever opens it is alone with it: whoever led is gone, however long their lease, and nobody has to wait for its end.
//!
//! The clock goes on where it stopped. If it was set back meanwhile, it stands still until it has caught up: what happens now must
//! not be dated before what happened then, or readers of events would miss it. What is due by then stays due; what waits for a
//! while waits longer. So a clock that was far ahead is not waited for.

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::sqlite::SqliteConnection;
use tracing::warn;

use super::rows::micros;
use super::{Now, broken};
use crate::ConnectError;

/// How long the clock may stand still at the most: less than the five minutes that receivers of webhooks usually let a
/// signature be off.
const LONGEST_WAIT: TimeDelta = TimeDelta::minutes(2);
/// How long it may without a word.
const QUIET_WAIT: TimeDelta = TimeDelta::seconds(1);

/// Begins where whoever had the file before left off.
pub(super) async fn resume(connection: &mut SqliteConnection, now: &Now) -> Result<(), ConnectError> {
    let (latest, believed): (Option<i64>, Option<i64>) =
        sqlx::query_as(include_str!("sql/latest_instant.sql")).fetch_one(&mut *connection).await.map_err(broken)?;
    // What was once found to be far ahead is not believed when its time has nearly come.
    if let Some(latest) = latest.filter(|latest| believed.is_none_or(|wrong| *latest > wrong))
        && let Some(at) = DateTime::from_timestamp_micros(latest)
        && let Start::Without { ahead } = begin_at(now, at)
    {
        // In this order: noted first, a crash in between would leave the leases as they are.
        for statement in [include_str!("sql/shift_leases.sql"), include_str!("sql/note_clock_ahead.sql")] {
            sqlx::query(statement)
                .bind(micros(now.now()))
                .bind(latest)
                .bind(ahead.num_microseconds().unwrap_or(i64::MAX))
                .execute(&mut *connection)
                .await
                .map_err(broken)?;
        }
    }
    sqlx::query("UPDATE punctual_leaderships SET expires_at = ?1 WHERE expires_at > ?1")
        .bind(micros(now.now()))
        .execute(connection)
        .await
        .map_err(broken)?;
    Ok(())
}

/// How the clock begins.
enum Start {
    /// Not before the latest instant that is known.
    After,
    /// Without regard to it: it is so far ahead.
    Without { ahead: TimeDelta },
}

fn begin_at(now: &Now, latest: DateTime<Utc>) -> Start {
    let ahead = latest - now.now();
    let ahead_ms = ahead.num_milliseconds();
    if ahead > LONGEST_WAIT {
        warn!(ahead_ms, "the database was used at a later instant than now: either that was wrong, or the clock is");
        return Start::Without { ahead };
    }
    if ahead > QUIET_WAIT {
        warn!(ahead_ms, "the clock was set back: time stands still until it has caught up");
    }
    now.not_before(latest);
    Start::After
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use punctual_domain::clock::{Clock, FakeClock};
    use punctual_domain::id::NodeId;
    use punctual_domain::json::Json;
    use punctual_domain::node::Node;
    use punctual_domain::store::{ClaimRequest, Claims, Cluster, Suspects, Tasks, Want};
    use punctual_domain::task::NewTask;
    use tempfile::TempDir;

    use crate::Options;
    use crate::sqlite::SqliteStore;

    use super::*;

    async fn open(folder: &TempDir, at: &str) -> (SqliteStore, FakeClock) {
        let clock = FakeClock::at_text(at);
        let url = format!("sqlite://{}", folder.path().join("punctual.db").display());
        let options = Options { clock: Some(Arc::new(clock.clone())), ..Options::default() };
        (SqliteStore::connect(&url, options).await.unwrap(), clock)
    }

    fn node(started_at: DateTime<Utc>) -> Node {
        Node {
            id: NodeId::generate(),
            version: "0.1.0".into(),
            tz_version: "2026e".into(),
            about: Json::from_stored("{}"),
            started_at,
            seen_at: started_at,
        }
    }

    async fn begin_one(store: &SqliteStore, lease: Duration) {
        store.create_tasks(vec![NewTask::new("mail".parse().unwrap())], None).await.unwrap();
        let wants = vec![Want { topic: "mail".parse().unwrap(), slots: 1 }];
        let request = ClaimRequest { node: NodeId::generate(), lease, wants, suspects: Suspects::Any };
        assert_eq!(store.claim(&request).await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_clock_that_was_set_back_stands_still_until_it_has_caught_up() {
        let folder = TempDir::new().unwrap();
        let (store, clock) = open(&folder, "2026-11-16T12:00:00Z").await;
        store.heartbeat(&node(clock.now())).await.unwrap();
        drop(store);

        let (store, clock) = open(&folder, "2026-11-16T11:58:00Z").await;
        assert_eq!(Cluster::now(&store).await.unwrap().to_rfc3339(), "2026-11-16T12:00:00+00:00");
        clock.advance(TimeDelta::seconds(121));
        assert_eq!(Cluster::now(&store).await.unwrap().to_rfc3339(), "2026-11-16T12:00:01+00:00");
        drop(store);

        // It was far ahead: that is not waited for.
        let (store, _) = open(&folder, "2026-11-16T11:00:00Z").await;
        assert_eq!(Cluster::now(&store).await.unwrap().to_rfc3339(), "2026-11-16T11:00:00+00:00");
    }

    #[tokio::test]
    async fn what_runs_has_happened_too() {
        let folder = TempDir::new().unwrap();
        let (store, _) = open(&folder, "2026-11-16T12:00:00Z").await;
        begin_one(&store, Duration::from_secs(300)).await;
        drop(store);

        let (store, _) = open(&folder, "2026-11-16T11:59:00Z").await;
        assert_eq!(Cluster::now(&store).await.unwrap().to_rfc3339(), "2026-11-16T12:00:00+00:00");
    }

    #[tokio::test]
    async fn leases_and_instants_of_a_clock_that_was_far_ahead_are_not_waited_for() {
        let folder = TempDir::new().unwrap();
        let (store, _) = open(&folder, "2026-11-16T13:00:00Z").await;
        begin_one(&store, Duration::from_secs(30)).await;
        drop(store);

        let (store, clock) = open(&folder, "2026-11-16T12:00:00Z").await;
        assert_eq!(Cluster::now(&store).await.unwrap().to_rfc3339(), "2026-11-16T12:00:00+00:00");
        assert_eq!(store.expire(3, 10).await.unwrap().freed, 0, "its holder may be a worker that lives");
        clock.advance(TimeDelta::seconds(31));
        assert_eq!(store.expire(3, 10).await.unwrap().freed, 1);
        drop(store);

        // Nearly an hour later nothing is different.
        let (store, _) = open(&folder, "2026-11-16T12:59:00Z").await;
        assert_eq!(Cluster::now(&store).await.unwrap().to_rfc3339(), "2026-11-16T12:59:00+00:00");
    }

    #[tokio::test]
    async fn whoever_led_is_gone_with_its_process() {
        let folder = TempDir::new().unwrap();
        let (before, after) = (NodeId::generate(), NodeId::generate());
        let lease = Duration::from_secs(15);
        let (store, _) = open(&folder, "2026-11-16T12:00:00Z").await;
        let led = store.lead("queue bull:jobs", before, lease).await.unwrap();
        assert_eq!(store.lead("queue bull:jobs", after, lease).await.unwrap().owner, before, "while it lives");
        drop(store);

        let (store, _) = open(&folder, "2026-11-16T12:00:01Z").await;
        let leads = store.lead("queue bull:jobs", after, lease).await.unwrap();
        assert_eq!((leads.owner, leads.epoch > led.epoch), (after, true), "{leads:?}");
    }
}
