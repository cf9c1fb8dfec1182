//! BullMQ's queues in Redis: jobs made, looked up and removed, and the events that tell what became of them.
//!
//! What stands in Redis is BullMQ's, and the workers are unmodified ones of 5.x or 6.x; each change of ours is one script.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use punctual_domain::clock::Clock;
use punctual_domain::hand_over::Queue;
use punctual_domain::id::NodeId;
use redis::aio::MultiplexedConnection;
use redis::streams::{StreamId, StreamReadReply};
use redis::{RedisResult, Value, from_redis_value};
use tokio::time::Instant;

use super::job::Job;
use crate::redis::{PATIENCE, Redis};

const HAND_OVER: &str = concat!(include_str!("kinds.lua"), include_str!("hand_over.lua"));
const REMOVE: &str = concat!(include_str!("kinds.lua"), include_str!("remove.lua"));

/// How many events of a queue are read at a time.
const EVENTS: usize = 500;
/// How long a reader waits for events at a time.
pub(super) const WAIT: Duration = Duration::from_secs(1);
/// The longest word on its progress that is kept of a job, in bytes.
const MOST_PROGRESS: usize = 4 * 1024;
/// How long a key stays that shows whether Redis has lost what it held, unless its node is at work.
const WITNESS_SECONDS: u32 = 600;

/// How long it is believed how far Redis's clock is from ours.
const CLOCK_BELIEVED: Duration = Duration::from_secs(60);

/// The queues.
#[derive(Clone)]
pub(crate) struct Queues {
    redis: Redis,
    clock: Arc<dyn Clock>,
    /// What Redis's clock said last, and when.
    its_clock: Arc<Mutex<Option<(i64, Instant)>>>,
}

/// What became of a job that was handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// It is new.
    Made,
    /// It was there before, whatever its state.
    WasThere,
}

/// What became of a job that was to be removed; of several jobs, the last of these counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Removed {
    /// It has ended, or is not there.
    Over,
    /// It waited, and is gone.
    Now,
    /// A worker has it.
    IsRunning,
}

/// What the queue knows of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// How many tries have failed, the one aside that ended it. A try that a worker put off, or that got lost, is none of them.
    pub(super) failures: u32,
    /// Why the last try failed that did.
    pub(super) error: Option<String>,
    /// Whether a worker has it.
    pub(super) is_running: bool,
    pub(super) end: Option<JobEnd>,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum JobEnd {
    /// Well, with what its worker returned, as JSON.
    Completed(Option<String>),
    /// Badly.
    Failed(String),
}

/// What an event tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Told {
    /// The job ended.
    Ended(JobEnd),
    /// Its worker does not have it any more: a try failed, was put off, or got lost.
    WentBack,
    /// A try began.
    Began,
    /// Its worker says how far it has come, in JSON.
    Progress(String),
}

/// An event of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JobEvent {
    pub(super) job_id: String,
    /// When, in milliseconds of Redis's clock.
    pub(super) at: u64,
    pub(super) told: Told,
}

/// What was read of a queue's events: those that matter, and the place of the last of all.
pub(super) struct Read {
    pub(super) events: Vec<JobEvent>,
    pub(super) position: String,
    pub(super) is_full: bool,
}

impl Queues {
    pub(crate) fn new(redis: Redis, clock: Arc<dyn Clock>) -> Self {
        Self { redis, clock, its_clock: Arc::default() }
    }

    /// Makes a job, unless one of its id is there. What we have stopped waiting for is not made any more, however late Redis
    /// comes to it.
    pub(crate) async fn hand_over(&self, queue: &Queue, job: &Job) -> RedisResult<Accepted> {
        let keys = ["meta", "wait", "paused", "active", "marker", "events", &job.id].map(|part| key(queue, part));
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        let now = self.clock.now().timestamp_millis().to_string();
        let until = self.its_time().await?.saturating_add(PATIENCE.as_millis() as i64).to_string();
        let arguments = [&job.id, &job.name, &job.data, &job.options, &now, &until].map(String::as_str);
        let made = self.redis.run(HAND_OVER, &keys, &arguments).await;
        if !matches!(made, Ok(0 | 1)) {
            // Its clock was set, or it is another one now.
            *self.its_clock.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        match made? {
            1 => Ok(Accepted::Made),
            0 => Ok(Accepted::WasThere),
            _ => Err((redis::ErrorKind::Io, "it came too late").into()),
        }
    }

    /// What Redis's clock says, in milliseconds, or a little less.
    pub(super) async fn its_time(&self) -> RedisResult<i64> {
        let known = *self.its_clock.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((said, at)) = known.filter(|(_, at)| at.elapsed() < CLOCK_BELIEVED) {
            return Ok(said.saturating_add(at.elapsed().as_millis() as i64));
        }
        let (seconds, micros): (i64, i64) = self.redis.ask(&redis::cmd("TIME")).await?;
        let said = seconds * 1_000 + micros / 1_000;
        *self.its_clock.lock().unwrap_or_else(PoisonError::into_inner) = Some((said, Instant::now()));
        Ok(said)
    }

    /// Removes a job that waits.
    pub(super) async fn remove(&self, queue: &Queue, job_id: &str) -> RedisResult<Removed> {
        let keys = ["wait", "paused", "prioritized", "delayed", "completed", "failed", "events", job_id];
        let keys = keys.map(|part| key(queue, part));
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        Ok(match self.redis.run(REMOVE, &keys, &[job_id]).await? {
            1 => Removed::Now,
            2 => Removed::IsRunning,
            _ => Removed::Over,
        })
    }

    /// What the queue knows of these jobs, in their order; `None` for one that is not there.
    pub(super) async fn look_up(&self, queue: &Queue, jobs: &[&str]) -> RedisResult<Vec<Option<Found>>> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let (completed, failed) = (key(queue, "completed"), key(queue, "failed"));
        let mut pipeline = redis::pipe();
        for job in jobs {
            let fields = &["name", "atm", "failedReason", "returnvalue"];
            pipeline.cmd("HMGET").arg(key(queue, job)).arg(fields);
            pipeline.cmd("EXISTS").arg(key(queue, &format!("{job}:lock")));
            pipeline.cmd("ZSCORE").arg(&completed).arg(*job);
            pipeline.cmd("ZSCORE").arg(&failed).arg(*job);
        }
        type Row = (Option<String>, Option<u32>, Option<String>, Option<String>);
        let answers: Vec<Value> = self.redis.ask_all(&pipeline).await?;
        let mut answers = answers.into_iter();
        let mut found = Vec::with_capacity(jobs.len());
        while let (Some(row), Some(locked), Some(completed), Some(failed)) =
            (answers.next(), answers.next(), answers.next(), answers.next())
        {
            let (name, made, error, returned): Row = from_redis_value(row)?;
            let end = match (completed, failed) {
                (Value::Nil, Value::Nil) => None,
                (Value::Nil, _) => Some(JobEnd::Failed(error.clone().unwrap_or_default())),
                _ => Some(JobEnd::Completed(returned)),
            };
            // The try that ended it is counted too.
            let failures = made.unwrap_or(0).saturating_sub(u32::from(end.is_some()));
            let is_running = from_redis_value(locked)?;
            found.push(name.map(|_| Found { failures, error, is_running, end }));
        }
        Ok(found)
    }

    /// Why the tries of a job failed, as far as that is known, the latest last.
    pub(super) async fn errors(&self, queue: &Queue, job_id: &str) -> RedisResult<Vec<String>> {
        let traces: Option<String> =
            self.redis.ask(redis::cmd("HGET").arg(key(queue, job_id)).arg("stacktrace")).await?;
        let traces: Vec<String> = traces.and_then(|traces| serde_json::from_str(&traces).ok()).unwrap_or_default();
        Ok(traces.iter().map(|trace| message(trace)).collect())
    }

    /// The data of a job, as JSON.
    pub(super) async fn data(&self, queue: &Queue, job_id: &str) -> RedisResult<Option<String>> {
        self.redis.ask(redis::cmd("HGET").arg(key(queue, job_id)).arg("data")).await
    }

    /// Whether Redis has lost what it held since this node last asked.
    pub(super) async fn has_forgotten(&self, node: NodeId) -> RedisResult<bool> {
        let witness = format!("punctual:witness:{node}");
        let is_there: bool = self.redis.ask(redis::cmd("EXPIRE").arg(&witness).arg(WITNESS_SECONDS)).await?;
        if !is_there {
            let now = self.clock.now().timestamp_millis();
            self.redis.ask::<()>(redis::cmd("SET").arg(witness).arg(now).arg("EX").arg(WITNESS_SECONDS)).await?;
        }
        Ok(!is_there)
    }

    /// Whether a place can be read on from: events were removed behind it, or it is beyond the end.
    pub(super) async fn has_gap(&self, queue: &Queue, position: &str) -> RedisResult<bool> {
        let events = key(queue, "events");
        let mut ends = redis::pipe();
        ends.cmd("XRANGE").arg(&events).arg("-").arg("+").arg("COUNT").arg(1);
        ends.cmd("XREVRANGE").arg(&events).arg("+").arg("-").arg("COUNT").arg(1);
        type Entries = Vec<(String, Vec<String>)>;
        let (first, last): (Entries, Entries) = self.redis.ask_all(&ends).await?;
        let place = |entries: &Entries| entries.first().and_then(|(id, _)| place(id));
        let (Some(first), Some(last), Some(known)) = (place(&first), place(&last), self::place(position)) else {
            return Ok(false);
        };
        Ok(first > known || last < known)
    }

    /// A connection to read events by.
    pub(super) async fn reader(&self) -> RedisResult<MultiplexedConnection> {
        self.redis.waiting(WAIT).await
    }

    /// Waits for events behind these places of queues, for a second.
    pub(super) async fn read(
        connection: &mut MultiplexedConnection,
        places: &[(Queue, String)],
    ) -> RedisResult<HashMap<Queue, Read>> {
        let keys: Vec<_> = places.iter().map(|(queue, _)| key(queue, "events")).collect();
        let after: Vec<_> = places.iter().map(|(_, place)| if place.is_empty() { "0-0" } else { place }).collect();
        let mut command = redis::cmd("XREAD");
        command.arg("COUNT").arg(EVENTS).arg("BLOCK").arg(WAIT.as_millis() as u64);
        command.arg("STREAMS").arg(&keys).arg(after);
        let reply: Option<StreamReadReply> = command.query_async(connection).await?;
        let mut read = HashMap::new();
        for stream in reply.into_iter().flat_map(|reply| reply.keys) {
            let Some(at) = keys.iter().position(|key| *key == stream.key) else { continue };
            let Some(last) = stream.ids.last() else { continue };
            let (position, is_full) = (last.id.clone(), stream.ids.len() >= EVENTS);
            read.insert(places[at].0.clone(), Read { events: events(&stream.ids), position, is_full });
        }
        Ok(read)
    }

    /// The next events behind a place, if there are any now.
    pub(super) async fn read_now(&self, queue: &Queue, position: &str) -> RedisResult<Option<Read>> {
        let after = if position.is_empty() { "0-0" } else { position };
        let mut command = redis::cmd("XREAD");
        command.arg("COUNT").arg(EVENTS).arg("STREAMS").arg(key(queue, "events")).arg(after);
        let reply: Option<StreamReadReply> = self.redis.ask(&command).await?;
        let ids = reply.into_iter().flat_map(|reply| reply.keys).flat_map(|stream| stream.ids).collect::<Vec<_>>();
        let Some(last) = ids.last() else { return Ok(None) };
        Ok(Some(Read { events: events(&ids), position: last.id.clone(), is_full: ids.len() >= EVENTS }))
    }
}

/// What entries of a stream tell about jobs of tasks and messages.
fn events(entries: &[StreamId]) -> Vec<JobEvent> {
    let of_entry = |entry: &StreamId| {
        let (job_id, told) = event(&|field| entry.get::<String>(field))?;
        Some(JobEvent { job_id, at: place(&entry.id)?.0, told })
    };
    entries.iter().filter_map(of_entry).collect()
}

/// What an error says, of which BullMQ keeps the trace: `TypeError: no\n    at …` says `no`.
fn message(trace: &str) -> String {
    let head = trace.find("\n    at ").map_or(trace, |end| &trace[..end]);
    let is_name = |name: &str| name.ends_with("Error") && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match head.split_once(": ") {
        Some((name, said)) if is_name(name) => said.to_owned(),
        None if is_name(head) => String::new(),
        _ => head.to_owned(),
    }
}

fn key(queue: &Queue, part: &str) -> String {
    format!("{}:{}:{part}", queue.prefix, queue.name)
}

/// A place in a stream.
fn place(id: &str) -> Option<(u64, u64)> {
    let (millis, sequence) = id.split_once('-')?;
    Some((millis.parse().ok()?, sequence.parse().ok()?))
}

/// What an event with these fields tells about the job of a task or a message, if anything.
fn event(field: &dyn Fn(&str) -> Option<String>) -> Option<(String, Told)> {
    let job_id = field("jobId")?;
    let told = match field("event")?.as_str() {
        "completed" => Told::Ended(JobEnd::Completed(field("returnvalue"))),
        "failed" => Told::Ended(JobEnd::Failed(field("failedReason").unwrap_or_default())),
        "delayed" => Told::WentBack,
        // A new one, and one whose wait is over, were with nobody.
        "waiting" if field("prev").as_deref() == Some("active") => Told::WentBack,
        "active" => Told::Began,
        "progress" => Told::Progress(field("data").filter(|said| said.len() <= MOST_PROGRESS && !said.contains('\0'))?),
        _ => return None,
    };
    // Of messages, and of whatever others have there, the end is all that matters.
    (Job::is_of_task(&job_id) || matches!(told, Told::Ended(_))).then_some((job_id, told))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_tell_what_becomes_of_the_jobs_of_tasks() {
        let completed = |value: &str| Some(Told::Ended(JobEnd::Completed(Some(value.into()))));
        let failed = |why: &str| Some(Told::Ended(JobEnd::Failed(why.into())));
        for (fields, told) in [
            ("event=completed jobId=TASK returnvalue=5 prev=active", completed("5")),
            ("event=failed jobId=FIRE failedReason=no prev=active", failed("no")),
            ("event=failed jobId=FIRE", failed("")),
            ("event=delayed jobId=TASK delay=5", Some(Told::WentBack)),
            ("event=waiting jobId=TASK prev=active", Some(Told::WentBack)),
            ("event=waiting jobId=TASK prev=delayed", None),
            ("event=waiting jobId=TASK", None),
            ("event=active jobId=TASK prev=waiting", Some(Told::Began)),
            ("event=added jobId=TASK name=x", None),
            ("event=progress jobId=TASK data=5", Some(Told::Progress("5".into()))),
            ("event=progress jobId=welcome__17 data=5", None),
            ("event=completed jobId=welcome__17 returnvalue=5", completed("5")),
            ("event=active jobId=welcome__17 prev=waiting", None),
            ("event=completed", None),
            ("", None),
        ] {
            let field = |name: &str| {
                let of = |pair: &str| pair.strip_prefix(name)?.strip_prefix('=').map(str::to_owned);
                let fields = fields.replace("TASK", "t_00000000-0000-0000-0000-000000000001");
                let fields = fields.replace("FIRE", "f_00000000-0000-0000-0000-000000000002_1794830400123");
                fields.split(' ').find_map(of)
            };
            assert_eq!(event(&field).map(|(_, told)| told), told, "{fields}");
        }
    }

    #[test]
    fn a_trace_says_what_the_error_said() {
        for (trace, said) in [
            ("Error: no 1\n    at perform (x.js:1:2)\n    at y", "no 1"),
            ("TypeError: x is not: a function\n    at y", "x is not: a function"),
            ("Error: two\nlines\n    at y", "two\nlines"),
            ("Error\n    at y", ""),
            ("failed: badly", "failed: badly"),
            ("", ""),
        ] {
            assert_eq!(message(trace), said);
        }
    }
}
