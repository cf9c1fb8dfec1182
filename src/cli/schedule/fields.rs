//! The fields of a schedule as flags.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Map, Value};

use crate::cli::task::{BackoffArgs, millis, pair, read_instant, read_json};
use crate::cli::when;

/// What a schedule says.
#[derive(Debug, clap::Args)]
pub(super) struct FieldArgs {
    /// When it fires, as a cron expression, quoted: five fields, six with leading seconds, or @daily and its like
    #[arg(long, value_name = "EXPR", conflicts_with = "every")]
    cron: Option<String>,
    /// When it fires, as an interval: 30s, 15m, 1h; at least 1s
    #[arg(long, value_name = "D", value_parser = interval)]
    every: Option<Duration>,
    /// The time zone it is read in, such as America/New_York
    #[arg(long, value_name = "ZONE")]
    tz: Option<String>,
    /// Where its tasks go
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    /// What its tasks carry, as JSON; @FILE reads a file, - reads stdin
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// For people
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// false makes it paused
    #[arg(long, value_name = "BOOL")]
    enabled: Option<bool>,
    /// How many attempts each task has in all
    #[arg(long, value_name = "N")]
    max_retries: Option<u64>,
    #[command(flatten)]
    backoff: BackoffArgs,
    /// The time limit of one attempt: 30s, 5m
    #[arg(long, value_name = "D", value_parser = when::duration)]
    timeout: Option<Duration>,
    /// Larger goes first, -100 to 100
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    priority: Option<i64>,
    /// What happens while an earlier task has not ended: skip, queue, cancel_previous, allow
    #[arg(long, value_name = "POLICY")]
    overlap: Option<String>,
    /// What happens to instants that nobody saw in time: fire_once, fire_all, skip
    #[arg(long, value_name = "POLICY")]
    misfire: Option<String>,
    /// How old a missed instant may be and still fire: 24h
    #[arg(long, value_name = "D", value_parser = when::duration)]
    misfire_window: Option<Duration>,
    /// Moves its tasks by a fixed share of this, away from those of others: 30s
    #[arg(long, value_name = "D", value_parser = when::duration)]
    jitter: Option<Duration>,
    /// Nothing fires before this instant: '2026-12-01 09:00' (read in --tz)
    #[arg(long, value_name = "T")]
    start_at: Option<String>,
    /// Nothing fires from this instant on
    #[arg(long, value_name = "T")]
    end_at: Option<String>,
    /// It is done after so many fires
    #[arg(long, value_name = "N")]
    max_fires: Option<u64>,
    /// What becomes of a time that the clocks skip: next_valid, skip
    #[arg(long, value_name = "RULE")]
    dst_gap: Option<String>,
    /// What becomes of a time that comes twice: first, both
    #[arg(long, value_name = "RULE")]
    dst_fold: Option<String>,
    /// A calendar on whose days it does not fire; may be repeated
    #[arg(long = "exclude-calendar", value_name = "NAME")]
    exclude_calendars: Vec<String>,
    /// For filtering and tracing, such as ownerId=me; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    metadata: Vec<(String, String)>,
    /// Who makes it
    #[arg(long, value_name = "WHO")]
    created_by: Option<String>,
}

impl FieldArgs {
    /// What was given, as the API has it.
    pub(super) fn body(&self) -> Result<Map<String, Value>> {
        let seconds = |duration: Option<Duration>| duration.map(|duration| Value::from(duration.as_secs()));
        let text = |text: &Option<String>| text.clone().map(Value::from);
        let zone = self.tz.as_deref().unwrap_or("UTC");
        let instant =
            |given: &Option<String>| -> Result<Option<Value>> { Ok(read_instant(given, zone)?.map(Value::from)) };
        let metadata: Map<_, _> =
            self.metadata.iter().map(|(key, value)| (key.clone(), value.clone().into())).collect();
        let backoff = self.backoff.value().map(|backoff| serde_json::json!({"backoff": backoff}));
        let payload = self.payload.as_deref().map(|payload| read_json("--payload", payload)).transpose()?;
        let mut body: Map<_, _> = [
            ("cronExpression", text(&self.cron)),
            ("everyMs", self.every.map(millis)),
            ("timezone", text(&self.tz)),
            ("topic", text(&self.topic)),
            ("payload", payload),
            ("description", text(&self.description)),
            ("enabled", self.enabled.map(Value::from)),
            ("maxRetries", self.max_retries.map(Value::from)),
            ("retry", backoff),
            ("timeoutSeconds", seconds(self.timeout)),
            ("priority", self.priority.map(Value::from)),
            ("overlapPolicy", text(&self.overlap)),
            ("misfirePolicy", text(&self.misfire)),
            ("misfireWindowSeconds", seconds(self.misfire_window)),
            ("jitterSeconds", seconds(self.jitter)),
            ("startAt", instant(&self.start_at)?),
            ("endAt", instant(&self.end_at)?),
            ("maxFires", self.max_fires.map(Value::from)),
            ("dstGap", text(&self.dst_gap)),
            ("dstFold", text(&self.dst_fold)),
            ("excludeCalendars", (!self.exclude_calendars.is_empty()).then(|| self.exclude_calendars.clone().into())),
            ("metadata", (!metadata.is_empty()).then(|| metadata.into())),
            ("createdBy", text(&self.created_by)),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect();
        // An edit from one rhythm to the other takes the first one back.
        if self.cron.is_some() {
            body.insert("everyMs".into(), Value::Null);
        } else if self.every.is_some() {
            body.insert("cronExpression".into(), Value::Null);
        }
        Ok(body)
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = when::duration(text)?;
    if interval < Duration::from_secs(1) { Err("must be at least 1s".into()) } else { Ok(interval) }
}
