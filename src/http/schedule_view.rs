//! A schedule as the API shows it: every field, defaults too, `null` where there is nothing.

use std::collections::BTreeMap;

use punctual_domain::id::ScheduleId;
use punctual_domain::json::Json;
use punctual_domain::retry::Backoff;
use punctual_domain::schedule::{MisfirePolicy, OverlapPolicy, Rhythm, Schedule};
use punctual_domain::time::{DstFold, DstGap};
use punctual_domain::topic::{Topic, TopicDefinition};
use serde::Serialize;

use super::cannot_be_shown;
use super::instant::Instant;
use super::problem::Problem;

/// One schedule.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ScheduleView<'a> {
    id: ScheduleId,
    name: &'a str,
    description: Option<&'a str>,
    cron_expression: Option<&'a str>,
    every_ms: Option<u64>,
    timezone: &'a str,
    topic: &'a str,
    payload: &'a Json,
    enabled: bool,
    max_retries: u32,
    retry: RetryView,
    timeout_seconds: u32,
    priority: i32,
    overlap_policy: OverlapPolicy,
    misfire_policy: MisfirePolicy,
    misfire_window_seconds: u32,
    jitter_seconds: u32,
    start_at: Option<Instant>,
    end_at: Option<Instant>,
    max_fires: Option<u64>,
    dst_gap: Option<DstGap>,
    dst_fold: Option<DstFold>,
    exclude_calendars: &'a [String],
    metadata: &'a BTreeMap<String, String>,
    client_request_id: Option<&'a str>,
    created_by: Option<&'a str>,
    last_fired_at: Option<Instant>,
    next_fire_at: Option<Instant>,
    pause_note: Option<&'a str>,
    paused_until: Option<Instant>,
    created_at: Instant,
    updated_at: Instant,
    version: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    warnings: Option<&'a [String]>,
}

/// How long its tasks wait between attempts.
#[derive(Serialize)]
struct RetryView {
    backoff: Backoff,
}

impl<'a> ScheduleView<'a> {
    /// A schedule, with the defaults that these definitions of topics give it.
    pub(crate) fn new(schedule: &'a Schedule, topics: &[TopicDefinition]) -> Self {
        let definition = &schedule.definition;
        let topic = TopicDefinition::for_topic(topics, &Topic::from_stored(definition.topic.as_str()));
        let retry = definition.retry(topic);
        let (cron_expression, every_ms) = match &definition.rhythm {
            Rhythm::Cron(expression) => (Some(expression.as_str()), None),
            Rhythm::Every(ms) => (None, Some(*ms)),
        };
        Self {
            id: schedule.id,
            name: &definition.name,
            description: definition.description.as_deref(),
            cron_expression,
            every_ms,
            timezone: &definition.timezone,
            topic: &definition.topic,
            payload: &definition.payload,
            enabled: schedule.enabled,
            max_retries: definition.max_retries.unwrap_or(retry.attempts),
            retry: RetryView { backoff: retry.backoff },
            timeout_seconds: definition.timeout(topic),
            priority: definition.priority,
            overlap_policy: definition.overlap_policy,
            misfire_policy: definition.misfire_policy,
            misfire_window_seconds: definition.misfire_window_seconds,
            jitter_seconds: definition.jitter_seconds,
            start_at: definition.start_at.map(Instant),
            end_at: definition.end_at.map(Instant),
            max_fires: definition.max_fires,
            dst_gap: definition.dst_gap,
            dst_fold: definition.dst_fold,
            exclude_calendars: &definition.exclude_calendars,
            metadata: &definition.metadata,
            client_request_id: schedule.client_request_id.as_deref(),
            created_by: definition.created_by.as_deref(),
            last_fired_at: schedule.last_fired_at.map(Instant),
            next_fire_at: schedule.next_fire_at.filter(|_| schedule.enabled).map(Instant),
            pause_note: schedule.pause_note.as_deref(),
            paused_until: schedule.paused_until.map(Instant),
            created_at: Instant(schedule.created_at),
            updated_at: Instant(schedule.updated_at),
            version: schedule.version,
            warnings: None,
        }
    }

    /// With what whoever wrote it should know.
    pub(crate) fn with_warnings(mut self, warnings: &'a [String]) -> Self {
        self.warnings = Some(warnings);
        self
    }
}

/// A schedule as its author would write it: what was said, and nothing that follows from it.
///
/// # Errors
/// When what is stored cannot be shown.
pub(crate) fn document(schedule: &Schedule) -> Result<String, Problem> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Document<'a> {
        name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<&'a str>,
        #[serde(flatten)]
        rhythm: &'a Rhythm,
        timezone: &'a str,
        topic: &'a str,
        enabled: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        max_retries: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        retry: Option<RetryView>,
        #[serde(skip_serializing_if = "Option::is_none")]
        timeout_seconds: Option<u32>,
        priority: i32,
        overlap_policy: OverlapPolicy,
        misfire_policy: MisfirePolicy,
        misfire_window_seconds: u32,
        jitter_seconds: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        start_at: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        end_at: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        max_fires: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        dst_gap: Option<DstGap>,
        #[serde(skip_serializing_if = "Option::is_none")]
        dst_fold: Option<DstFold>,
        exclude_calendars: &'a [String],
        metadata: &'a BTreeMap<String, String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        client_request_id: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        created_by: Option<&'a str>,
    }
    let definition = &schedule.definition;
    let exact = |at: chrono::DateTime<chrono::Utc>| at.to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
    let document = Document {
        name: &definition.name,
        description: definition.description.as_deref(),
        rhythm: &definition.rhythm,
        timezone: &definition.timezone,
        topic: &definition.topic,
        enabled: schedule.enabled,
        max_retries: definition.max_retries,
        retry: definition.backoff.map(|backoff| RetryView { backoff }),
        timeout_seconds: definition.timeout_seconds,
        priority: definition.priority,
        overlap_policy: definition.overlap_policy,
        misfire_policy: definition.misfire_policy,
        misfire_window_seconds: definition.misfire_window_seconds,
        jitter_seconds: definition.jitter_seconds,
        start_at: definition.start_at.map(exact),
        end_at: definition.end_at.map(exact),
        max_fires: definition.max_fires,
        dst_gap: definition.dst_gap,
        dst_fold: definition.dst_fold,
        exclude_calendars: &definition.exclude_calendars,
        metadata: &definition.metadata,
        client_request_id: schedule.client_request_id.as_deref(),
        created_by: definition.created_by.as_deref(),
    };
    let text = serde_json::to_string(&document).map_err(cannot_be_shown)?;
    // A payload is text already, and `flatten` cannot carry it as such.
    let text = text.strip_suffix('}').unwrap_or_default();
    Ok(format!("{text},\"payload\":{}}}", definition.payload.as_str()))
}
