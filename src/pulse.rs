//! The pulse of this node: it tells the store that the node lives, and keeps an eye on the store while at it.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use punctual_domain::clock::Clock;
use punctual_domain::json::Json;
use punctual_domain::node::Node;
use punctual_domain::store::{Store, StoreError};
use punctual_store::{ConnectError, SchemaState};
use tracing::{debug, info, warn};

use crate::config::Secret;
use crate::http::State;
use crate::store_time::{StoreTime, TOLERATED_OFFSET};

/// How often the schema is looked at; that takes a connection of its own.
const SCHEMA_EVERY: Duration = Duration::from_secs(60);

/// What beats, and how often.
pub(crate) struct Pulse {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) database_url: Secret,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) time: Arc<StoreTime>,
    pub(crate) state: Arc<State>,
    pub(crate) node: Node,
    pub(crate) every: Duration,
}

impl Pulse {
    /// Beats until it is dropped.
    pub(crate) async fn run(self) {
        // Connecting has checked the schema.
        let mut known = Known { store: Health::Well, schema_due_at: self.clock.now() + SCHEMA_EVERY };
        loop {
            self.clock.sleep_until(self.clock.now() + self.every).await;
            self.pass(&mut known).await;
        }
    }

    /// One beat; the schema is looked at too if that is due, or the store was away and may not be the same any more.
    async fn pass(&self, known: &mut Known) {
        let beat = self.beat().await;
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

    async fn beat(&self) -> Result<(), StoreError> {
        self.store.heartbeat(&self.present()).await?;
        let offset = self.time.measure(&*self.store).await?;
        if offset.abs() > TOLERATED_OFFSET {
            warn!(offset_ms = offset.num_milliseconds(), "clock differs from the database's");
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
}

#[derive(Clone, Copy)]
enum Health {
    Well,
    Lost,
}

#[cfg(test)]
mod tests {
    use punctual_domain::clock::FakeClock;
    use punctual_domain::id::NodeId;

    use super::*;

    #[tokio::test]
    async fn the_schema_is_looked_at_once_a_minute_and_when_the_store_is_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name| format!("sqlite://{}", folder.path().join(name).display());
        let clock = FakeClock::at_text("2026-01-01T00:00:00Z");
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let options = punctual_store::Options { clock: Some(Arc::clone(&shared)), ..Default::default() };
        let ours = SchemaState { version: SchemaState::ours(), oldest_compatible: 0 };
        let pulse = Pulse {
            store: punctual_store::connect(&file("a.db"), options).await.unwrap(),
            // Another one, without a schema: it shows whether anybody looked.
            database_url: Secret::url(file("b.db")),
            time: Arc::new(StoreTime::new(Arc::clone(&shared))),
            clock: shared,
            state: Arc::new(State::new(ours.clone(), false)),
            node: Node {
                id: NodeId::generate(),
                version: String::new(),
                tz_version: String::new(),
                about: Json::from_stored("{}"),
                started_at: clock.now(),
                seen_at: clock.now(),
            },
            every: Duration::from_secs(10),
        };
        let mut known = Known { store: Health::Well, schema_due_at: clock.now() + SCHEMA_EVERY };
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
