//! `punctual tz diff`: which future fires move with other zone data.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use chrono::{DateTime, Utc};
use punctual_domain::clock::Clock;
use punctual_domain::id::ScheduleId;
use punctual_domain::schedule::{Definition, Rhythm, Schedule};
use punctual_domain::time::ZoneDatabase;
use serde_json::Value;

use super::client::Client;
use super::look::{Look, LookArgs};
use super::output::{Clockface, print};
use super::when;
use crate::SystemClock;
use crate::inspect::tz_diff::{Comparing, Report};
use crate::plugins::Plugins;

/// Compares releases of time zone data.
#[derive(Debug, clap::Subcommand)]
pub(super) enum TzCommand {
    /// Lists the schedules whose future fires move between two releases of zone data
    Diff(DiffArgs),
}

/// Lists the schedules whose future fires move between two releases of zone data.
///
/// A service compares the data it runs with to the newest at hand on its machine: what a restart would move. With
/// --database, the newest release that any node ever used is compared to the newest at hand here: what this version of
/// punctual would move.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  punctual tz diff
  punctual tz diff --database postgres://me@localhost/app
  punctual tz diff --from /usr/share/zoneinfo --to bundled

A folder must say its version, in tzdata.zi or +VERSION; `bundled` is the data inside this
program.")]
pub(super) struct DiffArgs {
    /// The data as it is: a folder of compiled zones, or `bundled`
    #[arg(long, value_name = "DIR")]
    from: Option<String>,
    /// The data as it would be: a folder of compiled zones, or `bundled`
    #[arg(long, value_name = "DIR")]
    to: Option<String>,
    #[command(flatten)]
    look: LookArgs,
}

/// How many moves are shown of one schedule.
const SHOWN: usize = 5;

impl TzCommand {
    pub(super) async fn run(self, plugins: Plugins) -> Result<ExitCode> {
        let Self::Diff(args) = self;
        args.run(plugins).await
    }
}

impl DiffArgs {
    async fn run(self, plugins: Plugins) -> Result<ExitCode> {
        let newest = when::zones()?;
        let old = self.from.as_deref().map(open).transpose()?;
        let new = self.to.as_deref().map(open).transpose()?;
        let (report, text) = match self.look.open(plugins).await? {
            Look::Service(client) if old.is_none() && new.is_none() => {
                let answer = client.get(&["tz-diff"], &[]).await?;
                (answer.read::<Report>()?, answer.text)
            }
            Look::Service(client) => {
                let (old, new) = (old.unwrap_or_else(|| newest.clone()), new.unwrap_or_else(|| newest.clone()));
                with_text(of_service(&client, &old, &new).await?)?
            }
            Look::Database(inspector, progress) => {
                let new = new.unwrap_or_else(|| newest.clone());
                let report = match old {
                    Some(old) => inspector.tz_diff(&old, &new).await?,
                    None => inspector.tz_diff_from_stored(&new).await?,
                };
                drop(progress);
                with_text(report)?
            }
        };
        print(&if self.look.json { text } else { page(&report, &Clockface::new(newest)) })?;
        Ok(ExitCode::SUCCESS)
    }
}

fn with_text(report: Report) -> Result<(Report, String)> {
    let text = serde_json::to_string(&report)?;
    Ok((report, text))
}

fn open(place: &str) -> Result<ZoneDatabase> {
    if place == "bundled" { Ok(ZoneDatabase::bundled()) } else { Ok(ZoneDatabase::from_folder(Path::new(place))?) }
}

/// Compares here what a service has: the folders are this machine's.
async fn of_service(client: &Client, old: &ZoneDatabase, new: &ZoneDatabase) -> Result<Report> {
    let mut comparing = Comparing::new(old, new, SystemClock::new().now());
    let mut cursor = None;
    loop {
        let query = [("limit", Some("200".to_owned())), ("cursor", cursor)];
        let page = client.get(&["schedules"], &query).await?.json()?;
        for item in page["items"].as_array().into_iter().flatten() {
            comparing
                .add(&schedule(item).context("a schedule is not as expected: is the service of another version?")?);
        }
        cursor = page["nextCursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            return Ok(comparing.finish());
        }
    }
}

/// What of a schedule says when it fires.
fn schedule(item: &Value) -> Option<Schedule> {
    let text = |name: &str| item[name].as_str().map(str::to_owned);
    let instant = |name: &str| -> Option<DateTime<Utc>> { item[name].as_str()?.parse().ok() };
    let rhythm = match item["everyMs"].as_u64() {
        Some(ms) => Rhythm::Every(ms),
        None => Rhythm::Cron(text("cronExpression")?),
    };
    let mut definition = Definition::new(text("name")?, rhythm, text("timezone")?, &text("topic")?.parse().ok()?);
    definition.start_at = instant("startAt");
    definition.end_at = instant("endAt");
    definition.dst_gap = serde_json::from_value(item["dstGap"].clone()).ok()?;
    definition.dst_fold = serde_json::from_value(item["dstFold"].clone()).ok()?;
    let created_at = instant("createdAt")?;
    Some(Schedule {
        id: text("id")?.parse::<ScheduleId>().ok()?,
        definition,
        client_request_id: None,
        enabled: true,
        pause_note: None,
        paused_until: None,
        last_fired_at: None,
        next_fire_at: None,
        fired_through: None,
        tz_version: String::new(),
        fires_made: 0,
        created_at,
        updated_at: created_at,
        version: 1,
    })
}

fn page(report: &Report, clockface: &Clockface) -> String {
    let (from, to) = (&report.from, &report.to);
    let mut text = format!(
        "Zone data {} ({}) → {} ({}), {} schedules looked at up to {}\n",
        from.version,
        from.source,
        to.version,
        to.source,
        report.looked_at,
        clockface.show(report.until.0, "UTC")
    );
    if report.schedules.is_empty() {
        return text + "\nNothing moves.";
    }
    for schedule in &report.schedules {
        let more = if schedule.more { " or more" } else { "" };
        text.push_str(&format!("\n{} ({}): ", schedule.name, schedule.timezone));
        match &schedule.error {
            Some(error) => text.push_str(&format!("cannot be compared: {error}\n")),
            None => text.push_str(&format!("{}{more} fires move\n", schedule.count)),
        }
        for one in schedule.moves.iter().take(SHOWN) {
            let show = |at: Option<crate::inspect::Moment>, none: &str| {
                at.map_or_else(|| none.to_owned(), |at| clockface.show(at.0, "UTC"))
            };
            text.push_str(&format!("  {} → {}\n", show(one.from, "(none)"), show(one.to, "gone")));
        }
        if schedule.count > SHOWN as u64 {
            text.push_str("  …\n");
        }
    }
    text
}
