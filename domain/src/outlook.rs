//! What lies ahead of a schedule, and what lay behind it: its instants, without those that calendars exclude.

use chrono::{DateTime, NaiveDate, NaiveTime, TimeDelta, Utc};

use crate::calendar::Calendar;
use crate::schedule::{Schedule, ScheduleError};
use crate::time::{DstFold, NextFire, Note, Recurrence, Resolution, Style, Zone, ZoneDatabase};

/// How many instants are looked at for a glance ahead; calendars may exclude however many.
const MAX_LOOKED_AT: usize = 10_000;
/// How far ahead clock changes are worth a remark.
const HORIZON: TimeDelta = TimeDelta::days(400);

/// The instants of one schedule.
pub struct Outlook<'a> {
    schedule: &'a Schedule,
    calendars: &'a [Calendar],
    recurrence: Recurrence,
    zone: Zone,
}

/// The instants of a stretch of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stretch {
    /// Those that no calendar excludes, in order.
    pub instants: Vec<DateTime<Utc>>,
    /// How many a calendar excludes.
    pub excluded: u64,
}

/// A stretch has more instants than may be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it has more than {0} instants")]
pub struct TooManyInstants(pub usize);

impl<'a> Outlook<'a> {
    /// Of a schedule that leaves out what those of `calendars` exclude that it names.
    ///
    /// # Errors
    /// When the definition cannot be understood.
    pub fn new(schedule: &'a Schedule, calendars: &'a [Calendar], zones: &ZoneDatabase) -> Result<Self, ScheduleError> {
        let recurrence = schedule.definition.recurrence(zones, schedule.created_at)?;
        let zone = zones.zone(&schedule.definition.timezone)?;
        Ok(Self { schedule, calendars, recurrence, zone })
    }

    /// The next instants after `after` that will fire, at most `count`: as many as `endAt` and `maxFires` allow.
    pub fn next(&self, after: DateTime<Utc>, count: usize) -> Vec<NextFire> {
        let definition = &self.schedule.definition;
        let left = definition.max_fires.map(|most| most.saturating_sub(self.schedule.fires_made));
        let count = left.map_or(count, |left| count.min(usize::try_from(left).unwrap_or(usize::MAX)));
        let mut found = Vec::new();
        let mut after = definition.from(after);
        for _ in 0..MAX_LOOKED_AT {
            if found.len() == count {
                break;
            }
            let Some(fire) = self.recurrence.upcoming(after).next() else { break };
            if definition.end_at.is_some_and(|end_at| fire.at >= end_at) {
                break;
            }
            after = fire.at;
            let local = self.zone.local(fire.at);
            if self.is_excluded(local.date()) {
                // What is left of the date is excluded too.
                after = after.max(self.end_of(local.date()) - TimeDelta::seconds(1));
                continue;
            }
            let offset_seconds = self.zone.offset_seconds_at(fire.at);
            found.push(NextFire { local, offset_seconds, ..fire });
        }
        found
    }

    /// The instants from `from` until before `to`, fired or not, within `startAt` and `endAt`.
    ///
    /// # Errors
    /// When there are more than `most`.
    pub fn between(&self, from: DateTime<Utc>, to: DateTime<Utc>, most: usize) -> Result<Stretch, TooManyInstants> {
        let definition = &self.schedule.definition;
        let to = definition.end_at.map_or(to, |end_at| end_at.min(to));
        let mut stretch = Stretch { instants: Vec::new(), excluded: 0 };
        let mut next = self.recurrence.next_after(definition.from(from - TimeDelta::nanoseconds(1)));
        for looked_at in 0.. {
            let Some(at) = next.filter(|at| *at < to) else { break };
            if looked_at == most {
                return Err(TooManyInstants(most));
            }
            if self.is_excluded(self.zone.local(at).date()) {
                stretch.excluded += 1;
            } else {
                stretch.instants.push(at);
            }
            next = self.recurrence.next_after(at);
        }
        Ok(stretch)
    }

    /// What whoever wrote the schedule may not expect of it, as sentences.
    pub fn remarks(&self, now: DateTime<Utc>) -> Vec<String> {
        let mut remarks = Vec::new();
        if let Recurrence::Cron { expression, zone, dst } = &self.recurrence {
            if expression.is_either_day() {
                let expression = expression.as_str();
                remarks.push(format!(
                    "{expression:?} restricts both the day of the month and the day of the week: it fires when either matches"
                ));
            }
            let otherwise = (!expression.has_an_obvious_style()).then(|| Recurrence::Cron {
                expression: expression.in_the_other_style(),
                zone: zone.clone(),
                dst: *dst,
            });
            remarks.extend(self.remarks_on_clocks(now, expression.style(), otherwise.as_ref()));
        }
        remarks.extend(self.remark_on_first(now));
        remarks
    }

    fn remark_on_first(&self, now: DateTime<Utc>) -> Option<String> {
        match self.next(now, 1).first() {
            Some(first) if first.at - now > TimeDelta::days(366) => {
                Some(format!("it fires for the first time on {}, more than a year from now", first.local.date()))
            }
            Some(_) => None,
            None if self.calendars.is_empty() => Some("it does not fire any more: endAt or maxFires is reached".into()),
            None => Some(
                "it does not fire as far as one can see: calendars exclude its dates, or endAt or maxFires is reached"
                    .into(),
            ),
        }
    }

    /// The first time that clocks jump over what it asks for, and the first time that they repeat it. Where it would fire `otherwise`
    /// in the other style, the style is what has to be said.
    fn remarks_on_clocks(&self, now: DateTime<Utc>, style: Style, otherwise: Option<&Recurrence>) -> Vec<String> {
        let (mut gap, mut fold) = (None, None);
        let (mut skipped_on, mut repeated_on) = (None, None);
        let mut after = now;
        while let Some(change) = self.zone.next_change(after).filter(|change| change.at - now < HORIZON) {
            after = change.at;
            let width = TimeDelta::seconds(i64::from((change.after - change.before).abs()));
            let (date, zone) = (self.zone.local(change.at).date(), self.zone.name());
            let just_before = change.at - TimeDelta::seconds(1);
            let next = self.recurrence.next_after(just_before);
            if otherwise.is_some_and(|otherwise| otherwise.next_after(just_before) != next) {
                let on = if change.after > change.before { &mut skipped_on } else { &mut repeated_on };
                on.get_or_insert(date);
            } else if change.after > change.before {
                let at_its_end = self.recurrence.upcoming(just_before).next();
                if at_its_end.is_some_and(|fire| fire.at == change.at && fire.note == Some(Note::Gap)) {
                    let local = self.zone.local(change.at).time();
                    gap.get_or_insert_with(|| {
                        format!("on {date} clocks in {zone} skip a local time it asks for: it fires at {local} instead")
                    });
                }
            } else {
                let first = self.recurrence.upcoming(change.at - width - TimeDelta::seconds(1)).next();
                let comes_twice = first.is_some_and(|fire| fire.at < change.at && fire.note == Some(Note::Fold));
                let fires = match (self.schedule.definition.dst_fold, style) {
                    (Some(DstFold::Both), _) => "it fires both times",
                    (_, Style::Point) | (Some(DstFold::First), _) => "it fires the first time only",
                    // A cadence goes on as it always does.
                    (None, Style::Cadence) => continue,
                };
                if comes_twice {
                    fold.get_or_insert_with(|| {
                        format!("on {date} clocks in {zone} show a local time it asks for twice: {fires}")
                    });
                }
            }
        }
        [gap, fold, self.remark_on_style(style, skipped_on, repeated_on)].into_iter().flatten().collect()
    }

    /// What its style does, with the dates on which that shows.
    fn remark_on_style(
        &self,
        style: Style,
        skipped_on: Option<NaiveDate>,
        repeated_on: Option<NaiveDate>,
    ) -> Option<String> {
        let (follows, skipped, repeated, because) = match style {
            Style::Cadence => (
                "elapsed time",
                "do not fire",
                "fire both times",
                "because its seconds, its minute or its hour starts with *",
            ),
            Style::Point => (
                "the clock",
                "fire once, right after",
                "fire the first time only",
                "because neither its seconds nor its minute nor its hour starts with *",
            ),
        };
        let does: Vec<_> = [
            skipped_on.map(|date| format!("times of day that are skipped, as on {date}, {skipped}")),
            repeated_on.map(|date| format!("times of day that come twice, as on {date}, {repeated}")),
        ]
        .into_iter()
        .flatten()
        .collect();
        let (does, zone) = (does.join(", and "), self.zone.name());
        (!does.is_empty()).then(|| format!("when clocks in {zone} change, it follows {follows}: {does}; {because}"))
    }

    /// The first instant after a date.
    fn end_of(&self, date: NaiveDate) -> DateTime<Utc> {
        let midnight = date.succ_opt().unwrap_or(date).and_time(NaiveTime::MIN);
        match self.zone.resolve(midnight) {
            Resolution::Unique { at } => at,
            Resolution::Gap { end } => end,
            Resolution::Fold { first, .. } => first,
        }
    }

    fn is_excluded(&self, date: NaiveDate) -> bool {
        let named = &self.schedule.definition.exclude_calendars;
        self.calendars.iter().any(|calendar| named.contains(&calendar.name) && calendar.excludes(date))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Definition, Rhythm};
    use crate::time::DstGap;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    fn schedule(cron: &str, zone: &str, change: impl FnOnce(&mut Definition)) -> Schedule {
        let mut definition = Definition::new("s", Rhythm::Cron(cron.into()), zone, &"t".parse().unwrap());
        change(&mut definition);
        Schedule::new(definition, at("2026-11-16T12:00:00Z"), &ZoneDatabase::bundled()).unwrap()
    }

    fn closed() -> Vec<Calendar> {
        let text = r#"{"name":"closed","dates":["2026-11-18"],"weekdays":["sat","sun"]}"#;
        vec![serde_json::from_str(text).unwrap()]
    }

    fn next(schedule: &Schedule, calendars: &[Calendar], count: usize) -> Vec<String> {
        let outlook = Outlook::new(schedule, calendars, &ZoneDatabase::bundled()).unwrap();
        let next = outlook.next(schedule.created_at, count);
        next.iter().map(|fire| format!("{} {}", fire.local, fire.offset_seconds / 3600)).collect()
    }

    fn remarks(schedule: &Schedule, calendars: &[Calendar]) -> Vec<String> {
        let outlook = Outlook::new(schedule, calendars, &ZoneDatabase::bundled()).unwrap();
        outlook.remarks(schedule.created_at)
    }

    #[test]
    fn excluded_dates_are_left_out_in_the_schedules_zone() {
        let calendars = closed();
        let evening = schedule("30 22 * * *", "America/Edmonton", |d| d.exclude_calendars = vec!["closed".into()]);
        let expected = ["2026-11-16 22:30:00 -6", "2026-11-17 22:30:00 -6", "2026-11-19 22:30:00 -6"];
        assert_eq!(next(&evening, &calendars, 3), expected);
        let every_second = schedule("* * * * * *", "America/Edmonton", |d| d.exclude_calendars = vec!["closed".into()]);
        let outlook = Outlook::new(&every_second, &calendars, &ZoneDatabase::bundled()).unwrap();
        let after_friday = outlook.next(at("2026-11-21T05:59:59Z"), 1);
        assert_eq!(after_friday[0].at, at("2026-11-23T06:00:00Z"), "not one second of the week-end, and none lost");
        let unnamed = schedule("30 22 * * *", "America/Edmonton", |_| {});
        assert_eq!(next(&unnamed, &calendars, 3)[2], "2026-11-18 22:30:00 -6");
    }

    #[test]
    fn the_end_and_the_most_fires_are_respected() {
        let ends = schedule("@daily", "UTC", |d| d.end_at = Some(at("2026-11-19T00:00:00Z")));
        assert_eq!(next(&ends, &[], 9).len(), 2);
        let three = Schedule { fires_made: 1, ..schedule("@daily", "UTC", |d| d.max_fires = Some(3)) };
        assert_eq!(next(&three, &[], 9).len(), 2);
        let later = schedule("@daily", "UTC", |d| d.start_at = Some(at("2027-01-01T00:00:00Z")));
        assert_eq!(next(&later, &[], 1), ["2027-01-01 00:00:00 0"], "its start itself may fire");
        let interval = schedule("@daily", "Asia/Tokyo", |d| d.rhythm = Rhythm::Every(3_600_000));
        assert_eq!(next(&interval, &[], 1), ["2026-11-16 22:00:00 9"], "an interval shows its zone's clocks too");
    }

    #[test]
    fn calendars_that_exclude_everything_end_the_search() {
        let mut never = closed();
        never[0].weekdays = (0..7).map(|day| chrono::Weekday::try_from(day).unwrap()).collect();
        let nothing = schedule("* * * * * *", "UTC", |d| d.exclude_calendars = vec!["closed".into()]);
        assert_eq!(next(&nothing, &never, 5), [""; 0]);
        assert!(remarks(&nothing, &never)[0].contains("calendars exclude"));
    }

    #[test]
    fn a_stretch_has_its_start_and_not_its_end() {
        let calendars = closed();
        let daily = schedule("0 12 * * *", "UTC", |d| d.exclude_calendars = vec!["closed".into()]);
        let outlook = Outlook::new(&daily, &calendars, &ZoneDatabase::bundled()).unwrap();
        let (from, to) = (at("2026-11-17T12:00:00Z"), at("2026-11-20T12:00:00Z"));
        let expected = Stretch { instants: vec![from, at("2026-11-19T12:00:00Z")], excluded: 1 };
        assert_eq!(outlook.between(from, to, 3), Ok(expected));
        assert_eq!(outlook.between(from, to, 2), Err(TooManyInstants(2)));
        assert!(outlook.between(to, from, 2).unwrap().instants.is_empty());
    }

    #[test]
    fn what_surprises_is_remarked() {
        for (cron, zone, expected) in [
            ("0 9 13 * 5", "UTC", vec!["either matches"]),
            ("0 9 * * 5", "America/New_York", vec![]),
            ("30 2 * * *", "America/New_York", vec!["fires at 03:00:00 instead"]),
            ("30 1 * * *", "America/New_York", vec!["first time only"]),
            ("*/15 * * * *", "America/New_York", vec![]),
            ("*/15 2 * * *", "America/New_York", vec!["fires at 03:00:00 instead"]),
            ("30 2 * * *", "America/Edmonton", vec![]),
            ("0 0 29 2 *", "UTC", vec!["more than a year"]),
            // Where the style makes a difference, and is not what everybody expects, it is said.
            (
                "*/15 2 * * *",
                "Europe/Berlin",
                vec!["fires at 03:00:00 instead", "elapsed time: times of day that come twice"],
            ),
            (
                "0-59/15 2 * * *",
                "Europe/Berlin",
                vec!["fires at 03:00:00 instead", "the clock: times of day that come twice"],
            ),
            ("0 */2 * * *", "America/New_York", vec!["skipped, as on 2027-03-14, do not fire; because its seconds"]),
            (
                "*/15 1-2 * * *",
                "America/New_York",
                vec!["2027-03-14, do not fire, and times of day that come twice, as on 2027-11-07"],
            ),
            (
                "15 0-23 * * *",
                "America/New_York",
                vec!["2027-03-14, fire once, right after, and times of day that come twice"],
            ),
            ("* * * * * *", "America/New_York", vec![]),
            ("15 * * * *", "Australia/Lord_Howe", vec![]),
            ("0 */6 * * *", "America/New_York", vec![]),
            ("*/15 1-2 * * mon-fri", "America/New_York", vec![]),
            ("*/15 1-2 * * *", "UTC", vec![]),
            ("*/15 1-2 * * *", "America/Edmonton", vec![]),
        ] {
            let found = remarks(&schedule(cron, zone, |_| {}), &[]);
            assert_eq!(found.len(), expected.len(), "{cron}: {found:?}");
            assert!(found.iter().zip(expected).all(|(found, part)| found.contains(part)), "{cron}: {found:?}");
        }
        let wishes = |d: &mut Definition| (d.dst_gap, d.dst_fold) = (Some(DstGap::Skip), Some(DstFold::First));
        let said = remarks(&schedule("*/15 1-2 * * *", "America/New_York", wishes), &[]);
        assert!(
            !said.iter().any(|said| said.contains("follows")),
            "what it wishes for is no matter of style: {said:?}"
        );
        let done = Schedule { fires_made: 1, ..schedule("@daily", "UTC", |d| d.max_fires = Some(1)) };
        assert!(remarks(&done, &[])[0].contains("any more"));
    }
}
