use std::ops::RangeInclusive;

use chrono::{DateTime, NaiveDate, Utc};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::problem::{FieldError, Problem};

/// The longest text that [`Fields::text`] takes.
const MAX_TEXT: usize = 1000;

/// Reads the fields of a body, or the parameters of a query, one by one, and collects everything that is wrong with them.
///
/// A field that is `null` counts as left out. [`finish`](Self::finish) refuses what nobody asked for.
///
/// ```
/// use punctual_sdk::Fields;
/// use serde_json::json;
///
/// let mut fields = Fields::of(json!({"title": "", "colour": "red"}));
/// let title = fields.needs("title", Fields::text);
/// let at = fields.needs("at", Fields::instant);
/// let problem = fields.finish().unwrap_err();
/// let fields: Vec<_> = problem.errors.iter().map(|error| error.field.as_str()).collect();
/// assert_eq!(fields, ["title", "at", "colour"]);
/// # let _ = (title, at);
/// ```
#[derive(Debug, Default)]
pub struct Fields {
    /// Where they stand, such as `creator.`.
    within: String,
    left: Map<String, Value>,
    errors: Vec<FieldError>,
}

impl Fields {
    /// The fields of an object; anything else has none, and is refused.
    pub fn of(value: Value) -> Self {
        match value {
            Value::Object(left) => Self { left, ..Self::default() },
            _ => {
                let error = FieldError { field: "body".into(), message: "must be an object".into() };
                Self { errors: vec![error], ..Self::default() }
            }
        }
    }

    /// A field that has to be there. What is answered where it is not is of no use: `finish` refuses it.
    pub fn needs<T: Default>(&mut self, name: &str, read: fn(&mut Self, &str) -> Option<T>) -> T {
        if self.left.get(name).is_none_or(Value::is_null) {
            self.refuse(name, "is missing");
        }
        read(self, name).unwrap_or_default()
    }

    /// A text of 1 to 1000 characters, none of them U+0000, which PostgreSQL cannot hold.
    pub fn text(&mut self, name: &str) -> Option<String> {
        self.read(name, "must be a text of 1 to 1000 characters, without U+0000", |value| {
            let text = value.as_str()?;
            let is_fine = is_of(text, MAX_TEXT) && !text.trim().is_empty();
            is_fine.then(|| text.to_owned())
        })
    }

    /// A name or key, as [`Schema::key`](crate::Schema::key) describes it.
    pub fn key(&mut self, name: &str) -> Option<String> {
        self.read(name, "must be a text of 1 to 200 characters, without U+0000", |value| {
            let text = value.as_str()?;
            is_of(text, 200).then(|| text.to_owned())
        })
    }

    /// An e-mail address that a message can be sent to: what it takes, every transport for e-mails takes.
    pub fn email(&mut self, name: &str) -> Option<String> {
        self.read(name, "must be an e-mail address such as ada@example.com", |value| {
            value.as_str().filter(|text| is_address(text)).map(str::to_owned)
        })
    }

    /// An instant: RFC 3339 with an offset, cut to the microseconds that both databases hold. A leap second is the second after it,
    /// as everywhere else in Punctual.
    pub fn instant(&mut self, name: &str) -> Option<DateTime<Utc>> {
        let expected = "must be an RFC 3339 instant with an offset such as 2026-11-16T14:30:00Z";
        self.check(name, |value| {
            // In a query, a plus sign that was not escaped arrives as a blank, and RFC 3339 has no other.
            let text = value.as_str().ok_or(expected)?.replace(' ', "+");
            let micros = DateTime::parse_from_rfc3339(&text).map_err(|_| expected)?.timestamp_micros();
            let at = DateTime::from_timestamp_micros(micros).ok_or(expected)?;
            // What both databases, and a year of four digits, can hold.
            within_years(&at, 1970..=9998).map(|()| at)
        })
    }

    /// A date such as 2026-12-25.
    pub fn date(&mut self, name: &str) -> Option<NaiveDate> {
        let expected = "must be a date such as 2026-12-25";
        self.check(name, |value| {
            let text = value.as_str().filter(|text| text.len() == 10).ok_or(expected)?;
            let date = NaiveDate::parse_from_str(text, "%Y-%m-%d").map_err(|_| expected)?;
            within_years(&date, 1900..=9998).map(|()| date)
        })
    }

    /// True or false.
    pub fn flag(&mut self, name: &str) -> Option<bool> {
        self.read(name, "must be true or false", |value| match value {
            Value::String(text) => text.parse().ok(),
            value => value.as_bool(),
        })
    }

    /// A number.
    pub fn number(&mut self, name: &str) -> Option<f64> {
        self.read(name, "must be a number", |value| value.as_f64().filter(|number| number.is_finite()))
    }

    /// An id.
    pub fn id(&mut self, name: &str) -> Option<Uuid> {
        self.read(name, "must be an id", |value| Uuid::parse_str(value.as_str()?).ok())
    }

    /// One of a few words.
    pub fn word(&mut self, name: &str, words: &[&'static str]) -> Option<&'static str> {
        let expected = format!("must be one of {}", words.join(", "));
        self.read(name, &expected, |value| {
            let text = value.as_str()?;
            words.iter().copied().find(|word| *word == text)
        })
    }

    /// Whatever `read` makes of a value; it answers what is wrong with it.
    pub fn check<T>(&mut self, name: &str, read: impl FnOnce(Value) -> Result<T, String>) -> Option<T> {
        let value = self.take(name)?;
        read(value).map_err(|message| self.refuse(name, message)).ok()
    }

    /// An object, whose own fields `read` reads.
    pub fn object<T>(&mut self, name: &str, read: impl FnOnce(&mut Self) -> T) -> Option<T> {
        let value = self.take(name)?;
        Some(self.inner(name, value, read))
    }

    /// A list of objects, of which there are `most` at the most.
    pub fn objects<T>(&mut self, name: &str, most: usize, read: impl Fn(&mut Self) -> T) -> Option<Vec<T>> {
        match self.take(name)? {
            Value::Array(items) if items.len() <= most => {
                let items = items.into_iter().enumerate();
                Some(items.map(|(n, item)| self.inner(&format!("{name}[{n}]"), item, &read)).collect())
            }
            _ => {
                self.refuse(name, format!("must be a list of at most {most}"));
                None
            }
        }
    }

    /// A list of words, without repeats.
    pub fn words(&mut self, name: &str, words: &[&'static str]) -> Option<Vec<&'static str>> {
        let expected = format!("must be a list with one or more of {}, each once", words.join(", "));
        self.read(name, &expected, |value| {
            let mut found = Vec::new();
            for item in value.as_array()? {
                let text = item.as_str()?;
                let word = words.iter().copied().find(|word| *word == text && !found.contains(word))?;
                found.push(word);
            }
            (!found.is_empty()).then_some(found)
        })
    }

    /// Notes that a field is wrong.
    pub fn refuse(&mut self, name: &str, message: impl Into<String>) {
        self.errors.push(FieldError { field: format!("{}{name}", self.within), message: message.into() });
    }

    /// Refuses what nobody asked for, and everything that was wrong.
    ///
    /// # Errors
    /// With every bad field.
    pub fn finish(mut self) -> Result<(), Problem> {
        self.refuse_rest();
        if self.errors.is_empty() { Ok(()) } else { Err(Problem::fields(self.errors)) }
    }

    fn refuse_rest(&mut self) {
        for name in std::mem::take(&mut self.left).into_iter().map(|(name, _)| name) {
            let short: String = name.chars().take(100).collect();
            self.refuse(&short, "is unknown; leave it out or mend its name");
        }
    }

    fn inner<T>(&mut self, name: &str, value: Value, read: impl FnOnce(&mut Self) -> T) -> T {
        let within = format!("{}{name}.", self.within);
        let (left, is_object) = match value {
            Value::Object(left) => (left, true),
            _ => (Map::new(), false),
        };
        let mut inner = Self { within, left, errors: Vec::new() };
        let read = read(&mut inner);
        inner.refuse_rest();
        if is_object {
            self.errors.append(&mut inner.errors);
        } else {
            self.refuse(name, "must be an object");
        }
        read
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        self.left.remove(name).filter(|value| !value.is_null())
    }

    fn read<T>(&mut self, name: &str, expected: &str, read: impl FnOnce(&Value) -> Option<T>) -> Option<T> {
        let value = self.take(name)?;
        let read = read(&value);
        if read.is_none() {
            self.refuse(name, expected);
        }
        read
    }
}

/// Whether a text has 1 to so many characters, all of which both databases hold.
fn is_of(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.chars().count()) && !text.contains('\0')
}

/// Whether it is an address as RFC 5321 has it, without quotes, comments and addresses of machines. Letters and digits may be of any
/// script.
fn is_address(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    let is_atom =
        |atom: &str| !atom.is_empty() && atom.chars().all(|c| c.is_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c));
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.chars().all(|c| c.is_alphanumeric() || c == '-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 254 && local.len() <= 64 && local.split('.').all(is_atom) && domain.split('.').all(is_label)
}

/// Whether a date or an instant is of these years, or else what is wrong with it.
fn within_years(at: &impl chrono::Datelike, years: RangeInclusive<i32>) -> Result<(), String> {
    match years.contains(&at.year()) {
        true => Ok(()),
        false => Err(format!("must be of the years {} to {}", years.start(), years.end())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn errors(fields: Fields) -> Vec<String> {
        fields
            .finish()
            .err()
            .map(|problem| problem.errors.into_iter().map(|error| error.field).collect())
            .unwrap_or_default()
    }

    #[test]
    fn every_bad_field_is_named_with_where_it_stands() {
        let mut fields = Fields::of(json!({
            "at": "tomorrow", "on": "2026-02-30", "kind": "round", "creator": {"email": "nobody", "x": 1},
            "people": [{"email": "a@b.c"}, {"email": 7}, "Ada"], "channels": ["email", "email"], "rest": null, "more": 1,
        }));
        fields.instant("at");
        fields.date("on");
        fields.word("kind", &["start", "end"]);
        fields.object("creator", |creator| creator.needs("email", Fields::email));
        let people = fields.objects("people", 3, |person| person.needs("email", Fields::email)).unwrap();
        fields.words("channels", &["email", "queue"]);
        assert_eq!(people[0], "a@b.c");
        assert_eq!(
            errors(fields),
            [
                "at",
                "on",
                "kind",
                "creator.email",
                "creator.x",
                "people[1].email",
                "people[2]",
                "channels",
                "more",
                "rest"
            ]
        );
    }

    #[test]
    fn texts_and_keys_hold_no_nul_which_postgresql_cannot_hold() {
        let mut fields = Fields::of(json!({"text": "a\0b", "key": "a\0b", "fine": "a b"}));
        assert!(fields.text("text").is_none() && fields.key("key").is_none() && fields.text("fine").is_some());
        assert_eq!(errors(fields), ["text", "key"]);
    }

    #[test]
    fn an_instant_is_cut_to_what_both_databases_hold() {
        let mut fields = Fields::of(json!({"at": "2026-01-01T00:00:00.123456789Z"}));
        assert_eq!(crate::exactly(fields.instant("at").unwrap()), "2026-01-01T00:00:00.123456Z");
        let mut fields = Fields::of(json!({"leap": "2016-12-31T23:59:60.5Z"}));
        assert_eq!(crate::exactly(fields.instant("leap").unwrap()), "2017-01-01T00:00:00.500Z");
    }

    #[test]
    fn what_is_no_object_is_refused() {
        assert_eq!(errors(Fields::of(json!([1]))), ["body"]);
    }

    #[test]
    fn an_address_is_one_that_a_message_can_be_sent_to() {
        let long = |local: usize, label: usize| format!("{}@{}.com", "a".repeat(local), "b".repeat(label));
        let (longest, too_long, long_label) = (long(64, 63), long(65, 63), long(64, 64));
        for (text, is_fine) in [
            ("ada@example.com", true),
            ("ada+tag@example.com", true),
            ("a.b!c@x-y.example", true),
            ("søren@bücher.example", true),
            (&longest, true),
            (&too_long, false),
            (&long_label, false),
            ("a..b@x.com", false),
            (".a@x.com", false),
            ("a.@x.com", false),
            ("a@x..com", false),
            ("a@.x.com", false),
            ("a@x.com.", false),
            ("a@-x.com", false),
            ("a@x-.com", false),
            ("a@x_y.com", false),
            ("a@[127.0.0.1]", false),
            ("\"a b\"@x.com", false),
            ("a b@x.com", false),
            ("ada@example.com\r\nBcc: eve@example.com", false),
            ("Ada <ada@example.com>", false),
            ("a@b@c", false),
            ("@example.com", false),
            ("ada@", false),
            ("a,b@example.com", false),
        ] {
            let mut fields = Fields::of(json!({ "email": text }));
            assert_eq!(fields.email("email").is_some(), is_fine, "{text:?}");
        }
    }

    #[test]
    fn instants_have_an_offset_and_a_plus_may_be_a_blank() {
        let mut fields = Fields::of(json!({"a": "2026-01-01T00:00:00 01:00", "b": "2026-01-01T00:00:00", "c": null}));
        assert_eq!(fields.instant("a").unwrap().to_rfc3339(), "2025-12-31T23:00:00+00:00");
        assert!(fields.instant("b").is_none() && fields.instant("c").is_none());
        assert_eq!(errors(fields), ["b"]);
    }
}
