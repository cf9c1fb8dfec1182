//! `punctual schedule …`: schedules of a running service.

mod fields;

use std::process::ExitCode;

use anyhow::{Result, bail};
use serde_json::{Map, Value, json};

use super::client::Answer;
use super::named_schedule;
use super::output::{Clockface, Facts, Table, field, print, shortened};
use super::task::{CommonArgs, read_instant};
use super::when;
use fields::FieldArgs;

/// Schedules of a running service: recurring work. A schedule is named by its name or its id.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  punctual schedule add nightly --cron '30 2 * * *' --tz America/New_York --topic report.nightly
  punctual schedule add heartbeat --every 30s --tz UTC --topic monitor.ping
  punctual schedule preview --cron '30 2 * * *' --tz America/New_York --count 3
  punctual schedule next nightly --count 3
  punctual schedule pause nightly --note 'migration' --until '2026-12-01 06:00' --tz Asia/Tokyo
  punctual schedule executions nightly --status failed
  punctual schedule backfill nightly --dry-run --from -3d --to now")]
pub(super) struct ScheduleArgs {
    #[command(subcommand)]
    command: ScheduleCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ScheduleCommand {
    /// Makes a schedule
    Add(AddArgs),
    /// Lists schedules, newest first
    List(ListArgs),
    /// Shows a schedule
    Show(OneArgs),
    /// Changes some fields of a schedule; the others stay
    Edit(EditArgs),
    /// Pauses a schedule: nothing is due until it is resumed
    Pause(PauseArgs),
    /// Resumes a schedule; what it missed while paused never fires
    Resume(OneArgs),
    /// Fires a schedule now, also a paused one
    Trigger(OneArgs),
    /// Fires the instants of the past that never fired
    Backfill(BackfillArgs),
    /// Deletes a schedule and cancels its pending tasks
    Delete(OneArgs),
    /// Lists what a schedule has fired and skipped, newest first
    Executions(ExecutionsArgs),
    /// Shows the next instants of a schedule
    Next(NextArgs),
    /// Shows when a schedule would fire, and keeps nothing
    Preview(PreviewArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  punctual schedule add nightly --cron '30 2 * * *' --tz America/New_York --topic report.nightly
  punctual schedule add heartbeat --every 30s --tz UTC --topic monitor.ping --overlap allow
  punctual schedule add quarterly --cron '0 9 1 */3 *' --tz Europe/Paris --topic billing.run \\
      --payload '{\"kind\": \"full\"}' --misfire fire_all --exclude-calendar holidays

What is left out: --overlap skip, --misfire fire_once within 24h, and what the topic's definition
says, else --max-retries 3, --timeout 1h, and a back-off that grows from 5s to 1h.")]
struct AddArgs {
    /// A name that no other schedule has
    name: String,
    #[command(flatten)]
    fields: FieldArgs,
    /// Never makes two schedules, for good
    #[arg(long, value_name = "ID")]
    client_request_id: Option<String>,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Only enabled (true) or paused (false) ones
    #[arg(long, value_name = "BOOL")]
    enabled: Option<bool>,
    /// Of this topic
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    /// The one of this name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// metadata.ownerId
    #[arg(long, value_name = "ID")]
    owner_id: Option<String>,
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
    /// The schedule, by name or id
    #[arg(value_name = "SCHEDULE", value_parser = named_schedule)]
    schedule: String,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  punctual schedule edit nightly --cron '0 3 * * *'
  punctual schedule edit nightly --rename nightly-report --priority 10
  punctual schedule edit nightly --clear endAt --clear maxFires
  punctual schedule edit nightly --if-match 3 --cron '0 4 * * *'")]
struct EditArgs {
    /// The schedule, by name or id
    #[arg(value_name = "SCHEDULE", value_parser = named_schedule)]
    schedule: String,
    /// Another name
    #[arg(long, value_name = "NAME")]
    rename: Option<String>,
    #[command(flatten)]
    fields: FieldArgs,
    /// Give this field its default back, by its name in the API, such as endAt; may be repeated
    #[arg(long, value_name = "FIELD")]
    clear: Vec<String>,
    /// Only if it still has this version, as `schedule show` told it: what another wrote since then stays
    #[arg(long, value_name = "VERSION")]
    if_match: Option<u64>,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Debug, clap::Args)]
struct PauseArgs {
    /// The schedule, by name or id
    #[arg(value_name = "SCHEDULE", value_parser = named_schedule)]
    schedule: String,
    /// Why, for whoever looks at it next
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// When it resumes by itself: '2026-12-01 06:00', +2h
    #[arg(long, value_name = "T")]
    until: Option<String>,
    /// The zone that --until is read in, if not the schedule's own
    #[arg(long, value_name = "ZONE", requires = "until")]
    tz: Option<String>,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  punctual schedule backfill nightly --dry-run --from 2026-11-01 --to 2026-11-08 --tz Asia/Tokyo
  punctual schedule backfill nightly --from -3d --to now --max-fires 10")]
struct BackfillArgs {
    /// The schedule, by name or id
    #[arg(value_name = "SCHEDULE", value_parser = named_schedule)]
    schedule: String,
    /// The first instant: 2026-11-16T00:00:00Z, 2026-11-16 (read in --tz), -3d
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    from: String,
    /// The first instant after it; not in the future
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    to: String,
    /// The zone that times without an offset are read in
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    tz: String,
    /// Make nothing, and show the instants
    #[arg(long)]
    dry_run: bool,
    /// The most fires to make [default: 1000]
    #[arg(long, value_name = "N")]
    max_fires: Option<u64>,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Debug, clap::Args)]
struct ExecutionsArgs {
    /// The schedule, by name or id
    #[arg(value_name = "SCHEDULE", value_parser = named_schedule)]
    schedule: String,
    /// pending, running, dispatched, completed, failed, cancelled, skipped; several with commas
    #[arg(long, value_name = "S")]
    status: Option<String>,
    /// From this instant on: 2026-11-16T00:00:00Z, 2026-11-16 (read in --tz), -24h
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    from: Option<String>,
    /// Before this instant
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    to: Option<String>,
    /// The zone that times without an offset are read in, and times are shown in
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    tz: String,
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
struct NextArgs {
    /// The schedule, by name or id
    #[arg(value_name = "SCHEDULE", value_parser = named_schedule)]
    schedule: String,
    /// How many instants
    #[arg(long, value_name = "N")]
    count: Option<u32>,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  punctual schedule preview --cron '30 2 * * *' --tz America/New_York
  punctual schedule preview --every 90m --tz UTC --start-at '2026-12-01 09:00' --count 3
  punctual schedule preview --cron '0 9 1 */3 *' --tz Europe/Paris --exclude-calendar holidays")]
struct PreviewArgs {
    #[command(flatten)]
    fields: FieldArgs,
    /// How many instants [default: 10]
    #[arg(long, value_name = "N")]
    count: Option<u32>,
    #[command(flatten)]
    common: CommonArgs,
}

impl ScheduleArgs {
    pub(super) async fn run(self) -> Result<ExitCode> {
        match self.command {
            ScheduleCommand::Add(args) => {
                let mut body = args.fields.body()?;
                body.insert("name".into(), args.name.into());
                body.extend(args.client_request_id.map(|id| ("clientRequestId".to_owned(), id.into())));
                let answer = args.common.client.connect()?.post(&["schedules"], body.into()).await?;
                show(&answer, &args.common)?;
            }
            ScheduleCommand::List(args) => args.run().await?,
            ScheduleCommand::Show(args) => {
                let client = args.common.client.connect()?;
                let id = client.schedule_id(&args.schedule).await?;
                show(&client.get(&["schedules", &id], &[]).await?, &args.common)?;
            }
            ScheduleCommand::Edit(args) => args.run().await?,
            ScheduleCommand::Pause(args) => {
                let client = args.common.client.connect()?;
                let id = client.schedule_id(&args.schedule).await?;
                let mut body = Map::new();
                body.extend(args.note.map(|note| ("note".to_owned(), note.into())));
                if args.until.is_some() {
                    let zone = match args.tz {
                        Some(zone) => zone,
                        None => field(&client.get(&["schedules", &id], &[]).await?.json()?["timezone"]),
                    };
                    body.extend(read_instant(&args.until, &zone)?.map(|until| ("until".to_owned(), until.into())));
                }
                show(&client.post(&["schedules", &id, "pause"], body.into()).await?, &args.common)?;
            }
            ScheduleCommand::Resume(args) => {
                let client = args.common.client.connect()?;
                let id = client.schedule_id(&args.schedule).await?;
                show(&client.post(&["schedules", &id, "resume"], json!({})).await?, &args.common)?;
            }
            ScheduleCommand::Trigger(args) => {
                let client = args.common.client.connect()?;
                let id = client.schedule_id(&args.schedule).await?;
                let answer = client.post(&["schedules", &id, "trigger"], json!({})).await?;
                return super::task::show(&answer, args.common.json);
            }
            ScheduleCommand::Backfill(args) => args.run().await?,
            ScheduleCommand::Delete(args) => {
                let client = args.common.client.connect()?;
                let id = client.schedule_id(&args.schedule).await?;
                client.delete(&["schedules", &id]).await?;
                if !args.common.json {
                    print(&format!("deleted {}", args.schedule))?;
                }
            }
            ScheduleCommand::Executions(args) => args.run().await?,
            ScheduleCommand::Next(args) => args.run().await?,
            ScheduleCommand::Preview(args) => args.run().await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl ListArgs {
    async fn run(self) -> Result<()> {
        let query = [
            ("enabled", self.enabled.map(|enabled| enabled.to_string())),
            ("topic", self.topic),
            ("name", self.name),
            ("ownerId", self.owner_id),
            ("limit", self.limit.map(|limit| limit.to_string())),
            ("cursor", self.cursor),
        ];
        let answer = self.common.client.connect()?.get(&["schedules"], &query).await?;
        if self.common.json {
            return print(&answer.text);
        }
        let found = answer.json()?;
        let clockface = Clockface::new(when::zones()?);
        let mut table = Table::new(["NAME", "RHYTHM", "ZONE", "TOPIC", "STATE", "NEXT", "LAST FIRED"]);
        for schedule in found["items"].as_array().into_iter().flatten() {
            let zone = field(&schedule["timezone"]);
            let instant = |name: &str| clockface.show_field(&schedule[name], &zone).unwrap_or_else(|| "-".into());
            table.row([
                field(&schedule["name"]),
                rhythm(schedule),
                zone.clone(),
                field(&schedule["topic"]),
                state(schedule).to_owned(),
                instant("nextFireAt"),
                instant("lastFiredAt"),
            ]);
        }
        print(&table.page("no schedules; `punctual schedule add --help` shows how to make one", &found))
    }
}

impl EditArgs {
    async fn run(self) -> Result<()> {
        let mut body = self.fields.body()?;
        body.extend(self.rename.map(|name| ("name".to_owned(), name.into())));
        body.extend(self.clear.into_iter().map(|name| (name, Value::Null)));
        if body.is_empty() {
            bail!("nothing to change: give a field, such as --cron or --priority; --help lists them");
        }
        let client = self.common.client.connect()?;
        let id = client.schedule_id(&self.schedule).await?;
        show(&client.patch(&["schedules", &id], body.into(), self.if_match).await?, &self.common)
    }
}

impl BackfillArgs {
    async fn run(self) -> Result<()> {
        let client = self.common.client.connect()?;
        let id = client.schedule_id(&self.schedule).await?;
        let mut body = Map::from_iter([
            ("from".to_owned(), read_instant(&Some(self.from), &self.tz)?.into()),
            ("to".to_owned(), read_instant(&Some(self.to), &self.tz)?.into()),
            ("dryRun".to_owned(), self.dry_run.into()),
        ]);
        body.extend(self.dry_run.then(|| ("instants".to_owned(), true.into())));
        body.extend(self.max_fires.map(|most| ("maxFires".to_owned(), most.into())));
        let answer = client.post(&["schedules", &id, "backfill"], body.into()).await?;
        if self.common.json {
            return print(&answer.text);
        }
        let counts = answer.json()?;
        let made = if self.dry_run { "would make" } else { "made" };
        let mut text = format!(
            "{made} {} fires; {} instants had fired already, {} were left out\n",
            field(&counts["made"]),
            field(&counts["alreadyFired"]),
            field(&counts["skipped"])
        );
        if let Some(instants) = counts["instants"].as_array() {
            let schedule = client.get(&["schedules", &id], &[]).await?.json()?;
            let (clockface, zone) = (Clockface::new(when::zones()?), field(&schedule["timezone"]));
            let lines = instants.iter().filter_map(|at| clockface.show_field(at, &zone));
            for line in ends_of(lines.collect()) {
                text.push_str(&format!("  {line}\n"));
            }
        }
        print(&text)
    }
}

impl ExecutionsArgs {
    async fn run(self) -> Result<()> {
        let client = self.common.client.connect()?;
        let id = client.schedule_id(&self.schedule).await?;
        let query = [
            ("status", self.status),
            ("from", read_instant(&self.from, &self.tz)?),
            ("to", read_instant(&self.to, &self.tz)?),
            ("limit", self.limit.map(|limit| limit.to_string())),
            ("cursor", self.cursor),
        ];
        let answer = client.get(&["schedules", &id, "executions"], &query).await?;
        if self.common.json {
            return print(&answer.text);
        }
        let found = answer.json()?;
        let clockface = Clockface::new(when::zones()?);
        let heading = ["SCHEDULED AT", "KIND", "STATUS", "LAG MS", "TOOK MS", "ATTEMPTS", "TASK", "NOTE"];
        let mut table = Table::new(heading).right(&[3, 4, 5]);
        for fire in found["items"].as_array().into_iter().flatten() {
            let note = match (fire["reason"].as_str(), fire["count"].as_u64()) {
                (Some(reason), Some(count @ 2..)) => {
                    let until = clockface.show_field(&fire["until"], &self.tz).unwrap_or_default();
                    format!("{reason}, {count} instants until {until}")
                }
                (Some(reason), _) => reason.to_owned(),
                (None, _) => fire["error"].as_str().map(|error| shortened(error, 60)).unwrap_or_default(),
            };
            table.row([
                clockface.show_field(&fire["scheduledAt"], &self.tz).unwrap_or_default(),
                field(&fire["kind"]),
                field(&fire["status"]),
                field(&fire["lagMs"]),
                field(&fire["durationMs"]),
                field(&fire["attempts"]),
                field(&fire["taskId"]),
                note,
            ]);
        }
        print(&table.page("no executions", &found))
    }
}

impl NextArgs {
    async fn run(self) -> Result<()> {
        let client = self.common.client.connect()?;
        let id = client.schedule_id(&self.schedule).await?;
        let query = [("count", self.count.map(|count| count.to_string()))];
        let answer = client.get(&["schedules", &id, "next"], &query).await?;
        show_ahead(&answer, "no instant ahead: it is paused or done; `punctual why` says more", self.common.json)
    }
}

impl PreviewArgs {
    async fn run(self) -> Result<()> {
        let mut body = self.fields.body()?;
        body.extend(self.count.map(|count| ("count".to_owned(), count.into())));
        let answer = self.common.client.connect()?.post(&["schedules", "preview"], body.into()).await?;
        show_ahead(&answer, "no instant ahead", self.common.json)
    }
}

/// Prints the instants that lie ahead; `empty` if there are none.
fn show_ahead(answer: &Answer, empty: &str, json: bool) -> Result<()> {
    if json {
        return print(&answer.text);
    }
    let found = answer.json()?;
    let mut table = Table::new(["LOCAL", "OFFSET", "UTC", ""]);
    for next in found["next"].as_array().into_iter().flatten() {
        let note = match next["note"].as_str() {
            Some("gap") => "the clocks skip its time",
            Some("fold") => "its time comes twice",
            _ => "",
        };
        table.row([field(&next["local"]), field(&next["offset"]), field(&next["at"]), note.to_owned()]);
    }
    let mut text = if table.is_empty() { empty.to_owned() } else { table.text() };
    for warning in found["warnings"].as_array().into_iter().flatten() {
        text.push_str(&format!("\nwarning: {}", field(warning)));
    }
    print(&text)
}

fn rhythm(schedule: &Value) -> String {
    match schedule["everyMs"].as_i64() {
        Some(ms) => format!("every {}", length(ms)),
        None => field(&schedule["cronExpression"]),
    }
}

/// A length of time as it was asked for, to the millisecond.
fn length(ms: i64) -> String {
    let mut rest = ms;
    let mut parts = Vec::new();
    for (unit, in_ms) in [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1)] {
        if rest >= in_ms || (in_ms == 1 && parts.is_empty()) {
            parts.push(format!("{} {unit}", rest / in_ms));
            rest %= in_ms;
        }
    }
    parts.join(" ")
}

/// The lines of a list; of a long one the first and the last few.
fn ends_of(mut lines: Vec<String>) -> Vec<String> {
    const SHOWN: usize = 5;
    let left_out = lines.len().saturating_sub(2 * SHOWN);
    // A line that says how many there are is no shorter than one of them.
    if left_out > 1 {
        lines.splice(SHOWN..SHOWN + left_out, [format!("… {left_out} more …")]);
    }
    lines
}

fn state(schedule: &Value) -> &'static str {
    match (schedule["enabled"].as_bool(), schedule["nextFireAt"].is_null()) {
        (Some(false), _) => "paused",
        (_, true) => "done",
        _ => "enabled",
    }
}

/// Prints a schedule.
fn show(answer: &Answer, common: &CommonArgs) -> Result<()> {
    if common.json {
        return print(&answer.text);
    }
    let schedule = answer.json()?;
    let zone = field(&schedule["timezone"]);
    let clockface = Clockface::new(when::zones()?);
    let instant = |name: &str| clockface.show_field(&schedule[name], &zone);
    let text = |name: &str| schedule[name].as_str().map(str::to_owned);
    let mut facts = Facts::default();
    facts.add("name", field(&schedule["name"]));
    facts.add("id", field(&schedule["id"]));
    facts.add_some("description", text("description"));
    facts.add("rhythm", format!("{} ({zone})", rhythm(&schedule)));
    facts.add("topic", field(&schedule["topic"]));
    facts.add("payload", shortened(&schedule["payload"].to_string(), 200));
    facts.add("state", state(&schedule));
    facts.add_some("pause note", text("pauseNote"));
    facts.add_some("paused until", instant("pausedUntil"));
    facts.add_some("next", instant("nextFireAt"));
    facts.add_some("last fired", instant("lastFiredAt"));
    facts.add_some("starts", instant("startAt"));
    facts.add_some("ends", instant("endAt"));
    let seconds = |name: &str| {
        schedule[name].as_i64().filter(|seconds| *seconds != 0).map(|seconds| length(seconds.saturating_mul(1_000)))
    };
    let window = seconds("misfireWindowSeconds").unwrap_or_else(|| length(0));
    facts.add("overlap", field(&schedule["overlapPolicy"]));
    facts.add("misfire", format!("{} within {window}", field(&schedule["misfirePolicy"])));
    facts.add("attempts", field(&schedule["maxRetries"]));
    facts.add_some("timeout", seconds("timeoutSeconds"));
    facts.add_some("jitter", seconds("jitterSeconds"));
    for (name, key) in [("priority", "priority"), ("max fires", "maxFires")] {
        if schedule[key].as_i64().is_some_and(|value| value != 0) {
            facts.add(name, field(&schedule[key]));
        }
    }
    let calendars: Vec<_> = schedule["excludeCalendars"].as_array().into_iter().flatten().map(field).collect();
    facts.add_some("not on", Some(calendars.join(", ")));
    if schedule["metadata"].as_object().is_some_and(|metadata| !metadata.is_empty()) {
        facts.add("metadata", schedule["metadata"].to_string());
    }
    facts.add_some("created", instant("createdAt"));
    facts.add_some("edited", instant("updatedAt"));
    facts.add("version", field(&schedule["version"]));
    for warning in schedule["warnings"].as_array().into_iter().flatten() {
        facts.add("warning", field(warning));
    }
    print(&facts.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_list_both_ends_are_told() {
        let told = |count: usize| ends_of((1..=count).map(|number| number.to_string()).collect()).join(" ");
        assert_eq!((told(0).as_str(), told(2).as_str()), ("", "1 2"));
        assert_eq!(told(11), "1 2 3 4 5 6 7 8 9 10 11");
        assert_eq!(told(13), "1 2 3 4 5 … 3 more … 9 10 11 12 13");
    }

    #[test]
    fn a_length_of_time_is_told_exactly() {
        for (ms, told) in [
            (0, "0 ms"),
            (1_500, "1 s 500 ms"),
            (30_000, "30 s"),
            (3_600_000, "1 h"),
            (3_661_000, "1 h 1 min 1 s"),
            (86_400_000, "1 d"),
        ] {
            assert_eq!(length(ms), told);
        }
    }
}
