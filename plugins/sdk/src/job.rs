use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tracing::{debug, error, info, warn};

use crate::{Error, Outcome};

/// One run of a job over many records: counts what became of them, and logs the exceptions.
#[derive(Debug)]
pub struct Job {
    name: &'static str,
    processed: AtomicU64,
    sent: AtomicU64,
    skipped: AtomicU64,
    failed: AtomicU64,
}

impl Job {
    /// A record was dealt with.
    pub fn processed(&self) {
        self.processed.fetch_add(1, Ordering::Relaxed);
    }

    /// A record was dealt with, and something was sent.
    pub fn sent(&self) {
        self.processed();
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    /// Nothing had to be done for a record.
    pub fn skipped(&self, record: impl fmt::Display, reason: &str) {
        self.processed();
        self.skipped.fetch_add(1, Ordering::Relaxed);
        debug!(job = self.name, recordId = %record, reason, "Record skipped");
    }

    /// A record failed; the others go on.
    pub fn failed(&self, record: impl fmt::Display, error: impl fmt::Display) {
        self.processed();
        self.failed.fetch_add(1, Ordering::Relaxed);
        warn!(job = self.name, recordId = %record, err = %error, "Record failed");
    }
}

/// Says how a run ended that did not come to its end: it panicked, or it was dropped because its time was over, its task was
/// cancelled or the node stops.
struct Unfinished {
    name: &'static str,
    begun: Instant,
    has_ended: bool,
}

impl Unfinished {
    fn duration_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.has_ended {
            let err = if std::thread::panicking() { "panicked" } else { "stopped before its end" };
            error!(job = self.name, err, durationMs = self.duration_ms(), "Job failed");
        }
    }
}

/// Runs a job from its first line in the log to its last: `Job started`, then `Job completed` with how many records were
/// `processed`, `sent`, `skipped` and `failed`, or `Job failed` with the error, also if it panics or is stopped. An error fails the
/// attempt and nothing else.
pub async fn run_job(name: &'static str, run: impl AsyncFnOnce(&Job) -> Result<(), Error>) -> Outcome {
    let job = Job {
        name,
        processed: AtomicU64::new(0),
        sent: AtomicU64::new(0),
        skipped: AtomicU64::new(0),
        failed: AtomicU64::new(0),
    };
    let mut unfinished = Unfinished { name, begun: Instant::now(), has_ended: false };
    info!(job = name, "Job started");
    let ended = run(&job).await;
    unfinished.has_ended = true;
    let duration_ms = unfinished.duration_ms();
    match ended {
        Ok(()) => {
            let [processed, sent, skipped, failed] =
                [&job.processed, &job.sent, &job.skipped, &job.failed].map(|count| count.load(Ordering::Relaxed));
            info!(job = name, durationMs = duration_ms, processed, sent, skipped, failed, "Job completed");
            Outcome::completed_with(serde_json::json!({
                "processed": processed, "sent": sent, "skipped": skipped, "failed": failed,
            }))
        }
        Err(err) => {
            error!(job = name, err = %err, durationMs = duration_ms, "Job failed");
            Outcome::failed(err)
        }
    }
}
