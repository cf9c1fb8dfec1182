//! An event as streams send it: its name, its id, and one JSON object with the names that listeners know.

use std::collections::BTreeMap;

use axum::body::Bytes;
use punctual_domain::event::{Event, EventKind, MissedFire};
use punctual_domain::id::{ScheduleId, TaskId};
use punctual_domain::json::Json;
use punctual_domain::task::TaskStatus;
use serde::Serialize;

use super::instant::Instant;
use crate::feed::{Happening, What};

/// The frame of an event in a stream of server-sent events.
pub(crate) fn frame(happening: &Happening) -> Bytes {
    write(happening.name(), Some(&happening.id), &event_data(happening))
}

/// What there is to say about an event, as JSON.
pub(crate) fn event_data(happening: &Happening) -> String {
    let data = match &happening.what {
        What::Task(event) => serde_json::to_string(&EventView::new(&happening.id, event)),
        What::Missed(missed) => serde_json::to_string(&MissedView::new(&happening.id, missed)),
    };
    data.unwrap_or_else(|error| {
        tracing::error!(%error, "event not written");
        "null".to_owned()
    })
}

/// A frame. Payloads are as they were submitted: where they have several lines, so has the frame.
pub(crate) fn write(name: &str, id: Option<&str>, data: &str) -> Bytes {
    let mut frame = format!("event: {name}\n");
    if let Some(id) = id {
        frame.extend(["id: ", id, "\n"]);
    }
    for line in data.split(['\n', '\r']) {
        frame.extend(["data: ", line, "\n"]);
    }
    frame.push('\n');
    frame.into()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EventView<'a> {
    id: &'a str,
    name: &'a str,
    alias: String,
    scheduled_job_id: TaskId,
    schedule_id: Option<ScheduleId>,
    topic: &'a str,
    timezone: &'a str,
    user_payload: &'a Json,
    metadata: &'a BTreeMap<String, String>,
    scheduled_at: Instant,
    fired_at: Option<Instant>,
    attempt: u32,
    #[serde(flatten)]
    end: Option<EndView<'a>>,
}

/// An instant of a schedule that passed without a fire: there is no task.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MissedView<'a> {
    id: &'a str,
    name: &'a str,
    alias: String,
    scheduled_job_id: Option<TaskId>,
    schedule_id: ScheduleId,
    schedule_name: &'a str,
    topic: &'a str,
    scheduled_at: Instant,
    noted_at: Instant,
}

impl<'a> MissedView<'a> {
    fn new(id: &'a str, missed: &'a MissedFire) -> Self {
        Self {
            id,
            name: MissedFire::NAME,
            alias: alias(MissedFire::NAME, &missed.topic),
            scheduled_job_id: None,
            schedule_id: missed.schedule_id,
            schedule_name: &missed.name,
            topic: &missed.topic,
            scheduled_at: Instant(missed.scheduled_at),
            noted_at: Instant(missed.noted_at),
        }
    }
}

/// The name of an event for those who care for one topic only: `schedule.<topic>.arrived`.
fn alias(name: &str, topic: &str) -> String {
    name.replacen('.', &format!(".{topic}."), 1)
}

/// What there is to say about a task that ended.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EndView<'a> {
    status: TaskStatus,
    result: Option<&'a Json>,
    error: Option<&'a str>,
    completed_at: Instant,
}

impl<'a> EventView<'a> {
    fn new(id: &'a str, event: &'a Event) -> Self {
        let Event { kind, at, attempt, task } = event;
        let name = kind.name();
        let alias = alias(name, task.topic.as_str());
        let (fired_at, end) = match kind {
            EventKind::Arrived => (Some(*at), None),
            _ => {
                let (result, error) = (task.result.as_ref(), task.error.as_deref());
                (task.started_at, Some(EndView { status: task.status, result, error, completed_at: Instant(*at) }))
            }
        };
        Self {
            id,
            name,
            alias,
            scheduled_job_id: task.id,
            schedule_id: task.fire.map(|fire| fire.schedule_id),
            topic: task.topic.as_str(),
            timezone: &task.timezone,
            user_payload: &task.payload,
            metadata: &task.metadata,
            scheduled_at: Instant(task.fire.map_or(task.run_at, |fire| fire.scheduled_at)),
            fired_at: fired_at.map(Instant),
            attempt: *attempt,
            end,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_of_several_lines_stays_one_event() {
        let frame = write("task.completed", Some("1"), "{\n  \"a\": 1\r\n}");
        assert_eq!(&frame[..], b"event: task.completed\nid: 1\ndata: {\ndata:   \"a\": 1\ndata: \ndata: }\n\n");
        assert_eq!(&write("dropped", None, "{}")[..], b"event: dropped\ndata: {}\n\n");
    }
}
