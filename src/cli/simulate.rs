//! `punctual simulate`: what all schedules would do in a stretch of time.

use std::process::ExitCode;

use anyhow::Result;
use chrono::TimeDelta;

use super::look::{Look, LookArgs, SpanArgs};
use super::output::{Clockface, Table, print};
use super::when;
use crate::inspect::Moment;
use crate::inspect::simulate::{OfSchedule, Report};
use crate::plugins::Plugins;

/// Tells what all schedules would do in a stretch of time. Nothing is written, nothing fires.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  punctual simulate                                     the next 24 hours
  punctual simulate --from 2026-12-01 --to 2026-12-08 --tz America/New_York
  punctual simulate --to +30d --json
  punctual simulate --database sqlite://punctual.db     without a service, or beside it

PEAK is the largest number of fires in one minute: where many schedules meet, move some, or give
them --jitter. What a schedule's overlapPolicy will skip depends on how long its tasks
take, and is not foreseen.")]
pub(super) struct SimulateArgs {
    #[command(flatten)]
    span: SpanArgs,
    #[command(flatten)]
    look: LookArgs,
}

/// How many schedules are shown; the rest are added up.
const SHOWN: usize = 40;
/// Up to how many hours are shown one by one; more are added up by day.
const HOURS: usize = 48;
/// How long the longest bar is.
const BAR: u64 = 40;

impl SimulateArgs {
    pub(super) async fn run(self, plugins: Plugins) -> Result<ExitCode> {
        let zones = when::zones()?;
        let (from, to) = self.span.read(&zones, (TimeDelta::zero(), TimeDelta::days(1)))?;
        let (report, text) = match self.look.open(plugins).await? {
            Look::Service(client) => {
                let query = [("from", Some(when::written(from))), ("to", Some(when::written(to)))];
                let answer = client.get(&["simulate"], &query).await?;
                (answer.read::<Report>()?, answer.text)
            }
            Look::Database(inspector, progress) => {
                let report = inspector.simulate(from, to).await?;
                drop(progress);
                let text = serde_json::to_string(&report)?;
                (report, text)
            }
        };
        if self.look.json {
            print(&text)?;
        } else {
            print(&Page { report: &report, zone: self.span.tz.as_deref(), clockface: Clockface::new(zones) }.text())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A report on paper.
struct Page<'a> {
    report: &'a Report,
    /// The zone to show times in; each schedule's own if there is none.
    zone: Option<&'a str>,
    clockface: Clockface,
}

impl Page<'_> {
    fn text(&self) -> String {
        let report = self.report;
        let (from, to) = (self.show(report.from), self.show(report.to));
        let mut text = format!("From {from} to {to}, zone data {}\n\n", report.tz_version);
        if report.schedules.is_empty() {
            return text + "There are no schedules; `punctual schedule add` makes one.";
        }
        text.push_str(&self.schedules());
        text.push_str("\n\n");
        text.push_str(&self.histogram());
        if !report.busiest.is_empty() {
            text.push_str(&format!("\n\nBusiest minutes ({})\n", self.zone.unwrap_or("UTC")));
            text.push_str(&self.busiest());
        }
        text.push_str(&format!("\n\n{} fires of {} schedules", report.fires, report.schedules.len()));
        text
    }

    fn show(&self, at: Moment) -> String {
        self.clockface.show(at.0, self.zone.unwrap_or("UTC"))
    }

    fn schedules(&self) -> String {
        let mut table = Table::new(["SCHEDULE", "TOPIC", "FIRES", "FIRST", "LAST", "ZONE", ""]).right(&[2]);
        for schedule in self.report.schedules.iter().take(SHOWN) {
            let zone = self.zone.unwrap_or(&schedule.timezone);
            let show = |at: Option<Moment>| at.map_or_else(|| "-".into(), |at| self.clockface.show(at.0, zone));
            table.row([
                schedule.name.clone(),
                schedule.topic.clone(),
                schedule.fires.to_string(),
                show(schedule.first),
                show(schedule.last),
                schedule.timezone.clone(),
                note(schedule),
            ]);
        }
        let rest = self.report.schedules.get(SHOWN..).unwrap_or_default();
        let fires: u64 = rest.iter().map(|schedule| schedule.fires).sum();
        let more = match rest.len() {
            0 => String::new(),
            more => format!("\n… and {more} more with {fires} fires; --json lists them"),
        };
        table.text() + &more
    }

    /// Fires by hour, or by day where that would be too many lines.
    fn histogram(&self) -> String {
        let hours = &self.report.hours;
        let by_day = hours.len() > HOURS;
        let mut lines: Vec<(String, u64, u64, Moment)> = Vec::new();
        for hour in hours {
            let shown = self.show(hour.at);
            let name = if by_day { shown[..10].to_owned() } else { shown[..16].to_owned() };
            match lines.last_mut() {
                Some((last, fires, peak, peak_at)) if *last == name => {
                    *fires += hour.fires;
                    if hour.peak > *peak {
                        (*peak, *peak_at) = (hour.peak, hour.peak_at);
                    }
                }
                _ => lines.push((name, hour.fires, hour.peak, hour.peak_at)),
            }
        }
        let most = lines.iter().map(|(_, fires, ..)| *fires).max().unwrap_or_default().max(1);
        let zone = self.zone.unwrap_or("UTC");
        let name = format!("{} ({zone})", if by_day { "DAY" } else { "HOUR" });
        let mut table = Table::new([&name, "FIRES", "PEAK", "AT", ""]).right(&[1, 2]);
        for (name, fires, peak, peak_at) in lines {
            let bar = "█".repeat((fires * BAR).div_ceil(most) as usize);
            let (peak, at) = match peak {
                0 => ("-".to_owned(), String::new()),
                peak => (peak.to_string(), self.show(peak_at)[11..16].to_owned()),
            };
            table.row([name, fires.to_string(), peak, at, bar]);
        }
        table.text()
    }

    fn busiest(&self) -> String {
        let line = |minute: &crate::inspect::simulate::Minute| {
            let at = &self.show(minute.at)[..16];
            let names: Vec<_> = minute.schedules.iter().take(4).map(String::as_str).collect();
            let more = if minute.schedules.len() > names.len() { ", …" } else { "" };
            format!("  {at}  {} fires: {}{more}", minute.fires, names.join(", "))
        };
        self.report.busiest.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

fn note(schedule: &OfSchedule) -> String {
    let mut notes = Vec::new();
    notes.extend(schedule.error.clone());
    if schedule.paused {
        notes.push("paused".to_owned());
    }
    if schedule.excluded > 0 {
        notes.push(format!("{} more excluded by a calendar", schedule.excluded));
    }
    notes.join("; ")
}
