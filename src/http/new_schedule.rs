//! A schedule as callers write it: read, checked, and every default left to whoever knows it.

use punctual_domain::calendar::Calendar;
use punctual_domain::invalid::check_key;
use punctual_domain::retry::{Backoff, MAX_ATTEMPTS};
use punctual_domain::schedule::{
    Definition, MAX_FIRES, MAX_JITTER_SECONDS, MAX_MISFIRE_WINDOW_SECONDS, MisfirePolicy, OverlapPolicy, Rhythm,
    Schedule, ScheduleError,
};
use punctual_domain::task::MAX_TIMEOUT_SECONDS;
use punctual_domain::time::{DstFold, DstGap, Expression, ExpressionError, ZoneDatabase};
use punctual_domain::topic::Topic;

use super::fields::Fields;
use super::merge_patch::merge;
use super::new_task::{backoff, payload_named, topic_named};
use super::problem::{Code, Problem, Refusals};
use super::schedule_view::document;

/// Fields of a schedule that callers write.
const WRITABLE: &[&str] = &[
    "name",
    "description",
    "cronExpression",
    "everyMs",
    "timezone",
    "topic",
    "jobType",
    "payload",
    "jobPayload",
    "enabled",
    "maxRetries",
    "retry",
    "timeoutSeconds",
    "priority",
    "overlapPolicy",
    "misfirePolicy",
    "misfireWindowSeconds",
    "jitterSeconds",
    "startAt",
    "endAt",
    "maxFires",
    "dstGap",
    "dstFold",
    "excludeCalendars",
    "metadata",
    "clientRequestId",
    "createdBy",
];

/// Fields of a schedule that nobody can write.
const READ_ONLY: &[&str] =
    &["id", "lastFiredAt", "nextFireAt", "pauseNote", "pausedUntil", "createdAt", "updatedAt", "version", "warnings"];

/// The longest expression that is read; what is longer is refused for its length alone.
pub(crate) const MAX_EXPRESSION: usize = 1_000;

/// What callers may say where fires overlap, are missed, or meet a clock change.
pub(crate) const OVERLAP: [(&str, OverlapPolicy); 4] = [
    ("skip", OverlapPolicy::Skip),
    ("queue", OverlapPolicy::Queue),
    ("cancel_previous", OverlapPolicy::CancelPrevious),
    ("allow", OverlapPolicy::Allow),
];
pub(crate) const MISFIRE: [(&str, MisfirePolicy); 3] =
    [("fire_once", MisfirePolicy::FireOnce), ("fire_all", MisfirePolicy::FireAll), ("skip", MisfirePolicy::Skip)];
pub(crate) const GAP: [(&str, DstGap); 2] = [("next_valid", DstGap::NextValid), ("skip", DstGap::Skip)];
pub(crate) const FOLD: [(&str, DstFold); 2] = [("first", DstFold::First), ("both", DstFold::Both)];

/// What a caller says about a schedule.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Draft {
    pub(crate) definition: Definition,
    pub(crate) enabled: bool,
    pub(crate) client_request_id: Option<String>,
}

/// What for a schedule is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To be kept.
    Keep,
    /// To look ahead; it needs neither name nor topic.
    Preview,
}

/// What a schedule is read against.
pub(crate) struct Reading<'a> {
    /// The known zones.
    pub(crate) zones: &'a ZoneDatabase,
    /// The calendars there are.
    pub(crate) calendars: &'a [Calendar],
    /// What for.
    pub(crate) purpose: Purpose,
}

impl Reading<'_> {
    /// Reads a whole schedule: what is left out has its default. Worthless if anything was refused.
    pub(crate) fn draft(&self, mut fields: Fields<'_>, refusals: &mut Refusals) -> Draft {
        let rhythm = rhythm(&mut fields, refusals);
        let timezone = self.timezone(&mut fields, refusals);
        let name = self.name(&mut fields, refusals);
        let topic = self.topic(&mut fields, refusals);
        let mut definition = Definition::new(name, rhythm, timezone, &topic);
        if let Some(alias) = alias("payload", "jobPayload", &mut fields, refusals)
            && let Some(payload) = payload_named(alias, &mut fields, refusals)
        {
            definition.payload = payload;
        }
        definition.description = fields.text("description", refusals);
        read_tries(&mut fields, &mut definition, refusals);
        read_policies(&mut fields, &mut definition, refusals);
        definition.start_at = fields.instant("startAt", refusals);
        definition.end_at = fields.instant("endAt", refusals);
        definition.max_fires = fields.whole("maxFires", 1..=MAX_FIRES as i64, refusals).map(i64::unsigned_abs);
        if let Some(names) = fields.texts("excludeCalendars", refusals) {
            for unknown in names.iter().filter(|name| !self.calendars.iter().any(|known| known.name == **name)) {
                refusals.add("excludeCalendars", format!("there is no calendar {unknown:?}"));
            }
            definition.exclude_calendars = names;
        }
        if let Some(metadata) = fields.object("metadata", refusals) {
            definition.metadata = metadata.all_text(refusals).into_iter().collect();
        }
        definition.created_by = fields.text("createdBy", refusals);
        let enabled = fields.flag("enabled", refusals).unwrap_or(true);
        let client_request_id = fields.text("clientRequestId", refusals);
        if let Some(Err(message)) = client_request_id.as_deref().map(check_key) {
            refusals.add("clientRequestId", message);
        }
        fields.finish(READ_ONLY, refusals);
        if let Err(invalid) = definition.validate() {
            refusals.add_all(invalid);
        }
        Draft { definition, enabled, client_request_id }
    }

    /// Reads what becomes of a schedule by a patch, which is one JSON object: `null` gives a field back its default.
    ///
    /// # Errors
    /// Everything that is wrong with the patch, or with what would become of the schedule.
    pub(crate) fn patched(&self, schedule: &Schedule, patch: &str) -> Result<Draft, Problem> {
        let mut refusals = Refusals::default();
        let mut fields = Fields::of_body(patch, &mut refusals)?;
        let mut changes = Changes::default();
        let topic = alias("topic", "jobType", &mut fields, &mut refusals);
        let payload = alias("payload", "jobPayload", &mut fields, &mut refusals);
        let other_rhythm = match (fields.has("cronExpression"), fields.has("everyMs")) {
            (true, false) => Some("everyMs"),
            (false, true) => Some("cronExpression"),
            _ => None,
        };
        // A rhythm takes the place of the other kind.
        changes.add_all(other_rhythm.filter(|_| refusals.is_empty()).map(|name| (name, "null")));
        for name in WRITABLE {
            // What would be merged away could be wrong too: readers disagree about fields that stand twice.
            if matches!(*name, "metadata" | "retry")
                && let Some(inner) = fields.peek(name, &mut refusals)
            {
                inner.peek("backoff", &mut refusals);
            }
            let Some(raw) = fields.raw(name) else { continue };
            let canonical = match *name {
                name if Some(name) == topic => "topic",
                name if Some(name) == payload => "payload",
                name => name,
            };
            if canonical == "payload"
                && let Err(error) = punctual_domain::json::Json::parse(raw.get())
            {
                refusals.add(*name, error.to_string());
            }
            changes.add_all([(canonical, raw.get())]);
        }
        fields.finish(READ_ONLY, &mut refusals);
        // Nothing is merged that is wrong in itself.
        refusals.or(())?;
        let mut refusals = Refusals::default();
        let merged = merge(&document(schedule)?, &changes.into_text());
        let fields = Fields::of_body(&merged, &mut refusals)?;
        let draft = self.draft(fields, &mut refusals);
        refusals.or(draft)
    }

    fn name(&self, fields: &mut Fields<'_>, refusals: &mut Refusals) -> String {
        if !fields.has("name") && self.purpose == Purpose::Keep {
            refusals.add("name", "is required");
        }
        fields.text("name", refusals).unwrap_or_else(|| "preview".into())
    }

    fn topic(&self, fields: &mut Fields<'_>, refusals: &mut Refusals) -> Topic {
        let name = alias("topic", "jobType", fields, refusals);
        if name.is_none_or(|name| !fields.has(name)) && self.purpose == Purpose::Keep {
            refusals.add("topic", "is required");
        }
        let topic = name.and_then(|name| topic_named(name, fields, refusals));
        topic.unwrap_or_else(|| Topic::from_stored("preview"))
    }

    fn timezone(&self, fields: &mut Fields<'_>, refusals: &mut Refusals) -> String {
        if !fields.has("timezone") {
            refusals.add("timezone", "is required, an IANA name such as America/Mexico_City or UTC");
        }
        let Some(name) = fields.text("timezone", refusals) else { return String::new() };
        if let Err(error) = self.zones.zone(&name) {
            refusals.add_as(Code::InvalidTimezone, "timezone", error.to_string());
        }
        name
    }
}

/// The fields of a patch under their own names.
#[derive(Default)]
struct Changes(Vec<String>);

impl Changes {
    fn add_all<'a>(&mut self, changes: impl IntoIterator<Item = (&'a str, &'a str)>) {
        self.0.extend(changes.into_iter().map(|(name, raw)| format!("\"{name}\":{raw}")));
    }

    fn into_text(self) -> String {
        format!("{{{}}}", self.0.join(","))
    }
}

/// Which of a field's two names is used; both at once are refused.
fn alias(
    name: &'static str,
    other: &'static str,
    fields: &mut Fields<'_>,
    refusals: &mut Refusals,
) -> Option<&'static str> {
    match (fields.stands(name), fields.stands(other)) {
        (true, true) => {
            refusals.add(other, format!("cannot stand beside {name}, which is the same; give one of them"));
            fields.raw(other);
            Some(name)
        }
        (false, true) => Some(other),
        (true, false) => Some(name),
        (false, false) => None,
    }
}

fn rhythm(fields: &mut Fields<'_>, refusals: &mut Refusals) -> Rhythm {
    let (has_cron, has_every) = (fields.has("cronExpression"), fields.has("everyMs"));
    let cron = fields.text("cronExpression", refusals);
    let every = fields.whole("everyMs", 1000..=Definition::MAX_EVERY_MS as i64, refusals);
    match (has_cron, has_every) {
        (true, true) => refusals.add("everyMs", "cannot stand beside cronExpression; give one of them"),
        (false, false) => refusals.add("cronExpression", "is required, or everyMs"),
        _ => {}
    }
    match (cron, every) {
        (Some(expression), _) => {
            check_expression(&expression, refusals);
            Rhythm::Cron(expression)
        }
        (None, Some(every)) => Rhythm::Every(every.unsigned_abs()),
        (None, None) => Rhythm::Cron(String::new()),
    }
}

fn check_expression(expression: &str, refusals: &mut Refusals) {
    const FIELD: &str = "cronExpression";
    if expression.len() > MAX_EXPRESSION {
        return refusals.add_as(Code::InvalidCron, FIELD, format!("must have at most {MAX_EXPRESSION} characters"));
    }
    match Expression::parse(expression) {
        Ok(_) => {}
        Err(error @ ExpressionError::NeverFires { .. }) => {
            refusals.add_as(Code::NeverFires, FIELD, error.to_string());
        }
        Err(error @ ExpressionError::Invalid { .. }) => refusals.add_as(Code::InvalidCron, FIELD, error.to_string()),
    }
}

/// Reads how often and how long its tasks are attempted.
fn read_tries(fields: &mut Fields<'_>, definition: &mut Definition, refusals: &mut Refusals) {
    let whole = |fields: &mut Fields<'_>, name, bounds, refusals: &mut Refusals| {
        fields.whole(name, bounds, refusals).and_then(|number| u32::try_from(number).ok())
    };
    definition.max_retries = whole(fields, "maxRetries", 0..=i64::from(MAX_ATTEMPTS), refusals);
    definition.timeout_seconds = whole(fields, "timeoutSeconds", 1..=i64::from(MAX_TIMEOUT_SECONDS), refusals);
    if let Some(mut retry) = fields.object("retry", refusals) {
        if retry.raw("attempts").is_some() {
            refusals.add("retry.attempts", "is not for schedules; say maxRetries");
        }
        if let Some(fields) = retry.object("backoff", refusals) {
            definition.backoff = Some(backoff(fields, Backoff::default(), refusals));
        }
        retry.finish(&[], refusals);
    }
    if let Some(priority) = fields.whole("priority", -100..=100, refusals) {
        definition.priority = priority as i32;
    }
}

/// Reads what happens where fires overlap, are missed, or meet a clock change.
fn read_policies(fields: &mut Fields<'_>, definition: &mut Definition, refusals: &mut Refusals) {
    definition.overlap_policy = fields.word("overlapPolicy", &OVERLAP, refusals).unwrap_or_default();
    definition.misfire_policy = fields.word("misfirePolicy", &MISFIRE, refusals).unwrap_or_default();
    if let Some(seconds) = fields.whole("misfireWindowSeconds", 0..=i64::from(MAX_MISFIRE_WINDOW_SECONDS), refusals) {
        definition.misfire_window_seconds = seconds as u32;
    }
    if let Some(seconds) = fields.whole("jitterSeconds", 0..=i64::from(MAX_JITTER_SECONDS), refusals) {
        definition.jitter_seconds = seconds as u32;
    }
    definition.dst_gap = fields.word("dstGap", &GAP, refusals);
    definition.dst_fold = fields.word("dstFold", &FOLD, refusals);
}

/// A definition that the domain refuses, by the field that has to change.
pub(crate) fn refused(error: &ScheduleError) -> Problem {
    let (code, field) = match error {
        ScheduleError::Expression(ExpressionError::NeverFires { .. }) => (Code::NeverFires, "cronExpression"),
        ScheduleError::Expression(ExpressionError::Invalid { .. }) => (Code::InvalidCron, "cronExpression"),
        ScheduleError::Zone(_) => (Code::InvalidTimezone, "timezone"),
        ScheduleError::Interval => (Code::Invalid, "everyMs"),
        ScheduleError::EndsBeforeItFires => (Code::NeverFires, "endAt"),
        ScheduleError::StartsTooLate => (Code::NeverFires, "startAt"),
        ScheduleError::OnlyInGaps => (Code::NeverFires, "dstGap"),
    };
    Problem { code, ..Problem::invalid(field, error) }
}
