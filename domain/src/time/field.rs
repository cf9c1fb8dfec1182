//! One field of a cron expression: what may stand in it.
//!
//! The check is strict, because a lenient reader fires at times nobody asked for. What passes is
//! rewritten in numbers and expanded by croner; `L`, `W` and `#` depend on the month and stay ours.

use croner::CronComponent;

use super::cron::quote;

/// A field's name in messages, its numbers, and its words.
pub(super) struct Field {
    name: &'static str,
    min: u32,
    max: u32,
    /// The last value that `*` stands for: weekday 7 is a second spelling of Sunday.
    star_max: u32,
    /// Three-letter names, the first standing for `min`.
    words: &'static [&'static str],
    /// What else may stand in the field, for messages.
    specials: &'static str,
}

pub(super) const SECOND: Field = Field::numeric("second", 0, 59);
pub(super) const MINUTE: Field = Field::numeric("minute", 0, 59);
pub(super) const HOUR: Field = Field::numeric("hour", 0, 23);
pub(super) const DAY_OF_MONTH: Field =
    Field { specials: ", \"?\", \"L\", \"LW\", \"15W\"", ..Field::numeric("day-of-month", 1, 31) };
pub(super) const MONTH: Field = Field {
    words: &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"],
    ..Field::numeric("month", 1, 12)
};
pub(super) const DAY_OF_WEEK: Field = Field {
    star_max: 6,
    words: &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
    specials: ", \"?\", \"5L\", \"5#2\"",
    ..Field::numeric("day-of-week", 0, 7)
};

/// The day-of-month field: bit n of a set is day n.
#[derive(Default)]
pub(super) struct DaysOfMonth {
    pub(super) days: u32,
    /// `nW`: the weekday nearest to day n, within the month.
    pub(super) nearest_weekdays: u32,
    /// `L`.
    pub(super) last: bool,
    /// `LW`.
    pub(super) last_weekday: bool,
}

/// The day-of-week field: bit n of a set is weekday n, Sunday being 0.
#[derive(Default)]
pub(super) struct DaysOfWeek {
    pub(super) days: u8,
    /// `n#k`: bit k-1 of entry n is the k-th weekday n of the month.
    pub(super) nth: [u8; 7],
    /// `nL`: the last weekday n of the month.
    pub(super) last: u8,
}

impl Field {
    const fn numeric(name: &'static str, min: u32, max: u32) -> Self {
        Self { name, min, max, star_max: max, words: &[], specials: "" }
    }

    /// Reads a field without specials; bit n of the answer is value n.
    pub(super) fn read(&self, text: &str) -> Result<u64, String> {
        let items = self.items(text)?;
        let plain: Result<Vec<String>, String> = items.into_iter().map(|item| self.plain(item)).collect();
        self.expand(&plain?)
    }

    fn items<'a>(&self, text: &'a str) -> Result<Vec<&'a str>, String> {
        let items: Vec<&str> = text.split(',').collect();
        if items.iter().any(|item| item.is_empty()) {
            return Err(format!("the {} field {text:?} has an empty list item, remove the extra comma", self.name));
        }
        Ok(items)
    }

    /// Checks `*`, a value or a range, with or without a step, and rewrites it in numbers.
    fn plain(&self, item: &str) -> Result<String, String> {
        let (range, step) = match item.split_once('/') {
            Some((range, step)) => (range, Some(self.step(item, step)?)),
            None => (item, None),
        };
        let (first, last) = if range == "*" {
            (self.min, self.star_max)
        } else if let Some((first, last)) = range.split_once('-') {
            (self.value(item, first)?, self.value(item, last)?)
        } else {
            let value = self.value(item, range)?;
            return match step {
                None => Ok(value.to_string()),
                Some(step) => Err(format!(
                    "in the {} field {item:?} is a step without a range, write \"{value}-{}/{step}\" or \"*/{step}\"",
                    self.name, self.star_max
                )),
            };
        };
        if first > last {
            return Err(format!(
                "in the {} field the range {range:?} runs backwards, write \"{first}-{},{}-{last}\"",
                self.name, self.star_max, self.min
            ));
        }
        Ok(format!("{first}-{last}/{}", step.unwrap_or(1)))
    }

    fn step(&self, item: &str, text: &str) -> Result<u32, String> {
        let size = self.star_max - self.min + 1;
        match digits(text) {
            Some(step) if (1..=size).contains(&step) => Ok(step),
            _ => Err(format!("the {} field {item:?} needs a step from 1 to {size} after the slash", self.name)),
        }
    }

    /// Reads one number or one whole name.
    fn value(&self, item: &str, text: &str) -> Result<u32, String> {
        if let Some(position) = self.words.iter().position(|word| *word == text) {
            return Ok(self.min + position as u32);
        }
        match digits(text) {
            Some(value) if (self.min..=self.max).contains(&value) => Ok(value),
            Some(_) => Err(format!("{} {} is out of range, use {} to {}", self.name, quote(text), self.min, self.max)),
            None => Err(self.unreadable(item)),
        }
    }

    fn unreadable(&self, item: &str) -> String {
        let words = match self.words {
            [first, .., last] => format!(" or {first} to {last}"),
            _ => String::new(),
        };
        format!(
            "{} cannot be read in the {} field, use {} to {}{words}, alone or as \"a-b\", \"a-b/step\", \"*\", \"*/step\"{}",
            quote(item),
            self.name,
            self.min,
            self.max,
            self.specials
        )
    }

    fn expand(&self, items: &[String]) -> Result<u64, String> {
        let mut component = CronComponent::new(self.min as u16, self.max as u16, 0, 0);
        component
            .parse(&items.join(","))
            .map_err(|error| format!("the {} field cannot be read: {error}", self.name))?;
        Ok(component.values().into_iter().fold(0, |set, value| set | 1 << value))
    }
}

impl DaysOfMonth {
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let field = &DAY_OF_MONTH;
        if text == "?" {
            return Self::read("*");
        }
        let mut read = Self::default();
        let mut plain = Vec::new();
        for item in field.items(text)? {
            if item == "L" {
                read.last = true;
            } else if item == "LW" {
                read.last_weekday = true;
            } else if let Some(day) = item.strip_suffix('W') {
                read.nearest_weekdays |= 1 << field.value(item, day)?;
            } else if item.starts_with("L-") {
                return Err(format!(
                    "{item:?} cannot be read in the day-of-month field, only \"L\" and \"LW\" count from the end of the month"
                ));
            } else {
                plain.push(field.plain(item)?);
            }
        }
        read.days = field.expand(&plain)? as u32;
        Ok(read)
    }
}

impl DaysOfWeek {
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let field = &DAY_OF_WEEK;
        if text == "?" {
            return Self::read("*");
        }
        let mut read = Self::default();
        let mut plain = Vec::new();
        for item in field.items(text)? {
            if item == "L" {
                return Err(
                    "\"L\" alone says nothing in the day-of-week field, write \"6L\" for the last Saturday of the month"
                        .to_string(),
                );
            } else if let Some((day, nth)) = item.split_once('#') {
                let day = field.value(item, day)? % 7;
                let nth = digits(nth).filter(|nth| (1..=5).contains(nth)).ok_or_else(|| {
                    format!("{item:?} in the day-of-week field needs a number from 1 to 5 after the #")
                })?;
                read.nth[day as usize] |= 1 << (nth - 1);
            } else if let Some(day) = item.strip_suffix('L') {
                read.last |= 1 << (field.value(item, day)? % 7);
            } else {
                plain.push(field.plain(item)?);
            }
        }
        let days = field.expand(&plain)?;
        read.days = ((days | days >> 7) & 0x7f) as u8;
        Ok(read)
    }
}

/// Reads plain digits; leading zeros are fine, signs are not.
fn digits(text: &str) -> Option<u32> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // More digits than fit are out of every range, which the caller reports.
    Some(text.parse().unwrap_or(u32::MAX))
}
