//! What a job logs that does not come to its end.

use std::future::pending;
use std::task::Poll;

use punctual_sdk::{Attempt, Handler, Outcome, Plugin, run_job};
use punctual_testing::logged;
use serde_json::{Value, json};

struct Jobs;

impl Plugin for Jobs {
    fn name(&self) -> &'static str {
        "jobs"
    }

    fn handlers(&self) -> Vec<(&'static str, Box<dyn Handler>)> {
        vec![("jobs.panic", Box::new(|_: Attempt| run_job("panics", async |_| panic!("boom"))))]
    }
}

fn failure(job: &str) -> Value {
    let [line] = logged("Job failed", json!({ "job": job })).try_into().unwrap();
    assert!(line["level"] == "ERROR" && line["durationMs"].is_u64(), "{line}");
    line["err"].clone()
}

#[tokio::test]
async fn a_job_that_panics_has_failed() {
    let punctual = punctual_testing::start(Jobs).await;
    assert_eq!(punctual.run("jobs.panic", ()).await.error.as_deref(), Some("panicked: boom"));
    assert_eq!(failure("panics"), "panicked");
}

#[tokio::test]
async fn a_job_that_is_dropped_has_failed() {
    punctual_testing::logs();
    let mut job = Box::pin(run_job("is dropped", async |_| pending().await));
    let is_waiting = std::future::poll_fn(|context| Poll::Ready(job.as_mut().poll(context).is_pending())).await;
    assert!(is_waiting && logged("Job failed", json!({"job": "is dropped"})).is_empty());
    drop(job);
    assert_eq!(failure("is dropped"), "stopped before its end");
}

#[tokio::test]
async fn a_job_that_comes_to_its_end_has_not_failed_by_that() {
    punctual_testing::logs();
    let outcome = run_job("ends", async |_| Ok(())).await;
    assert!(matches!(outcome, Outcome::Completed { .. }));
    assert!(logged("Job failed", json!({"job": "ends"})).is_empty());
}
