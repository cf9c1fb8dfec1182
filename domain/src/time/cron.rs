//! Cron expressions: parsed strictly once, then searched in local time without any zone.
//!
//! Parsing compiles the fields into bit sets. The days of a month depend only on how long the month
//! is and on which weekday it starts, so all of them are worked out while parsing: 4 lengths by 7
//! weekdays. The search is then a few bit operations, and whether an expression can ever fire is
//! known without searching, since every kind of month comes back within 400 years.

use std::fmt;

use chrono::{Datelike, NaiveDate};

use super::field::{self, DaysOfMonth, DaysOfWeek};
use super::wall::Wall;

/// A cron expression as its user wrote it, known to be readable and to fire some day.
#[derive(Clone, PartialEq, Eq)]
pub struct Expression {
    text: String,
    style: Style,
    seconds: u64,
    minutes: u64,
    hours: u64,
    /// Bit n is month n.
    months: u64,
    days: DaysByMonth,
    day_rule: DayRule,
}

/// How an expression behaves when clocks change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Its seconds, minute or hour field starts with `*`: it follows real elapsed time.
    Cadence,
    /// It names times of day: each fires once per date.
    Point,
}

/// Why an expression was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    #[error("cron expression {expression} is not valid: {message}")]
    Invalid { expression: String, message: String },
    #[error(
        "cron expression {expression} can never fire: no month it names has such a day, change the day-of-month or the month"
    )]
    NeverFires { expression: String },
}

/// The longest expression that is read; every useful one is far shorter.
const MAX_LENGTH: usize = 1_000;
/// The last year in which a fire is looked for.
const LAST_YEAR: i32 = 9_999;

impl Expression {
    /// Reads five fields, six with leading seconds, or a macro such as `@daily`.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        let invalid = |message: String| ExpressionError::Invalid { expression: quote(text), message };
        if text.len() > MAX_LENGTH {
            return Err(invalid(format!("it has {} characters, keep it under {MAX_LENGTH}", text.len())));
        }
        if let Some(stray) = text.chars().find(|&c| !is_allowed(c)) {
            return Err(invalid(format!("it holds the character {stray:?}, write it in plain ASCII on one line")));
        }
        let upper = text.to_ascii_uppercase();
        let spelled_out = expand_macro(upper.trim()).map_err(invalid)?;
        let fields: Vec<&str> = spelled_out.split_ascii_whitespace().collect();
        let [second, minute, hour, day_of_month, month, day_of_week] = match fields[..] {
            [minute, hour, day, month, weekday] => ["0", minute, hour, day, month, weekday],
            [second, minute, hour, day, month, weekday] => [second, minute, hour, day, month, weekday],
            [] => {
                return Err(invalid("it is empty, write five fields or @daily".to_string()));
            }
            _ => {
                return Err(invalid(format!(
                    "its number of fields is {}, write five (minute hour day-of-month month day-of-week) or six with seconds first",
                    fields.len()
                )));
            }
        };
        let days_of_month = DaysOfMonth::read(day_of_month).map_err(invalid)?;
        let days_of_week = DaysOfWeek::read(day_of_week).map_err(invalid)?;
        let rule =
            if is_restricted(day_of_month) && is_restricted(day_of_week) { DayRule::Either } else { DayRule::Both };
        let cadence = [second, minute, hour].iter().any(|f| f.starts_with('*'));
        let expression = Self {
            text: text.to_string(),
            style: if cadence { Style::Cadence } else { Style::Point },
            seconds: field::SECOND.read(second).map_err(invalid)?,
            minutes: field::MINUTE.read(minute).map_err(invalid)?,
            hours: field::HOUR.read(hour).map_err(invalid)?,
            months: field::MONTH.read(month).map_err(invalid)?,
            days: DaysByMonth::new(&days_of_month, &days_of_week, rule),
            day_rule: rule,
        };
        if !expression.days.any_in(expression.months) {
            return Err(ExpressionError::NeverFires { expression: quote(text) });
        }
        Ok(expression)
    }

    /// The text as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn style(&self) -> Style {
        self.style
    }

    /// The same times of day, in the other style.
    pub(crate) fn in_the_other_style(&self) -> Self {
        let style = match self.style {
            Style::Cadence => Style::Point,
            Style::Point => Style::Cadence,
        };
        Self { style, ..self.clone() }
    }

    /// Whether its style surprises nobody: a cadence that goes on through every hour, or a point at one time of day.
    pub(crate) fn has_an_obvious_style(&self) -> bool {
        match self.style {
            Style::Cadence => self.hours.count_ones() == 24,
            Style::Point => [self.seconds, self.minutes, self.hours].iter().all(|times| times.count_ones() == 1),
        }
    }

    /// Whether both day fields restrict it, so that either may match.
    pub fn is_either_day(&self) -> bool {
        self.day_rule == DayRule::Either
    }

    /// Finds the first matching local time at or after `from`, or none before the year 10000.
    pub(super) fn next_wall(&self, from: Wall) -> Option<Wall> {
        let date = from.date()?;
        let mut day = self.next_date(date)?;
        if day == date {
            if let Some(second) = self.next_second_of_day(from.second_of_day()) {
                return Some(Wall::new(day, second));
            }
            day = self.next_date(date.succ_opt()?)?;
        }
        Some(Wall::new(day, self.next_second_of_day(0)?))
    }

    /// Finds the first matching date at or after `from`.
    fn next_date(&self, from: NaiveDate) -> Option<NaiveDate> {
        let (mut year, mut month) = (from.year(), from.month());
        let mut passed_days = from.day() - 1;
        while year <= LAST_YEAR {
            if self.months & (1 << month) != 0 {
                let first = NaiveDate::from_ymd_opt(year, month, 1)?;
                let days = self.days.in_month(first) >> passed_days << passed_days;
                if days != 0 {
                    return first.with_day(days.trailing_zeros() + 1);
                }
            }
            passed_days = 0;
            (year, month) = match month {
                12 => (year + 1, 1),
                _ => (year, month + 1),
            };
        }
        None
    }

    /// Finds the first matching second of a day at or after `from`.
    fn next_second_of_day(&self, from: u32) -> Option<u32> {
        let (hour, minute, second) = (from / 3_600, from / 60 % 60, from % 60);
        if self.hours & (1 << hour) != 0 {
            if self.minutes & (1 << minute) != 0
                && let Some(second) = next_bit(self.seconds, second)
            {
                return Some(hour * 3_600 + minute * 60 + second);
            }
            if let Some(minute) = next_bit(self.minutes, minute + 1) {
                return Some(hour * 3_600 + minute * 60 + self.seconds.trailing_zeros());
            }
        }
        let hour = next_bit(self.hours, hour + 1)?;
        Some(hour * 3_600 + self.minutes.trailing_zeros() * 60 + self.seconds.trailing_zeros())
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expression").field(&self.text).finish()
    }
}

/// How the two day fields combine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DayRule {
    Either,
    Both,
}

/// The matching days of every kind of month; bit n of a set is day n + 1.
#[derive(Clone, PartialEq, Eq)]
struct DaysByMonth([[u32; 7]; 4]);

impl DaysByMonth {
    fn new(days_of_month: &DaysOfMonth, days_of_week: &DaysOfWeek, rule: DayRule) -> Self {
        let mut sets = [[0; 7]; 4];
        for (length, sets) in (28..).zip(&mut sets) {
            for (first_weekday, set) in (0..).zip(sets) {
                let month = Month { length, first_weekday };
                let (by_month, by_week) = (month.days(days_of_month), month.weekdays(days_of_week));
                *set = match rule {
                    DayRule::Either => by_month | by_week,
                    DayRule::Both => by_month & by_week,
                };
            }
        }
        Self(sets)
    }

    fn in_month(&self, first: NaiveDate) -> u32 {
        let length = u32::from(first.num_days_in_month());
        let weekday = first.weekday().num_days_from_sunday();
        self.0[(length - 28) as usize][weekday as usize]
    }

    /// Whether any of these months has a matching day in some year.
    fn any_in(&self, months: u64) -> bool {
        (1..=12).filter(|month| months & (1 << month) != 0).any(|month| {
            let lengths = match month {
                2 => 28..=29,
                4 | 6 | 9 | 11 => 30..=30,
                _ => 31..=31,
            };
            lengths.flat_map(|length: usize| self.0[length - 28]).any(|days| days != 0)
        })
    }
}

/// A kind of month: all that the day fields can depend on.
struct Month {
    length: u32,
    /// The weekday of day 1, Sunday being 0.
    first_weekday: u32,
}

impl Month {
    fn weekday(&self, day: u32) -> u32 {
        (self.first_weekday + day - 1) % 7
    }

    /// The days that the day-of-month field names.
    fn days(&self, field: &DaysOfMonth) -> u32 {
        let mut days = (field.days >> 1) & self.all();
        if field.last {
            days |= day_bit(self.length);
        }
        if field.last_weekday {
            days |= day_bit(self.nearest_weekday(self.length));
        }
        if field.nearest_weekdays != 0 {
            days |= (1..=self.length)
                .filter(|day| field.nearest_weekdays & (1 << day) != 0)
                .fold(0, |days, day| days | day_bit(self.nearest_weekday(day)));
        }
        days
    }

    /// The days that the day-of-week field names.
    fn weekdays(&self, field: &DaysOfWeek) -> u32 {
        const EVERY_SEVENTH: u32 = 1 | 1 << 7 | 1 << 14 | 1 << 21 | 1 << 28;
        let mut days = 0;
        for weekday in 0..7 {
            let first = (weekday + 7 - self.first_weekday) % 7;
            let every = (EVERY_SEVENTH << first) & self.all();
            if field.days & (1 << weekday) != 0 {
                days |= every;
            }
            if field.last & (1 << weekday) != 0 {
                days |= day_bit(every.ilog2() + 1);
            }
            for nth in (0..5).filter(|nth| field.nth[weekday as usize] & (1 << nth) != 0) {
                days |= every & (0x7f << (7 * nth));
            }
        }
        days
    }

    fn all(&self) -> u32 {
        u32::MAX >> (32 - self.length)
    }

    /// The Monday to Friday nearest to a day, without leaving the month.
    fn nearest_weekday(&self, day: u32) -> u32 {
        match self.weekday(day) {
            6 if day == 1 => 3,
            6 => day - 1,
            0 if day == self.length => day - 2,
            0 => day + 1,
            _ => day,
        }
    }
}

/// The bit of a day in a set of days of a month.
fn day_bit(day: u32) -> u32 {
    1 << (day - 1)
}

fn is_allowed(c: char) -> bool {
    c.is_ascii_graphic() || c == ' ' || c == '\t'
}

/// A day field counts as a restriction unless it starts with `*` or is `?`, as in Debian's cron.
fn is_restricted(field: &str) -> bool {
    !field.starts_with('*') && field != "?"
}

fn expand_macro(text: &str) -> Result<&str, String> {
    match text {
        "@HOURLY" => Ok("0 * * * *"),
        "@DAILY" | "@MIDNIGHT" => Ok("0 0 * * *"),
        "@WEEKLY" => Ok("0 0 * * 0"),
        "@MONTHLY" => Ok("0 0 1 * *"),
        "@YEARLY" | "@ANNUALLY" => Ok("0 0 1 1 *"),
        "@REBOOT" => Err("@reboot names no time, and a schedule outlives restarts".to_string()),
        _ if text.starts_with('@') => {
            Err("there is no such macro, use @hourly, @daily, @weekly, @monthly, @yearly or five fields".to_string())
        }
        _ => Ok(text),
    }
}

fn next_bit(set: u64, from: u32) -> Option<u32> {
    let rest = set.checked_shr(from)?;
    (rest != 0).then(|| from + rest.trailing_zeros())
}

/// Quotes what a user wrote for a message, shortened if it is long.
pub(super) fn quote(text: &str) -> String {
    const SHOWN: usize = 60;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}
