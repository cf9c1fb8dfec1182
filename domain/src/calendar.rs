//! Named sets of dates and weekdays on which schedules do not fire.

use std::collections::BTreeSet;

use chrono::{Datelike, NaiveDate, Weekday};
use serde::{Deserialize, Serialize};

/// Dates and weekdays that exclude fires; the schedule's own zone decides what date an instant falls on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calendar {
    /// Its name, by which schedules refer to it.
    pub name: String,
    /// Single days, such as `2026-12-25`.
    #[serde(default)]
    pub dates: BTreeSet<NaiveDate>,
    /// Days of every week.
    #[serde(default, with = "weekday_names")]
    pub weekdays: Vec<Weekday>,
}

impl Calendar {
    /// Whether a fire on that local date is excluded.
    pub fn excludes(&self, date: NaiveDate) -> bool {
        self.dates.contains(&date) || self.weekdays.contains(&date.weekday())
    }
}

/// `mon` … `sun`, as the API writes them.
mod weekday_names {
    use chrono::Weekday;
    use serde::de::{Deserializer, Error};
    use serde::{Deserialize, Serializer};

    pub(super) fn serialize<S: Serializer>(weekdays: &[Weekday], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(weekdays.iter().map(|day| day.to_string().to_lowercase()))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Weekday>, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        names
            .iter()
            .map(|name| name.parse().map_err(|_| D::Error::custom(format!("{name:?} is not a weekday; use mon … sun"))))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_weekdays_exclude() {
        let calendar: Calendar =
            serde_json::from_str(r#"{"name":"closed","dates":["2026-12-25"],"weekdays":["sat","sun"]}"#).unwrap();
        for (date, excluded) in
            [("2026-12-25", true), ("2026-12-24", false), ("2026-12-26", true), ("2027-12-25", true)]
        {
            assert_eq!(calendar.excludes(date.parse().unwrap()), excluded, "{date}");
        }
        assert_eq!(
            serde_json::to_string(&calendar).unwrap(),
            r#"{"name":"closed","dates":["2026-12-25"],"weekdays":["sat","sun"]}"#
        );
        assert!(serde_json::from_str::<Calendar>(r#"{"name":"x","weekdays":["someday"]}"#).is_err());
    }
}
