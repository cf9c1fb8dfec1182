//! `GET /metrics`: what this process has counted, and what there is to count in the database now.
//!
//! The database is asked when somebody asks us, and at most once in a while however many they are: a node that nobody
//! scrapes costs nothing. While it is away its gauges are NaN, which no alert takes for a number.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use metrics::{Gauge, gauge};
use punctual_actors::{OTHER_TOPICS, Origin, TopicMeters, topic_label};
use punctual_domain::store::{Counts, Store, StoreError};
use punctual_domain::topic::{Topic, TopicDefinition};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::Api;
use crate::store_time::StoreTime;
use crate::telemetry::Exporter;
use crate::topics::TopicDirectory;

/// How old a gauge may be; younger ones are shown again.
const FRESH: Duration = Duration::from_secs(1);
/// How long the database may take; Prometheus itself waits ten seconds.
const PATIENCE: Duration = Duration::from_secs(3);
/// Definitions that have their series from the start; further ones have them from their first task.
const MOST_TOPICS: usize = 200;

/// `GET /metrics`.
pub(crate) async fn show(State(api): State<Arc<Api>>) -> Response {
    api.gauges.refresh(&*api.store, &api.time, &api.topics).await;
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (kind, Exporter::of_process().render()).into_response()
}

/// What can be counted in the database, as it was last seen.
#[derive(Default)]
pub(crate) struct Gauges(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    at: Option<Instant>,
    /// The depths that were ever shown: one that is empty again shows zero.
    depths: HashMap<(String, &'static str), Gauge>,
    /// The topics whose series exist.
    topics: HashMap<String, Arc<TopicMeters>>,
}

impl Gauges {
    /// Looks at the database, unless somebody just did. Who comes meanwhile waits for that look.
    async fn refresh(&self, store: &dyn Store, time: &StoreTime, topics: &TopicDirectory) {
        let mut seen = self.0.lock().await;
        if seen.at.is_some_and(|at| at.elapsed() < FRESH) {
            return;
        }
        let look = async { tokio::try_join!(store.counts(), time.measure(store), topics.definitions()) };
        let looked = timeout(PATIENCE, look).await;
        let looked = looked.unwrap_or_else(|_| Err(StoreError::Unavailable(format!("no answer within {PATIENCE:?}"))));
        gauge!("punctual_database_up").set(if looked.is_ok() { 1.0 } else { 0.0 });
        match looked {
            Ok((counts, offset, definitions)) => {
                gauge!("punctual_clock_offset_seconds").set(offset.as_seconds_f64());
                seen.note_topics(&definitions);
                seen.show(&counts, &definitions);
            }
            Err(error) => {
                tracing::debug!(%error, "nothing counted");
                seen.show_nothing();
            }
        }
        seen.at = Some(Instant::now());
    }
}

impl Seen {
    /// Series that begin at zero: what happens first then counts as an increase.
    fn note_topics(&mut self, definitions: &[TopicDefinition]) {
        let labels = definitions.iter().take(MOST_TOPICS).map(|definition| definition.name.as_str());
        for label in labels.chain([OTHER_TOPICS]) {
            if !self.topics.contains_key(label) {
                self.topics.insert(label.to_owned(), TopicMeters::of(label));
                metrics::counter!("punctual_fires_missed_total", "topic" => label.to_owned()).increment(0);
            }
        }
    }

    fn show(&mut self, counts: &Counts, definitions: &[TopicDefinition]) {
        gauge!("punctual_tasks_running").set(counts.running as f64);
        gauge!("punctual_outbox_depth").set(counts.outbox as f64);
        gauge!("punctual_schedules_enabled").set(counts.schedules as f64);
        gauge!("punctual_schedule_overdue_seconds").set(counts.schedule_lag.as_secs_f64());
        let mut depths: HashMap<(String, &'static str), u64> = HashMap::new();
        let known = self.topics.keys().flat_map(|label| Origin::ALL.map(|origin| (label.clone(), origin.as_str())));
        depths.extend(known.chain(self.depths.keys().cloned()).map(|labels| (labels, 0)));
        for depth in &counts.due {
            let label = topic_label(definitions, &Topic::from_stored(depth.topic.as_str()));
            let origin = if depth.of_schedules { Origin::Schedule } else { Origin::Task };
            *depths.entry((label.to_owned(), origin.as_str())).or_default() += depth.tasks;
        }
        for ((topic, origin), tasks) in depths {
            let gauge = self.depths.entry((topic.clone(), origin));
            gauge
                .or_insert_with(|| gauge!("punctual_queue_depth", "topic" => topic, "origin" => origin))
                .set(tasks as f64);
        }
    }

    /// Nothing is known any more.
    fn show_nothing(&self) {
        for name in [
            "punctual_tasks_running",
            "punctual_outbox_depth",
            "punctual_schedules_enabled",
            "punctual_schedule_overdue_seconds",
            "punctual_clock_offset_seconds",
        ] {
            gauge!(name).set(f64::NAN);
        }
        self.depths.values().for_each(|depth| depth.set(f64::NAN));
    }
}
