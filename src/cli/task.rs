//! `punctual task …`: tasks of a running service.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use punctual_domain::clock::Clock;
use punctual_domain::json::{check_depth, read_deep};
use punctual_domain::task::TaskStatus;
use serde_json::{Map, Value, json};

use super::client::{Answer, Client, ClientArgs};
use super::output::{Clockface, Facts, Table, field, print, shortened};
use super::when;
use super::{named, named_schedule};
use crate::SystemClock;

/// Tasks of a running service: one-off work.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  punctual task add echo --payload '{\"hello\": \"world\"}'
  punctual task add report.send --at '2026-12-01 09:00' --tz America/New_York
  punctual task add signup.reminder --in 1h --dedupe-key user-17 --attempts 3
  punctual task list --status failed --from -24h
  punctual task retry --status failed --topic report.send --dry-run")]
pub(super) struct TaskArgs {
    #[command(subcommand)]
    command: TaskCommand,
}

#[derive(Debug, clap::Subcommand)]
enum TaskCommand {
    /// Makes a task
    Add(AddArgs),
    /// Lists tasks, newest first
    List(ListArgs),
    /// Shows a task with its attempts
    Show(OneArgs),
    /// Cancels a task, or every live task that a filter finds
    Cancel(ManyArgs),
    /// Makes a failed task anew, or every failed task that a filter finds
    Retry(ManyArgs),
    /// Cancels a task and makes another in its place
    Reschedule(RescheduleArgs),
}

/// When a task is due.
#[derive(Debug, clap::Args)]
struct DueArgs {
    /// When it is due: '2026-12-01 09:00' (read in --tz), 2026-12-01T09:00:00-05:00 or +1h
    #[arg(long, value_name = "T", conflicts_with = "delay")]
    at: Option<String>,
    /// The time zone that --at is meant in, such as America/New_York
    #[arg(long, value_name = "ZONE")]
    tz: Option<String>,
    /// How long after now it is due: 90s, 15m, 1h30m, 2d
    #[arg(long = "in", value_name = "D", value_parser = when::duration)]
    delay: Option<Duration>,
}

/// Everything else about a task.
#[derive(Debug, clap::Args)]
struct FieldArgs {
    /// What it is about, as JSON; @FILE reads a file, - reads stdin
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// For filtering and tracing, such as ownerId=me; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    metadata: Vec<(String, String)>,
    /// Larger goes first, -100 to 100
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    priority: Option<i64>,
    /// The time limit of one attempt: 30s, 5m
    #[arg(long, value_name = "D", value_parser = when::duration)]
    timeout: Option<Duration>,
    /// How many attempts it has in all
    #[arg(long, value_name = "N")]
    attempts: Option<u64>,
    #[command(flatten)]
    backoff: BackoffArgs,
    /// Never makes two tasks, for good
    #[arg(long, value_name = "ID")]
    client_request_id: Option<String>,
    /// One live task per topic and key; a second is the first
    #[arg(long, value_name = "KEY")]
    dedupe_key: Option<String>,
    /// At most one running per topic and key, in order
    #[arg(long, value_name = "KEY")]
    serial_key: Option<String>,
}

/// How long to wait between attempts.
#[derive(Debug, clap::Args)]
pub(super) struct BackoffArgs {
    /// How the wait between attempts grows
    #[arg(long, value_name = "TYPE", value_parser = ["fixed", "exponential"])]
    backoff: Option<String>,
    /// The first wait: 5s
    #[arg(long, value_name = "D", value_parser = when::duration)]
    backoff_delay: Option<Duration>,
    /// The longest wait: 1h
    #[arg(long, value_name = "D", value_parser = when::duration)]
    backoff_max_delay: Option<Duration>,
    /// The share of a wait that is left to chance, 0 to 1
    #[arg(long, value_name = "F")]
    backoff_jitter: Option<f64>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  punctual task add echo --payload '{\"hello\": \"world\"}'                  due now
  punctual task add report.send --at '2026-12-01 09:00' --tz America/New_York
  punctual task add signup.reminder --in 1h --payload @reminder.json")]
struct AddArgs {
    /// The topic that leads it to what runs it, such as report.send
    topic: String,
    #[command(flatten)]
    due: DueArgs,
    #[command(flatten)]
    fields: FieldArgs,
    #[command(flatten)]
    common: CommonArgs,
}

/// What every command has.
#[derive(Debug, clap::Args)]
pub(super) struct CommonArgs {
    #[command(flatten)]
    pub(super) client: ClientArgs,
    /// Print the API's answer as it is
    #[arg(long)]
    pub(super) json: bool,
}

/// Which tasks.
#[derive(Debug, clap::Args)]
struct FilterArgs {
    /// pending, running, completed, failed, cancelled; several with commas
    #[arg(long, value_name = "S")]
    status: Option<String>,
    /// The topic
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    /// Made by this schedule, by name or id
    #[arg(long, value_name = "NAME", value_parser = named_schedule)]
    schedule: Option<String>,
    /// metadata.ownerId
    #[arg(long, value_name = "ID")]
    owner_id: Option<String>,
    /// metadata.tenantId
    #[arg(long, value_name = "ID")]
    tenant_id: Option<String>,
    /// metadata.correlationId
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// The task that used this id
    #[arg(long, value_name = "ID")]
    client_request_id: Option<String>,
    /// Due from this instant on: 2026-11-16T00:00:00Z, 2026-11-16, -24h
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    from: Option<String>,
    /// Due before this instant
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    to: Option<String>,
    /// The zone that times without an offset are read in
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    tz: String,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// How many, 1 to 1000 [default: 50]
    #[arg(long, value_name = "N")]
    limit: Option<u32>,
    /// Where the page begins: nextCursor of the one before
    #[arg(long, value_name = "C")]
    cursor: Option<String>,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Debug, clap::Args)]
struct OneArgs {
    /// The task's id
    #[arg(value_parser = task_id)]
    id: String,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Debug, clap::Args)]
struct ManyArgs {
    /// The task's id; without one, the filters say which tasks are meant
    #[arg(value_parser = task_id)]
    id: Option<String>,
    #[command(flatten)]
    filter: FilterArgs,
    /// Only count the tasks that the filters find
    #[arg(long, conflicts_with = "id")]
    dry_run: bool,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Debug, clap::Args)]
struct RescheduleArgs {
    /// The task's id
    #[arg(value_parser = task_id)]
    id: String,
    /// Another topic
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    #[command(flatten)]
    due: DueArgs,
    #[command(flatten)]
    fields: FieldArgs,
    #[command(flatten)]
    common: CommonArgs,
}

impl TaskArgs {
    pub(super) async fn run(self) -> Result<ExitCode> {
        match self.command {
            TaskCommand::Add(args) => {
                let mut body = Map::from_iter([("topic".to_owned(), args.topic.into())]);
                args.due.write(&mut body)?;
                args.fields.write(&mut body)?;
                let answer = args.common.client.connect()?.post(&["tasks"], body.into()).await?;
                show(&answer, args.common.json)
            }
            TaskCommand::List(args) => args.run().await,
            TaskCommand::Show(args) => {
                let answer = args.common.client.connect()?.get(&["tasks", &args.id], &[]).await?;
                show(&answer, args.common.json)
            }
            TaskCommand::Cancel(args) => args.run("cancel").await,
            TaskCommand::Retry(args) => args.run("retry").await,
            TaskCommand::Reschedule(args) => {
                let mut body = Map::new();
                body.extend(args.topic.map(|topic| ("topic".to_owned(), topic.into())));
                args.due.write(&mut body)?;
                args.fields.write(&mut body)?;
                let path = ["tasks", &args.id, "reschedule"];
                let answer = args.common.client.connect()?.post(&path, body.into()).await?;
                show(&answer, args.common.json)
            }
        }
    }
}

impl ListArgs {
    async fn run(self) -> Result<ExitCode> {
        let client = self.common.client.connect()?;
        let mut query = self.filter.pairs(&client).await?;
        query.push(("limit", self.limit.map(|limit| limit.to_string())));
        query.push(("cursor", self.cursor));
        let answer = client.get(&["tasks"], &query).await?;
        if self.common.json {
            print(&answer.text)?;
            return Ok(ExitCode::SUCCESS);
        }
        let found = answer.json()?;
        let clockface = Clockface::new(when::zones()?);
        let mut table = Table::new(["ID", "TOPIC", "STATUS", "RUN AT", "ATTEMPT", "ERROR"]).right(&[4]);
        for task in found["items"].as_array().into_iter().flatten() {
            table.row([
                field(&task["id"]),
                field(&task["topic"]),
                field(&task["status"]),
                clockface.show_field(&task["runAt"], &field(&task["timezone"])).unwrap_or_default(),
                field(&task["attempt"]),
                task["error"].as_str().map(|error| shortened(error, 60)).unwrap_or_default(),
            ]);
        }
        print(&table.page("no tasks", &found))?;
        Ok(ExitCode::SUCCESS)
    }
}

impl ManyArgs {
    async fn run(self, what: &str) -> Result<ExitCode> {
        let client = self.common.client.connect()?;
        if let Some(id) = &self.id {
            let answer = client.post(&["tasks", id, what], json!({})).await?;
            let status = field(&answer.json()?["status"]);
            if what == "cancel" && status != "cancelled" {
                eprintln!("nothing was cancelled: it had ended already ({status})");
            }
            return show(&answer, self.common.json);
        }
        let pairs = self.filter.pairs(&client).await?;
        let filter: Map<_, _> =
            pairs.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into()))).collect();
        if filter.is_empty() {
            bail!("which tasks? Give an id, or a filter such as --topic or --status");
        }
        let answer = client.post(&["tasks", what], json!({"filter": filter, "dryRun": self.dry_run})).await?;
        if self.common.json {
            print(&answer.text)?;
        } else {
            let would = if self.dry_run { "would " } else { "" };
            print(&format!("{would}{what}: {} tasks", field(&answer.json()?["count"])))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl FilterArgs {
    async fn pairs(&self, client: &Client) -> Result<Vec<(&'static str, Option<String>)>> {
        let schedule = match &self.schedule {
            Some(name) => Some(client.schedule_id(name).await?),
            None => None,
        };
        Ok(vec![
            ("status", self.status.clone()),
            ("topic", self.topic.clone()),
            ("scheduleId", schedule),
            ("ownerId", self.owner_id.clone()),
            ("tenantId", self.tenant_id.clone()),
            ("correlationId", self.correlation_id.clone()),
            ("clientRequestId", self.client_request_id.clone()),
            ("from", read_instant(&self.from, &self.tz)?),
            ("to", read_instant(&self.to, &self.tz)?),
        ])
    }
}

impl DueArgs {
    fn write(&self, body: &mut Map<String, Value>) -> Result<()> {
        let zone = self.tz.as_deref();
        if let Some(at) = &self.at {
            let zones = when::zones()?;
            if let Some(zone) = zone {
                zones.zone(zone).context("--tz cannot be used")?;
            }
            let read = when::instant(at, zone.unwrap_or("UTC"), &zones, SystemClock::new().now())
                .context("--at cannot be used")?;
            let has_offset = chrono::DateTime::parse_from_rfc3339(&at.replacen(' ', "T", 1)).is_ok();
            if zone.is_none() && !has_offset && !at.starts_with('+') && at != "now" {
                bail!("--at {at:?} has no offset: say which zone it is meant in, such as --tz America/New_York");
            }
            body.insert("runAt".into(), when::written(read).into());
            body.insert("timezone".into(), zone.unwrap_or("UTC").into());
        } else if let Some(zone) = zone {
            body.insert("timezone".into(), zone.into());
        }
        body.extend(self.delay.map(|delay| ("delayMs".to_owned(), millis(delay))));
        Ok(())
    }
}

impl FieldArgs {
    fn write(self, body: &mut Map<String, Value>) -> Result<()> {
        if let Some(payload) = &self.payload {
            body.insert("payload".into(), read_json("--payload", payload)?);
        }
        if !self.metadata.is_empty() {
            body.insert(
                "metadata".into(),
                self.metadata
                    .into_iter()
                    .collect::<std::collections::BTreeMap<_, _>>()
                    .into_iter()
                    .map(|(key, value)| (key, Value::from(value)))
                    .collect::<Map<_, _>>()
                    .into(),
            );
        }
        let mut retry = Map::new();
        retry.extend(self.attempts.map(|attempts| ("attempts".to_owned(), attempts.into())));
        retry.extend(self.backoff.value().map(|backoff| ("backoff".to_owned(), backoff)));
        if !retry.is_empty() {
            body.insert("retry".into(), retry.into());
        }
        for (name, value) in [
            ("priority", self.priority.map(Value::from)),
            ("timeoutSeconds", self.timeout.map(|timeout| timeout.as_secs().into())),
            ("clientRequestId", self.client_request_id.map(Value::from)),
            ("dedupeKey", self.dedupe_key.map(Value::from)),
            ("serialKey", self.serial_key.map(Value::from)),
        ] {
            body.extend(value.map(|value| (name.to_owned(), value)));
        }
        Ok(())
    }
}

impl BackoffArgs {
    /// The back-off as the API has it; `None` if nothing was said.
    pub(super) fn value(&self) -> Option<Value> {
        let given: Map<_, _> = [
            ("type", self.backoff.clone().map(Value::from)),
            ("delay", self.backoff_delay.map(millis)),
            ("maxDelay", self.backoff_max_delay.map(millis)),
            ("jitter", self.backoff_jitter.map(Value::from)),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect();
        (!given.is_empty()).then(|| given.into())
    }
}

pub(super) fn millis(duration: Duration) -> Value {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).into()
}

fn task_id(text: &str) -> Result<String, String> {
    named(text, "give a task's id; `punctual task list` shows them")
}

pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("{text:?} is not KEY=VALUE"))?;
    Ok((key.to_owned(), value.to_owned()))
}

/// A text that was given as it is, in a file, or on stdin.
pub(super) fn read_text(text: &str) -> Result<String> {
    match text.strip_prefix('@') {
        Some(file) => std::fs::read_to_string(file).with_context(|| format!("{file} cannot be read")),
        None if text == "-" => Ok(std::io::read_to_string(std::io::stdin())?),
        None => Ok(text.to_owned()),
    }
}

/// JSON that was given in the same ways.
pub(super) fn read_json(flag: &str, text: &str) -> Result<Value> {
    let text = read_text(text)?;
    check_depth(&text).map_err(|error| anyhow!("{flag} is {error}"))?;
    read_deep(&text).with_context(|| format!("{flag} is not JSON; quote it, such as {flag} '{{\"hello\": \"world\"}}'"))
}

/// An instant that was typed, as the API reads it.
pub(super) fn read_instant(text: &Option<String>, zone: &str) -> Result<Option<String>> {
    let Some(text) = text else { return Ok(None) };
    let at = when::instant(text, zone, &when::zones()?, SystemClock::new().now())?;
    Ok(Some(when::written(at)))
}

/// Prints a task.
pub(super) fn show(answer: &Answer, json: bool) -> Result<ExitCode> {
    if json {
        print(&answer.text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let task = answer.json()?;
    let zone = field(&task["timezone"]);
    let clockface = Clockface::new(when::zones()?);
    let instant = |name: &str| clockface.show_field(&task[name], &zone);
    let text = |name: &str| task[name].as_str().map(str::to_owned);
    let mut facts = Facts::default();
    facts.add("id", field(&task["id"]));
    facts.add("topic", field(&task["topic"]));
    facts.add("status", field(&task["status"]));
    if task["deduplicated"] == true {
        facts.add("note", "there was a live task with this dedupe key: this is it, and nothing new was made");
    }
    facts.add("run at", format!("{} ({zone})", instant("runAt").unwrap_or_default()));
    facts.add("payload", shortened(&task["payload"].to_string(), 200));
    if task["metadata"].as_object().is_some_and(|metadata| !metadata.is_empty()) {
        facts.add("metadata", task["metadata"].to_string());
    }
    facts.add("attempt", format!("{} of {}", field(&task["attempt"]), field(&task["retry"]["attempts"])));
    for (name, value) in [
        ("started", instant("startedAt")),
        ("ended", instant("completedAt")),
        ("error", text("error")),
        ("result", (!task["result"].is_null()).then(|| shortened(&task["result"].to_string(), 200))),
        ("client id", text("clientRequestId")),
        ("dedupe key", text("dedupeKey")),
        ("serial key", text("serialKey")),
        ("schedule", text("scheduleId")),
        ("fire of", instant("scheduledAt")),
        ("retry of", text("retryOf")),
        ("in place of", text("rescheduledFrom")),
        ("created", instant("createdAt")),
    ] {
        facts.add_some(name, value);
    }
    for warning in task["warnings"].as_array().into_iter().flatten() {
        facts.add("warning", field(warning));
    }
    let mut page = facts.text();
    if let Some(attempts) = task["attempts"].as_array().filter(|attempts| !attempts.is_empty()) {
        let mut table = Table::new(["ATTEMPT", "STARTED", "ENDED", "OUTCOME", "NODE", "ERROR"]).right(&[0]);
        for attempt in attempts {
            let at = |name: &str| clockface.show_field(&attempt[name], &zone).unwrap_or_else(|| "-".into());
            table.row([
                field(&attempt["number"]),
                at("startedAt"),
                at("endedAt"),
                // One that has not ended has no outcome.
                attempt["outcome"].as_str().unwrap_or(TaskStatus::Running.as_str()).to_owned(),
                field(&attempt["nodeId"]),
                attempt["error"].as_str().map(|error| shortened(error, 80)).unwrap_or_default(),
            ]);
        }
        page.push_str("\n\n");
        page.push_str(&table.text());
    }
    print(&page)?;
    Ok(ExitCode::SUCCESS)
}
