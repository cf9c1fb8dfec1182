//! BullMQ's queues in Redis: jobs made, looked up and removed, and the events that tell what became of them.
//!
//! What stands in Redis is BullMQ's, and the workers are unmodified ones of 5.x or 6.x; each change of ours is one script.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use punctual_domain::clock::Clock;
use punctual_domain::hand_over::Queue;
use punctual_domain::id::NodeId;
use redis::aio::MultiplexedConnection;
use redis::streams::StreamReadReply;
use redis::{RedisResult, Value, from_redis_value};

use super::job::Job;
use crate::redis::Redis;

const HAND_OVER: &str = include_str!("hand_over.lua");
const REMOVE: &str = include_str!("remove.lua");

/// How many events of a queue are read at a time.
const EVENTS: usize = 500;
/// How long a reader waits for events at a time.
pub(super) const WAIT: Duration = Duration::from_secs(1);
/// The longest word on its progress that is kept of a job, in bytes.
const MOST_PROGRESS: usize = 4 * 1024;
/// How long a key stays that shows whether Redis has lost what it held, unless its node is at work.
const WITNESS_SECONDS: u32 = 600;

/// The queues.
#[derive(Clone)]
pub(crate) struct Queues {
    redis: Redis,
    clock: Arc<dyn Clock>,
}

/// What became of a job that was handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// It is new.
    Made,
    /// It was there before, whatever its state.
    WasThere,
}

/// What the queue knows of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// How many tries have begun.
    pub(super) started: u32,
    /// Why the last try failed that did.
    pub(super) error: Option<String>,
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
    /// It waits for another try.
    Retried,
    /// A try began.
    Began,
    /// Its worker says how far it has come, in JSON.
    Progress(String),
}

/// An event of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JobEvent {
    pub(super) job_id: String,
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
        Self { redis, clock }
    }

    /// Makes a job, unless one of its id is there.
    pub(crate) async fn hand_over(&self, queue: &Queue, job: &Job) -> RedisResult<Accepted> {
        let keys = ["meta", "wait", "paused", "active", "marker", "events", &job.id].map(|part| key(queue, part));
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        let now = self.clock.now().timestamp_millis().to_string();
        let made = self.redis.run(HAND_OVER, &keys, &[&job.id, &job.name, &job.data, &job.options, &now]).await?;
        Ok(if made == 1 { Accepted::Made } else { Accepted::WasThere })
    }

    /// Removes a job that waits; whether it did.
    pub(super) async fn remove(&self, queue: &Queue, job_id: &str) -> RedisResult<bool> {
        let keys = ["wait", "paused", "prioritized", "delayed", "events", job_id].map(|part| key(queue, part));
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        Ok(self.redis.run(REMOVE, &keys, &[job_id]).await? == 1)
    }

    /// What the queue knows of these jobs, in their order; `None` for one that is not there.
    pub(super) async fn look_up(&self, queue: &Queue, jobs: &[&str]) -> RedisResult<Vec<Option<Found>>> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let (completed, failed) = (key(queue, "completed"), key(queue, "failed"));
        let mut pipeline = redis::pipe();
        for job in jobs {
            pipeline.cmd("HMGET").arg(key(queue, job)).arg(&["name", "ats", "failedReason", "returnvalue"]);
            pipeline.cmd("ZSCORE").arg(&completed).arg(*job);
            pipeline.cmd("ZSCORE").arg(&failed).arg(*job);
        }
        type Row = (Option<String>, Option<u32>, Option<String>, Option<String>);
        let answers: Vec<Value> = self.redis.ask_all(&pipeline).await?;
        let mut answers = answers.into_iter();
        let mut found = Vec::with_capacity(jobs.len());
        while let (Some(row), Some(completed), Some(failed)) = (answers.next(), answers.next(), answers.next()) {
            let (name, started, error, returned): Row = from_redis_value(row)?;
            let end = match (completed, failed) {
                (Value::Nil, Value::Nil) => None,
                (Value::Nil, _) => Some(JobEnd::Failed(error.clone().unwrap_or_default())),
                _ => Some(JobEnd::Completed(returned)),
            };
            found.push(name.map(|_| Found { started: started.unwrap_or(0), error, end }));
        }
        Ok(found)
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
            let events = stream.ids.iter().filter_map(|entry| event(&|field| entry.get::<String>(field))).collect();
            read.insert(places[at].0.clone(), Read { events, position, is_full });
        }
        Ok(read)
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
fn event(field: &dyn Fn(&str) -> Option<String>) -> Option<JobEvent> {
    let job_id = field("jobId")?;
    let told = match field("event")?.as_str() {
        "completed" => Told::Ended(JobEnd::Completed(field("returnvalue"))),
        "failed" => Told::Ended(JobEnd::Failed(field("failedReason").unwrap_or_default())),
        "delayed" => Told::Retried,
        // A job that is new has been nothing before.
        "waiting" if field("prev").is_some() => Told::Retried,
        "active" => Told::Began,
        "progress" => Told::Progress(field("data").filter(|said| said.len() <= MOST_PROGRESS && !said.contains('\0'))?),
        _ => return None,
    };
    // Of messages, and of whatever others have there, the end is all that matters.
    (Job::is_of_task(&job_id) || matches!(told, Told::Ended(_))).then_some(JobEvent { job_id, told })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_tell_what_becomes_of_the_jobs_of_tasks() {
        let completed = |value: &str| Some(Told::Ended(JobEnd::Completed(Some(value.into()))));
        let failed = |why: &str| Some(Told::Ended(JobEnd::Failed(why.into())));
        for (fields, told) in [
            ("event=completed jobId=t_1 returnvalue=5 prev=active", completed("5")),
            ("event=failed jobId=f_1 failedReason=no prev=active", failed("no")),
            ("event=failed jobId=f_1", failed("")),
            ("event=delayed jobId=t_1 delay=5", Some(Told::Retried)),
            ("event=waiting jobId=t_1 prev=delayed", Some(Told::Retried)),
            ("event=waiting jobId=t_1", None),
            ("event=active jobId=t_1 prev=waiting", Some(Told::Began)),
            ("event=added jobId=t_1 name=x", None),
            ("event=progress jobId=t_1 data=5", Some(Told::Progress("5".into()))),
            ("event=progress jobId=welcome__17 data=5", None),
            ("event=completed jobId=welcome__17 returnvalue=5", completed("5")),
            ("event=active jobId=welcome__17 prev=waiting", None),
            ("event=completed", None),
            ("", None),
        ] {
            let field = |name: &str| {
                let of = |pair: &str| pair.strip_prefix(name)?.strip_prefix('=').map(str::to_owned);
                fields.split(' ').find_map(of)
            };
            assert_eq!(event(&field).map(|event| event.told), told, "{fields}");
        }
    }
}
