//! `punctual prove`: did everything fire that should have, once?

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use chrono::{DateTime, TimeDelta, Utc};

use super::look::{Look, LookArgs, SpanArgs};
use super::named_schedule;
use super::output::{Clockface, Table, print};
use super::when;
use crate::inspect::Moment;
use crate::inspect::prove::{OfSchedule, Report};
use crate::plugins::Plugins;

/// Proves that everything fired that should have, once.
///
/// Computes again what each schedule should have fired, from its own history of edits and pauses, and compares that with the
/// ledger of its fires. Every instant that was due must have fired, or have been skipped for a reason.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  punctual prove                                        all schedules, the last 24 hours
  punctual prove billing --from 2026-11-01 --to 2026-12-01 --tz America/New_York
  punctual prove --from -7d --json
  punctual prove --database sqlite://punctual.db        without a service, or beside it

Columns:
  EXPECTED  instants that were due, by the schedule's history
  FIRED     made a task; LATE of them more than a second after their instant
  SKIPPED   made none, for a reason: overlap, coalesced, misfire, window or calendar
  MISSING   nobody decided them
  DOUBLE    made two tasks, or were decided twice

Exit code 0 if the proof holds, 1 if anything is missing, double or unexpected; also if nothing
could be proven, for which stderr has the reason.")]
pub(super) struct ProveArgs {
    /// One schedule by name or id, also a deleted one [default: all]
    #[arg(value_parser = named_schedule)]
    schedule: Option<String>,
    #[command(flatten)]
    span: SpanArgs,
    #[command(flatten)]
    look: LookArgs,
}

/// By how much the clock here may be ahead of the service's.
const TOLERATED_OFFSET: TimeDelta = TimeDelta::minutes(1);
/// How many schedules in order are shown; the rest are counted.
const SHOWN: usize = 40;
/// How many schedules are told more about than their numbers.
const NOTED: usize = 20;
/// How many instants of each kind are shown of one schedule.
const INSTANTS: usize = 10;

impl ProveArgs {
    pub(super) async fn run(self, plugins: Plugins) -> Result<ExitCode> {
        let zones = when::zones()?;
        // Exit code 1 means that something did not fire, too: nobody should take a typing error for that.
        let nothing_proven = |error| anyhow!("nothing was proven: {error:#}");
        let span = self.span.read(&zones, (TimeDelta::days(-1), TimeDelta::zero()));
        let (from, to) = span.map_err(nothing_proven)?;
        let (report, text) = self.ask(plugins, from, to).await.map_err(nothing_proven)?;
        if self.look.json {
            print(&text)?;
        } else {
            print(&Page { report: &report, zone: self.span.tz.as_deref(), clockface: Clockface::new(zones) }.text())?;
        }
        Ok(if report.holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// The report, and the same as it came.
    async fn ask(&self, plugins: Plugins, from: DateTime<Utc>, to: DateTime<Utc>) -> Result<(Report, String)> {
        match self.look.open(plugins).await? {
            Look::Service(client) => {
                let query = [
                    ("schedule", self.schedule.clone()),
                    ("from", Some(when::written(from))),
                    ("to", Some(when::written(to))),
                ];
                let answer = client.get(&["prove"], &query).await?;
                Ok((answer.read()?, answer.text))
            }
            Look::Database(inspector, progress) => {
                let report = inspector.prove(self.schedule.as_deref(), from, to).await?;
                drop(progress);
                let text = serde_json::to_string(&report)?;
                Ok((report, text))
            }
        }
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
        let zone = self.zone.unwrap_or("UTC");
        let show = |at: Moment| self.clockface.show(at.0, zone);
        let mut text = format!("From {} to {}, zone data {}\n", show(report.from), show(report.to), report.tz_version);
        if report.to.0 - report.now.0 > TOLERATED_OFFSET {
            text.push_str(&format!("It is {}: what is due later was not looked at.\n", show(report.now)));
        }
        if report.schedules.is_empty() {
            return text + "\nThere was no schedule in this stretch of time: nothing to prove.";
        }
        text.push('\n');
        text.push_str(&self.table());
        let mut noted: Vec<_> = report.schedules.iter().map(|schedule| (schedule, self.notes(schedule))).collect();
        noted.retain(|(_, notes)| !notes.is_empty());
        noted.sort_by_key(|(schedule, _)| schedule.holds);
        for (schedule, notes) in noted.iter().take(NOTED) {
            text.push_str(&format!("\n\n{}\n  {}", schedule.name, notes.join("\n  ")));
        }
        if noted.len() > NOTED {
            text.push_str(&format!("\n\n… and notes on {} more schedules; --json has them", noted.len() - NOTED));
        }
        text.push_str("\n\n");
        text.push_str(&self.verdict());
        text
    }

    fn table(&self) -> String {
        let heading = ["SCHEDULE", "EXPECTED", "FIRED", "LATE", "SKIPPED", "MISSING", "DOUBLE", ""];
        let mut table = Table::new(heading).right(&[1, 2, 3, 4, 5, 6]);
        let (well, ill): (Vec<_>, Vec<_>) = self.report.schedules.iter().partition(|schedule| schedule.holds);
        for schedule in ill.iter().chain(well.iter().take(SHOWN)) {
            let numbers = [
                schedule.expected,
                schedule.fired,
                schedule.late,
                schedule.skipped,
                schedule.missing_count,
                schedule.double_count,
            ];
            let verdict = match (schedule.holds, &schedule.error) {
                (true, _) => "ok",
                (false, Some(_)) => "UNKNOWN",
                (false, None) => "WRONG",
            };
            let numbers = numbers.iter().map(u64::to_string);
            table.row([schedule.name.clone()].into_iter().chain(numbers).chain([verdict.to_owned()]));
        }
        let more = well.len().saturating_sub(SHOWN);
        let more = if more > 0 { format!("\n… and {more} more, all ok") } else { String::new() };
        table.text() + &more
    }

    /// What is to be said about one schedule beside its numbers.
    fn notes(&self, schedule: &OfSchedule) -> Vec<String> {
        let zone = self.zone.unwrap_or(&schedule.timezone);
        let show = |at: &Moment| self.clockface.show(at.0, zone);
        let mut notes = Vec::new();
        if let Some(error) = &schedule.error {
            notes.push(format!("cannot be computed again: {error}"));
        }
        for (what, instants, count) in [
            ("MISSING", &schedule.missing, schedule.missing_count),
            ("DOUBLE", &schedule.double, schedule.double_count),
            ("UNEXPECTED, no instant of the schedule", &schedule.unexpected, schedule.unexpected_count),
            ("MISCOUNTED runs of skipped instants, at", &schedule.miscounted, schedule.miscounted.len() as u64),
        ] {
            if count > 0 {
                notes.push(format!("{what}:"));
                notes.extend(instants.iter().take(INSTANTS).map(|at| format!("  {}", show(at))));
                if count > INSTANTS as u64 {
                    notes.push(format!("  … {count} in all; --json lists more"));
                }
            }
        }
        if schedule.skipped > 0 {
            let reasons: Vec<_> =
                schedule.skipped_by.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
            notes.push(format!("skipped: {}", reasons.join(", ")));
        }
        if schedule.late > 0 {
            let lag = punctual_domain::why::duration(TimeDelta::milliseconds(schedule.max_lag_ms));
            notes.push(format!("late: {}, by {lag} at the most", schedule.late));
        }
        for (count, what) in [
            (schedule.pending, "due right now, and need not be decided yet"),
            (schedule.overtaken, "just due when the schedule was edited, paused or deleted"),
            (schedule.filled, "filled in by a backfill alone"),
            (schedule.moved_count, "placed elsewhere by the zone data of then"),
            (schedule.pruned, "older than what retention has kept: nothing can be proven about them"),
            (schedule.manual, "more triggered by hand"),
            (schedule.backfilled, "more by backfill"),
        ] {
            if count > 0 {
                notes.push(format!("{count} {what}"));
            }
        }
        for pause in &schedule.pauses {
            let pause_of = |from: &_| match &pause.to {
                Some(to) => format!("was paused from {} until {}", show(from), show(to)),
                None => format!("paused since {} and still is", show(from)),
            };
            let note = pause.note.as_deref().map_or_else(String::new, |note| format!(" ({note})"));
            notes.push(format!("{}{note}", pause_of(&pause.from)));
        }
        // That somebody made it explains why little was due, and is no news among many.
        if self.report.schedules.len() == 1 {
            notes.extend(schedule.created_at.as_ref().map(|at| format!("created at {}", show(at))));
        }
        notes.extend(schedule.deleted_at.as_ref().map(|at| format!("deleted at {}", show(at))));
        notes
    }

    fn verdict(&self) -> String {
        let sum = |of: fn(&OfSchedule) -> u64| self.report.schedules.iter().map(of).sum::<u64>();
        let (expected, fired, skipped) = (sum(|s| s.expected), sum(|s| s.fired), sum(|s| s.skipped));
        let others = sum(|s| s.pending + s.overtaken + s.filled + s.moved_count);
        let others = if others > 0 { format!(", {others} explained above") } else { String::new() };
        let pruned = match sum(|s| s.pruned) {
            0 => String::new(),
            pruned => format!(" {pruned} are too old to tell: retention removed their fires."),
        };
        if self.report.holds && expected + fired == 0 && pruned.is_empty() {
            return "NOTHING TO PROVE: no instant was due in this stretch of time.".to_owned();
        }
        if self.report.holds {
            return format!(
                "PROVEN: {expected} instants were due; {fired} fired, {skipped} were skipped for a reason{others}. None is \
                 missing, none came twice.{pruned}"
            );
        }
        let wrong: Vec<_> = [
            (sum(|s| s.missing_count), "missing"),
            (sum(|s| s.double_count), "double"),
            (sum(|s| s.unexpected_count), "unexpected"),
            (sum(|s| s.miscounted.len() as u64), "miscounted"),
            (sum(|s| u64::from(s.error.is_some())), "schedules that cannot be computed"),
        ]
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
        format!(
            "NOT PROVEN: {} of {expected} instants that were due.{pruned} `punctual why NAME` tells what a schedule waits for.",
            wrong.join(", ")
        )
    }
}
