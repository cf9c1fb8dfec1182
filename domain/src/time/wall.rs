//! Local time as a plain count of seconds, kept apart from instants by its type.

use chrono::{NaiveDate, NaiveDateTime};

/// Seconds in a day of the wall clock.
const DAY: i64 = 86_400;

/// A reading of a wall clock, in seconds since its own 1970-01-01 00:00:00.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Wall(i64);

impl Wall {
    pub(super) fn new(date: NaiveDate, second_of_day: u32) -> Self {
        Self(i64::from(date.to_epoch_days()) * DAY + i64::from(second_of_day))
    }

    /// What a clock with this offset shows at an instant, both in seconds.
    pub(super) fn at(instant: i64, offset: i32) -> Self {
        Self(instant + i64::from(offset))
    }

    /// The instant at which a clock with this offset shows this reading.
    pub(super) fn instant(self, offset: i32) -> i64 {
        self.0 - i64::from(offset)
    }

    pub(super) fn next_second(self) -> Self {
        Self(self.0 + 1)
    }

    /// The first reading of the next date.
    pub(super) fn next_midnight(self) -> Self {
        Self((self.0.div_euclid(DAY) + 1) * DAY)
    }

    /// The first reading of this date.
    pub(super) fn midnight(self) -> Self {
        Self(self.0.div_euclid(DAY) * DAY)
    }

    pub(super) fn second_of_day(self) -> u32 {
        self.0.rem_euclid(DAY) as u32
    }

    pub(super) fn date(self) -> Option<NaiveDate> {
        NaiveDate::from_epoch_days(i32::try_from(self.0.div_euclid(DAY)).ok()?)
    }
}

impl From<NaiveDateTime> for Wall {
    /// Drops a fraction of a second.
    fn from(local: NaiveDateTime) -> Self {
        Self(local.and_utc().timestamp())
    }
}
