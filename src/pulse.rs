//! The pulse of this node: it tells the store that the node lives, and keeps an eye on the store while at it.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use punctual_domain::clock::Clock;
use punctual_domain::json::Json;
use punctual_domain::node::Node;
use punctual_domain::store::{Store, StoreError};
use punctual_store::{ConnectError, SchemaState};
use tokio::sync::Mutex;
use tracing::{debug, info, warn};

use crate::config::Secret;
use crate::http::State;
use crate::store_time::{StoreTime, TOLERATED_OFFSET};

/// How often the schema is looked at; that takes a connection of its own.
const SCHEMA_EVERY: Duration = Duration::from_secs(60);
/// How often the store's clock is compared with ours, if a beat does not show that one of them was set.
const TIME_EVERY: Duration = Duration::from_secs(60);
/// By how much a beat may be seen at another instant than expected; it has to wait for a connection.
const TOLERATED_DRIFT: TimeDelta = TimeDelta::milliseconds(250);

/// What beats, and how often.
pub(crate) struct Pulse {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) database_url: Secret,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) time: Arc<StoreTime>,
    pub(crate) state: Arc<State>,
    pub(crate) node: Node,
    pub(crate) every: Duration,
    /// One beat at a time, so that what is newer is not overwritten.
    pub(crate) beating: Mutex<()>,
}

impl Pulse {
    /// Beats until it is dropped.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut known = Known::at_start(self.clock.now());
        loop {
            self.clock.sleep_until(self.clock.now() + self.every).await;
            self.pass(&mut known).await;
        }
    }

    /// Tells at once what the node is now; where that fails, the next beat does.
    pub(crate) async fn tell(&self) {
        if let Err(error) = self.heartbeat().await {
            debug!(%error, "state not told");
        }
    }

    async fn heartbeat(&self) -> Result<DateTime<Utc>, StoreError> {
        let _one = self.beating.lock().await;
        self.store.heartbeat(&self.present()).await
    }

    /// One beat; the schema is looked at too if that is due, or the store was away and may not be the same any more.
    async fn pass(&self, known: &mut Known) {
        let beat = self.beat(known).await;
        let now = self.clock.now();
        match (&beat, known.store) {
            (Ok(()), Health::Well) => {}
            (Ok(()), Health::Lost) => {
                info!("store back");
                known.schema_due_at = now;
            }
            (Err(error), Health::Well) => warn!(%error, "store lost"),
            (Err(error), Health::Lost) => debug!(%error, "store still away"),
        }
        known.store = if beat.is_ok() { Health::Well } else { Health::Lost };
        if beat.is_ok() && known.schema_due_at <= now && self.look_at_schema().await {
            known.schema_due_at = now + SCHEMA_EVERY;
        }
    }

    async fn beat(&self, known: &mut Known) -> Result<(), StoreError> {
        let asked_at = self.clock.now();
        let seen_at = self.heartbeat().await?;
        let drift = seen_at - self.time.at(asked_at);
        if known.time_due_at <= asked_at || drift.abs() > TOLERATED_DRIFT {
            let offset = self.time.measure(&*self.store).await?;
            known.time_due_at = asked_at + TIME_EVERY;
            if offset.abs() > TOLERATED_OFFSET {
                warn!(offset_ms = offset.num_milliseconds(), "clock differs from the database's");
            }
        }
        Ok(())
    }

    /// The node as it is now.
    fn present(&self) -> Node {
        let mut node = self.node.clone();
        if let Ok(mut about) = serde_json::from_str::<serde_json::Value>(node.about.as_str())
            && about.is_object()
        {
            about["paused"] = self.state.is_paused().into();
            node.about = Json::from_stored(about.to_string());
        }
        node
    }

    /// Notes what the schema is; whether that could be found out.
    async fn look_at_schema(&self) -> bool {
        let schema = match punctual_store::schema_state(self.database_url.expose()).await {
            Ok(schema) => schema,
            Err(ConnectError::Refused(reason)) => {
                warn!(reason, "schema is not ours");
                SchemaState::EMPTY
            }
            Err(error) => {
                debug!(%error, "schema not read");
                return false;
            }
        };
        self.state.saw_schema(schema);
        true
    }
}

/// What the beats so far have shown.
struct Known {
    store: Health,
    schema_due_at: DateTime<Utc>,
    time_due_at: DateTime<Utc>,
}

impl Known {
    /// Whoever starts us has connected to the store, which checks its schema, and has asked it for its time.
    fn at_start(now: DateTime<Utc>) -> Self {
        Self { store: Health::Well, schema_due_at: now + SCHEMA_EVERY, time_due_at: now + TIME_EVERY }
    }
}

#[derive(Clone, Copy)]
enum Health {
    Well,
    Lost,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use punctual_domain::clock::FakeClock;
    use punctual_domain::id::NodeId;

    use super::*;

    fn ours() -> SchemaState {
        SchemaState { version: SchemaState::ours(), oldest_compatible: 0 }
    }

    /// A pulse by one clock on a store that has another, and a second database without a schema: it shows whether anybody
    /// looked.
    async fn pulse(folder: &Path, clock: &FakeClock, store_clock: &FakeClock) -> Pulse {
        let file = |name| format!("sqlite://{}", folder.join(name).display());
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let options = punctual_store::Options { clock: Some(Arc::new(store_clock.clone())), ..Default::default() };
        Pulse {
            store: punctual_store::connect(&file("a.db"), options).await.unwrap(),
            database_url: Secret::url(file("b.db")),
            time: Arc::new(StoreTime::new(Arc::clone(&shared))),
            clock: shared,
            state: Arc::new(State::new(ours(), false)),
            node: Node {
                id: NodeId::generate(),
                version: String::new(),
                tz_version: String::new(),
                about: Json::from_stored("{}"),
                started_at: clock.now(),
                seen_at: clock.now(),
            },
            every: Duration::from_secs(10),
            beating: Mutex::default(),
        }
    }

    #[tokio::test]
    async fn a_clock_that_was_set_is_noticed_by_the_next_beat() {
        let folder = tempfile::tempdir().unwrap();
        let (clock, theirs) = (FakeClock::at_text("2026-01-01T00:00:00Z"), FakeClock::at_text("2026-01-01T00:00:00Z"));
        let pulse = pulse(folder.path(), &clock, &theirs).await;
        let mut known = Known::at_start(clock.now());
        for by in [TimeDelta::hours(1), TimeDelta::milliseconds(300)] {
            clock.advance(by);
            assert_eq!(pulse.time.now() - theirs.now(), by);
            pulse.pass(&mut known).await;
            assert_eq!(pulse.time.now(), theirs.now());
        }
        theirs.advance(TimeDelta::hours(2));
        pulse.pass(&mut known).await;
        assert_eq!(pulse.time.now(), theirs.now());
        // A little is made up for within a minute.
        clock.advance(TimeDelta::milliseconds(200));
        pulse.pass(&mut known).await;
        assert_ne!(pulse.time.now(), theirs.now());
        clock.advance(TimeDelta::minutes(1));
        theirs.advance(TimeDelta::minutes(1));
        pulse.pass(&mut known).await;
        assert_eq!(pulse.time.now(), theirs.now());
    }

    #[tokio::test]
    async fn the_schema_is_looked_at_once_a_minute_and_when_the_store_is_back() {
        let folder = tempfile::tempdir().unwrap();
        let clock = FakeClock::at_text("2026-01-01T00:00:00Z");
        let (ours, pulse) = (ours(), pulse(folder.path(), &clock, &clock).await);
        let mut known = Known::at_start(clock.now());
        for second in [10, 20, 30, 40, 50] {
            clock.advance(chrono::TimeDelta::seconds(10));
            pulse.pass(&mut known).await;
            assert_eq!(pulse.state.schema(), ours, "after {second} s");
        }
        clock.advance(chrono::TimeDelta::seconds(10));
        pulse.pass(&mut known).await;
        assert_eq!(pulse.state.schema(), SchemaState::EMPTY);

        pulse.state.saw_schema(ours.clone());
        pulse.pass(&mut known).await;
        assert_eq!(pulse.state.schema(), ours, "not again so soon");
        known.store = Health::Lost;
        pulse.pass(&mut known).await;
        assert_eq!(pulse.state.schema(), SchemaState::EMPTY, "it may be another one by now");
    }
}
