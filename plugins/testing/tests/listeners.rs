//! Listeners hear of every attempt that begins: on route `event` they are the work, elsewhere they are told beside it.

use std::sync::Arc;
use std::time::Duration;

use punctual_sdk::{Arrival, Attempt, Error, Handler, Listener, NewTask, Outcome, Plugin, async_trait};
use punctual_testing::{AttemptOutcome, TaskStatus};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};

/// Serves `served`, and listens to all topics.
struct Hears<L>(Arc<L>);

impl<L: Listener + 'static> Plugin for Hears<L> {
    fn name(&self) -> &'static str {
        "hears"
    }

    fn handlers(&self) -> Vec<(&'static str, Box<dyn Handler>)> {
        vec![("served", Box::new(|_: Attempt| async { Outcome::completed_with("served") }))]
    }

    fn listeners(&self) -> Vec<(&'static str, Box<dyn Listener>)> {
        vec![("*", Box::new(Shared(self.0.clone())))]
    }
}

struct Shared<L>(Arc<L>);

#[async_trait]
impl<L: Listener> Listener for Shared<L> {
    async fn arrived(&self, arrival: Arrival) -> Result<(), Error> {
        self.0.arrived(arrival).await
    }
}

fn hears<W: Future<Output = Result<(), Error>> + Send + 'static>(
    listen: impl Fn(Arrival) -> W + Send + Sync + 'static,
) -> impl Plugin {
    Hears(Arc::new(listen))
}

/// A listener that passes on what it hears.
fn passes_on() -> (impl Plugin, mpsc::UnboundedReceiver<Value>) {
    let (heard, arrivals) = mpsc::unbounded_channel();
    let plugin = hears(move |arrival: Arrival| {
        let heard = heard.clone();
        async move { Ok(heard.send(serde_json::to_value(&arrival)?)?) }
    });
    (plugin, arrivals)
}

#[tokio::test]
async fn a_listener_hears_of_attempts_on_every_route_with_all_their_fields() {
    let (plugin, mut arrivals) = passes_on();
    let punctual = punctual_testing::start(plugin).await;
    for topic in ["served", "announced.only"] {
        let task = NewTask::new(topic).payload([1]).timezone("America/Edmonton").metadata("ownerId", "o");
        let id = punctual.enqueue(task.after(Duration::from_secs(60))).await;
        punctual.advance(Duration::from_secs(60)).await;
        assert_eq!(punctual.task(id).await.status, TaskStatus::Completed);
        let now = punctual.now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
        let expected = json!({
            "name": "schedule.arrived", "alias": format!("schedule.{topic}.arrived"), "scheduledJobId": id,
            "scheduleId": null, "topic": topic, "timezone": "America/Edmonton", "userPayload": [1],
            "metadata": {"ownerId": "o"}, "scheduledAt": now, "firedAt": now, "attempt": 1,
        });
        assert_eq!(arrivals.recv().await.unwrap(), expected);
    }
    punctual.stop().await;
}

#[tokio::test]
async fn a_listener_hears_of_each_attempt_and_on_route_event_its_error_fails_it() {
    let punctual = punctual_testing::start(hears(|arrival| async move {
        match arrival.attempt {
            1 => Err("not yet".into()),
            2 => panic!("not now"),
            _ => Ok(()),
        }
    }))
    .await;
    let id = punctual.enqueue(NewTask::new("announced").attempts(3)).await;
    let task = punctual.task(id).await;
    assert_eq!((task.status, task.error.as_deref()), (TaskStatus::Pending, Some("not yet")));
    punctual.advance(Duration::from_secs(60)).await;
    let task = punctual.task(id).await;
    assert_eq!(task.status, TaskStatus::Completed);
    assert_eq!(task.outcomes, [AttemptOutcome::Failed, AttemptOutcome::Panicked, AttemptOutcome::Completed]);
}

#[tokio::test]
async fn beside_an_attempt_a_listener_that_fails_panics_or_hangs_hurts_nobody() {
    let told = Arc::new(Semaphore::new(0));
    let punctual = punctual_testing::start(hears({
        let told = told.clone();
        move |arrival| {
            told.add_permits(1);
            async move {
                match arrival.payload.get() {
                    "0" => Err("on purpose".into()),
                    "1" => panic!("on purpose"),
                    _ => std::future::pending().await,
                }
            }
        }
    }))
    .await;
    // It hangs from the third on.
    for i in 0..10 {
        let task = punctual.run("served", i).await;
        assert_eq!((task.status, task.result), (TaskStatus::Completed, json!("served")));
    }
    told.acquire_many(3).await.unwrap().forget();
    assert_eq!(told.available_permits(), 0);
    punctual.stop().await;
}
