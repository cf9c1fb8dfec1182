//! Why a task has not run.

use chrono::{DateTime, Utc};

use super::{Cause, NodeFacts, Reason, from_now, instant};
use crate::hand_over::HandOver;
use crate::store::Standing;
use crate::task::{Task, TaskStatus};
use crate::topic::{Route, TopicDefinition};

/// How much of what a worker said is told, in characters.
const EXCERPT: usize = 200;

/// What is known about a task.
#[derive(Debug, Clone)]
pub struct TaskFacts<'a> {
    /// The task.
    pub task: &'a Task,
    /// What stands before it.
    pub standing: Standing,
    /// The definition of its topic, if there is one.
    pub definition: Option<&'a TopicDefinition>,
    /// The queue that has it, if one does.
    pub hand_over: Option<&'a HandOver>,
    /// The nodes that were heard of lately.
    pub nodes: &'a [NodeFacts],
    /// The store's present instant.
    pub now: DateTime<Utc>,
}

/// Why a task is where it is, the reason that counts most first.
pub fn why_task(facts: &TaskFacts<'_>) -> Vec<Reason> {
    match facts.task.status {
        TaskStatus::Completed => [vec![ended(facts.task)], unserved(facts)].concat(),
        TaskStatus::Failed | TaskStatus::Cancelled => vec![ended(facts.task)],
        TaskStatus::Running => vec![running(facts)],
        TaskStatus::Pending => [pending(facts), unserved(facts)].concat(),
    }
}

/// Whether nobody does anything for it, now or when it completed: its topic may be mistyped.
fn unserved(facts: &TaskFacts<'_>) -> Vec<Reason> {
    let TaskFacts { task, definition, nodes, .. } = facts;
    let topic = &task.topic;
    if definition.is_some() || nodes.iter().any(|node| node.has_handler(topic)) {
        return Vec::new();
    }
    let announced = match task.status {
        TaskStatus::Completed => "it was only announced when it was due, if nobody served it then either",
        _ => "it will only be announced when it is due, and completed",
    };
    let message = format!(
        "nobody serves the topic {topic}: it has no definition and no handler, so {announced}; is the topic spelled right?"
    );
    vec![Reason::new(Cause::NoServer, message)]
}

fn ended(task: &Task) -> Reason {
    let when = task.completed_at.map(instant).unwrap_or_default();
    let attempts = task.attempt;
    let message = match (task.status, &task.error) {
        (TaskStatus::Completed, _) => format!("it completed at {when}, in attempt {attempts}"),
        (TaskStatus::Cancelled, _) if attempts == 0 => format!("it was cancelled at {when}, before any attempt"),
        (TaskStatus::Cancelled, _) => format!("it was cancelled at {when}, in attempt {attempts}"),
        (_, error) => {
            let error = error.as_deref().unwrap_or("no reason given");
            format!(
                "it failed for good at {when}, after {attempts} of {} attempts: {error}; `punctual task retry {}` makes it anew",
                task.retry.attempts, task.id
            )
        }
    };
    Reason::new(Cause::Ended, message)
}

fn running(facts: &TaskFacts<'_>) -> Reason {
    let TaskFacts { task, now, .. } = facts;
    let began = task.started_at.map(|at| from_now(at, *now)).unwrap_or_default();
    let Some(lease) = task.lease else {
        return Reason::new(Cause::Running, format!("attempt {} runs since {began}", task.attempt));
    };
    let owner = match facts.nodes.iter().any(|node| node.id == lease.owner) {
        true => format!("node {}", lease.owner),
        false => format!("{} (no node that was heard of lately: a pull worker's, or one that died)", lease.owner),
    };
    match lease.expires_at {
        None => Reason::new(Cause::Running, handed_over(task, facts.hand_over, *now)),
        Some(at) if at <= *now => Reason::new(
            Cause::LeaseExpired,
            format!(
                "attempt {} began at {began}, and the lease of {owner} ran out at {}: it is freed within seconds if any node \
                 is at work",
                task.attempt,
                from_now(at, *now)
            ),
        ),
        Some(at) => {
            let before = task.error.as_deref().map(|error| format!("; what went wrong before: {error}"));
            Reason::new(
                Cause::Running,
                format!(
                    "attempt {} runs since {began}, under a lease of {owner} until {}{}",
                    task.attempt,
                    from_now(at, *now),
                    before.unwrap_or_default()
                ),
            )
        }
    }
}

fn handed_over(task: &Task, hand_over: Option<&HandOver>, now: DateTime<Utc>) -> String {
    let attempt = task.attempt;
    let Some(hand_over) = hand_over else { return format!("attempt {attempt} was handed to a queue") };
    let HandOver { queue, job_id, handed_over_at, ends_at, progress, task: handed, .. } = hand_over;
    let attempts = task.retry.attempts;
    let stands = match handed.as_ref().is_some_and(|handed| handed.rests) {
        true => format!("the worker's attempt {attempt} of {attempts} has failed, the next has not begun"),
        false => format!("the worker's attempt {attempt} of {attempts} has not ended"),
    };
    let progress = progress.as_deref().map(|said| format!(" (its progress is {})", excerpt(said))).unwrap_or_default();
    format!(
        "it was handed to the queue {} of BullMQ at {}, as the job {job_id}; {stands}{progress}, \
         and it fails if the job has not ended at {}",
        queue.name,
        from_now(*handed_over_at, now),
        from_now(*ends_at, now),
    )
}

/// The beginning of a text that may be long.
fn excerpt(said: &str) -> String {
    match said.char_indices().nth(EXCERPT) {
        Some((end, _)) => format!("{}…", &said[..end]),
        None => said.to_owned(),
    }
}

fn pending(facts: &TaskFacts<'_>) -> Vec<Reason> {
    let TaskFacts { task, standing, now, .. } = facts;
    let mut reasons = Vec::new();
    if task.run_at > *now {
        let when = from_now(task.run_at, *now);
        reasons.push(match (&task.error, task.attempt) {
            (_, 0) => Reason::new(Cause::NotDue, format!("it is not due before {when}")),
            (Some(error), attempt) if task.snoozes > 0 => Reason::new(
                Cause::RetryWait,
                format!("attempt {attempt} was put off or failed ({error}); the next one is due at {when}"),
            ),
            (Some(error), attempt) => Reason::new(
                Cause::RetryWait,
                format!("attempt {attempt} of {} failed ({error}); the next one is due at {when}", task.retry.attempts),
            ),
            (None, attempt) => Reason::new(
                Cause::RetryWait,
                format!("attempt {attempt} asked to be called later; the next one is due at {when}"),
            ),
        });
    }
    reasons.extend(server(facts));
    if let Some(first) = standing.serial {
        let key = task.serial_key.as_deref().unwrap_or_default();
        let message =
            format!("the task {first} of the same serial key {key:?} runs or comes first; one runs at a time");
        reasons.push(Reason::new(Cause::SerialKey, message));
    }
    if task.run_at > *now {
        return reasons;
    }
    reasons.extend(limits(facts));
    if reasons.is_empty() {
        let message = "nothing holds it back: it is due since ".to_owned() + &from_now(task.run_at, *now);
        reasons.push(Reason::new(Cause::Due, message + "; it should be claimed in a moment"));
    }
    reasons
}

/// Whether anybody could run it.
fn server(facts: &TaskFacts<'_>) -> Vec<Reason> {
    let TaskFacts { task, definition, nodes, .. } = facts;
    let topic = &task.topic;
    let mut reasons = Vec::new();
    if let Some(definition) = definition.filter(|definition| definition.paused) {
        let name = definition.name.as_str();
        let message = format!("the topic {name} is paused; resume it by `punctual topic resume '{name}'`");
        reasons.push(Reason::new(Cause::TopicPaused, message));
    }
    let route = definition.map(|definition| &definition.route);
    if let Some(Route::Pull) = route {
        let message = format!("tasks of the topic {topic} wait until a worker claims them by POST /api/v1/claims");
        reasons.push(Reason::new(Cause::WaitsForClaim, message));
        return reasons;
    }
    let able: Vec<_> = match route {
        Some(Route::Handler) => nodes.iter().filter(|node| node.has_handler(topic)).collect(),
        Some(Route::Bullmq { .. }) => nodes.iter().filter(|node| node.has_redis).collect(),
        _ => nodes.iter().collect(),
    };
    if nodes.is_empty() {
        reasons.push(Reason::new(Cause::NoNode, "no node was heard of lately: start one by `punctual serve`"));
    } else if able.is_empty() {
        let message = match route {
            Some(Route::Bullmq { .. }) => {
                "BullMQ needs Redis, and no node has it (REDIS_URL): the task waits for a node that does".to_owned()
            }
            _ => format!(
                "no node has a handler for the topic {topic}: start one with the plugin that has it (PUNCTUAL_PLUGINS), or \
                 change the topic's route"
            ),
        };
        reasons.push(Reason::new(Cause::NoServer, message));
    } else if able.iter().all(|node| node.is_paused) {
        let message = "every node that could run it is paused; resume one by `punctual resume`";
        reasons.push(Reason::new(Cause::NodePaused, message));
    }
    reasons
}

/// What is used up, or comes first.
fn limits(facts: &TaskFacts<'_>) -> Vec<Reason> {
    let TaskFacts { task, standing, definition, nodes, .. } = facts;
    let mut reasons = Vec::new();
    let concurrency = definition.map_or(TopicDefinition::DEFAULT_CONCURRENCY, |definition| definition.concurrency);
    let slots = u64::from(concurrency) * nodes.len().max(1) as u64;
    if standing.running >= slots {
        let message = format!(
            "the topic's limit is used up: {} attempts run, and its concurrency is {concurrency} on each node",
            standing.running
        );
        reasons.push(Reason::new(Cause::Limit, message));
    }
    if let Some(rate) = definition.and_then(|definition| definition.rate_per_second) {
        let message = format!("the topic starts at most {rate} attempts per second on each node");
        reasons.push(Reason::new(Cause::Rate, message));
    }
    if task.lost > 0 {
        let message =
            format!("it lost {} attempts before (a node died); such tasks run one at a time per node", task.lost);
        reasons.push(Reason::new(Cause::LostBefore, message));
    }
    if standing.ahead > 0 {
        let count = match standing.ahead {
            Standing::MOST => format!("{} or more", Standing::MOST),
            ahead => ahead.to_string(),
        };
        let message = format!("{count} due tasks of its topic come before it, by priority and runAt");
        reasons.push(Reason::new(Cause::Ahead, message));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;
    use crate::id::{Epoch, NodeId, TaskId};
    use crate::lease::Lease;
    use crate::task::NewTask;

    fn now() -> DateTime<Utc> {
        "2026-11-16T12:00:00Z".parse().unwrap()
    }

    fn due_task() -> Task {
        let created_at = now() - TimeDelta::seconds(90);
        NewTask::new("mail.send".parse().unwrap()).into_task(created_at, created_at)
    }

    fn node(handles: &[&str]) -> NodeFacts {
        let handles = handles.iter().map(|name| name.parse().unwrap()).collect();
        NodeFacts { id: NodeId::generate(), handles, has_redis: false, is_paused: false }
    }

    /// The causes, the first one first.
    fn causes(task: &Task, standing: Standing, definition: Option<TopicDefinition>, nodes: &[NodeFacts]) -> Vec<Cause> {
        let facts = TaskFacts { task, standing, definition: definition.as_ref(), hand_over: None, nodes, now: now() };
        let reasons = why_task(&facts);
        assert!(reasons.iter().all(|reason| !reason.message.is_empty()));
        reasons.into_iter().map(|reason| reason.code).collect()
    }

    fn definition(route: Route, change: impl FnOnce(&mut TopicDefinition)) -> Option<TopicDefinition> {
        let mut definition = TopicDefinition::new("mail.*".parse().unwrap(), route);
        change(&mut definition);
        Some(definition)
    }

    #[test]
    fn a_pending_task_waits_for_every_reason_that_holds() {
        let (plain, handler) = (node(&[]), node(&["mail.send"]));
        let paused = NodeFacts { is_paused: true, ..handler.clone() };
        let with_redis = NodeFacts { has_redis: true, ..plain.clone() };
        let bullmq = || Route::Bullmq { queue: "mail".into(), prefix: "bull".into() };
        let none = Standing::default;
        let with = |change: fn(&mut Task)| {
            let mut task = due_task();
            change(&mut task);
            task
        };
        let later = |task: &mut Task| task.run_at = now() + TimeDelta::hours(1);
        let serial = Standing { serial: Some(TaskId::generate()), ..none() };
        for (what, task, standing, definition, nodes, expected) in [
            ("nothing", due_task(), none(), definition(Route::Event, |_| {}), vec![plain.clone()], vec![Cause::Due]),
            ("nobody", due_task(), none(), None, vec![plain.clone()], vec![Cause::Due, Cause::NoServer]),
            ("only a handler", due_task(), none(), None, vec![handler.clone()], vec![Cause::Due]),
            ("not due", with(later), none(), None, vec![plain.clone()], vec![Cause::NotDue, Cause::NoServer]),
            (
                "retry",
                with(|task| {
                    task.run_at = now() + TimeDelta::seconds(5);
                    task.attempt = 1;
                    task.error = Some("no".into());
                }),
                none(),
                None,
                vec![plain.clone()],
                vec![Cause::RetryWait, Cause::NoServer],
            ),
            ("no node", due_task(), none(), definition(Route::Event, |_| {}), vec![], vec![Cause::NoNode]),
            (
                "no server",
                due_task(),
                none(),
                definition(Route::Handler, |_| {}),
                vec![plain.clone()],
                vec![Cause::NoServer],
            ),
            (
                "a server",
                due_task(),
                none(),
                definition(Route::Handler, |_| {}),
                vec![plain.clone(), handler.clone()],
                vec![Cause::Due],
            ),
            (
                "a paused server",
                due_task(),
                none(),
                definition(Route::Handler, |_| {}),
                vec![plain.clone(), paused],
                vec![Cause::NodePaused],
            ),
            (
                "a paused topic without a server",
                due_task(),
                none(),
                definition(Route::Handler, |definition| definition.paused = true),
                vec![plain.clone()],
                vec![Cause::TopicPaused, Cause::NoServer],
            ),
            (
                "pull",
                due_task(),
                none(),
                definition(Route::Pull, |_| {}),
                vec![plain.clone()],
                vec![Cause::WaitsForClaim],
            ),
            ("no Redis", due_task(), none(), definition(bullmq(), |_| {}), vec![plain.clone()], vec![Cause::NoServer]),
            (
                "no Redis here",
                due_task(),
                none(),
                definition(bullmq(), |_| {}),
                vec![plain.clone(), with_redis],
                vec![Cause::Due],
            ),
            ("serial", due_task(), serial.clone(), None, vec![handler.clone()], vec![Cause::SerialKey]),
            ("serial, later", with(later), serial, None, vec![handler.clone()], vec![Cause::NotDue, Cause::SerialKey]),
            (
                "limits",
                with(|task| task.lost = 1),
                Standing { ahead: 7, running: 4, serial: None },
                definition(Route::Event, |definition| {
                    definition.concurrency = 2;
                    definition.rate_per_second = Some(1.0);
                }),
                vec![plain.clone(), plain.clone()],
                vec![Cause::Limit, Cause::Rate, Cause::LostBefore, Cause::Ahead],
            ),
            (
                "below the limit",
                due_task(),
                Standing { ahead: 0, running: 3, serial: None },
                definition(Route::Event, |definition| definition.concurrency = 2),
                vec![plain.clone(), plain.clone()],
                vec![Cause::Due],
            ),
        ] {
            assert_eq!(causes(&task, standing, definition, &nodes), expected, "{what}");
        }
    }

    #[test]
    fn a_running_task_says_who_holds_it_until_when() {
        let node = node(&[]);
        let said = |owner, expires_in: Option<i64>| {
            let mut task = due_task();
            let expires_at = expires_in.map(|seconds| now() + TimeDelta::seconds(seconds));
            task.status = TaskStatus::Running;
            task.started_at = Some(now() - TimeDelta::seconds(10));
            task.lease = Some(Lease { owner, epoch: Epoch(1), expires_at });
            let nodes = [node.clone()];
            let facts = TaskFacts {
                task: &task,
                standing: Standing::default(),
                definition: None,
                hand_over: None,
                nodes: &nodes,
                now: now(),
            };
            why_task(&facts).remove(0)
        };
        let held = said(node.id, Some(20));
        assert_eq!(held.code, Cause::Running);
        assert!(held.message.contains(&format!("a lease of node {} until 2026-11-16T12:00:20Z (in 20 s)", node.id)));
        assert_eq!(said(node.id, Some(-5)).code, Cause::LeaseExpired);
        assert!(said(NodeId::generate(), Some(20)).message.contains("no node that was heard of"));
        assert!(said(node.id, None).message.contains("handed to a queue"));
    }

    #[test]
    fn an_ended_task_says_how() {
        for (status, error, part) in [
            (TaskStatus::Completed, None, "it completed at 2026-11-16T12:00:00Z, in attempt 2"),
            (TaskStatus::Cancelled, None, "it was cancelled"),
            (TaskStatus::Failed, Some("no such mailbox"), "after 2 of 1 attempts: no such mailbox"),
        ] {
            let mut task = due_task();
            (task.status, task.attempt, task.completed_at) = (status, 2, Some(now()));
            task.error = error.map(str::to_owned);
            let facts = TaskFacts {
                task: &task,
                standing: Standing::default(),
                definition: None,
                hand_over: None,
                nodes: &[],
                now: now(),
            };
            let reason = why_task(&facts).remove(0);
            assert!(reason.code == Cause::Ended && reason.message.contains(part), "{}", reason.message);
        }
    }
}
