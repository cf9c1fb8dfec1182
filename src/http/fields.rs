//! Takes a JSON object apart, field by field, and notes everything that is wrong with it.
//!
//! Values stay raw text until somebody asks for them, so a payload keeps its digits and its order. `null` is the same as
//! leaving a field out, except where a caller asks for the raw value. What nobody has asked for in the end is refused by
//! name.

use std::collections::HashSet;
use std::fmt;
use std::ops::RangeInclusive;

use chrono::{DateTime, Utc};
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::instant;
use super::problem::{Code, Problem, Refusals};

/// How many fields of one object are looked at; no object of ours has as many.
const MAX_FIELDS: usize = 1000;

/// The fields of one object.
pub(crate) struct Fields<'a> {
    /// What stands before its names in errors, such as `retry.`.
    prefix: String,
    entries: Vec<(String, &'a RawValue)>,
}

impl<'a> Fields<'a> {
    /// Takes a request's body apart.
    ///
    /// # Errors
    /// When it is not one JSON object.
    pub(crate) fn of_body(text: &'a str, refusals: &mut Refusals) -> Result<Self, Problem> {
        if text.trim_start().is_empty() {
            return Err(Problem::new(Code::Invalid, "the body is empty; send a JSON object"));
        }
        let entries = entries(text).map_err(|error| match error.is_data() {
            true => Problem::new(Code::Invalid, "the body must be a JSON object"),
            false => Problem::new(Code::Invalid, format!("the body is not JSON: {error}")),
        })?;
        Ok(Self::new(String::new(), entries, refusals))
    }

    /// Takes one item of an array apart; `None` if it is not an object.
    pub(crate) fn of_item(raw: &'a RawValue, refusals: &mut Refusals) -> Option<Self> {
        Some(Self::new(String::new(), entries(raw.get()).ok()?, refusals))
    }

    fn new(prefix: String, Entries { mut entries, are_all }: Entries<'a>, refusals: &mut Refusals) -> Self {
        if !are_all {
            let object = if prefix.is_empty() { "object" } else { prefix.trim_end_matches('.') };
            refusals.add(object, format!("has more than {MAX_FIELDS} fields"));
        }
        let mut seen = HashSet::new();
        entries.retain(|(name, _)| {
            let is_first = seen.insert(name.clone());
            if !is_first {
                refusals.add(format!("{prefix}{}", shortened(name)), "stands twice; say it once");
            }
            is_first
        });
        Self { prefix, entries }
    }

    /// Whether a field is there, and not `null`.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.entries.iter().any(|(known, raw)| known == name && raw.get() != "null")
    }

    /// Whether a field is there, `null` or not.
    pub(crate) fn stands(&self, name: &str) -> bool {
        self.entries.iter().any(|(known, _)| known == name)
    }

    /// A field with an object of its own, which stays there; notes what stands twice in it.
    pub(crate) fn peek(&self, name: &str, refusals: &mut Refusals) -> Option<Self> {
        let (_, raw) = self.entries.iter().find(|(known, _)| known == name)?;
        Some(Self::new(format!("{}{name}.", self.prefix), entries(raw.get()).ok()?, refusals))
    }

    /// The raw value of a field, `null` too.
    pub(crate) fn raw(&mut self, name: &str) -> Option<&'a RawValue> {
        let position = self.entries.iter().position(|(known, _)| known == name)?;
        Some(self.entries.swap_remove(position).1)
    }

    /// A field of text.
    pub(crate) fn text(&mut self, name: &str, refusals: &mut Refusals) -> Option<String> {
        let raw = self.given(name)?;
        let text = serde_json::from_str(raw.get()).ok();
        self.or_refuse(name, text, "must be a string", refusals)
    }

    /// A field with a whole number inside `bounds`.
    pub(crate) fn whole(&mut self, name: &str, bounds: RangeInclusive<i64>, refusals: &mut Refusals) -> Option<i64> {
        let raw = self.given(name)?;
        let number = whole(raw.get()).filter(|number| bounds.contains(number));
        let expected = format!("must be a whole number from {} to {}", bounds.start(), bounds.end());
        self.or_refuse(name, number, &expected, refusals)
    }

    /// A field with a number inside `bounds`.
    pub(crate) fn number(&mut self, name: &str, bounds: RangeInclusive<f64>, refusals: &mut Refusals) -> Option<f64> {
        let raw = self.given(name)?;
        let number = serde_json::from_str(raw.get()).ok().filter(|number| bounds.contains(number));
        let expected = format!("must be a number from {} to {}", bounds.start(), bounds.end());
        self.or_refuse(name, number, &expected, refusals)
    }

    /// A field that is true or false.
    pub(crate) fn flag(&mut self, name: &str, refusals: &mut Refusals) -> Option<bool> {
        let raw = self.given(name)?;
        self.or_refuse(name, serde_json::from_str(raw.get()).ok(), "must be true or false", refusals)
    }

    /// A field with one text or several.
    pub(crate) fn texts(&mut self, name: &str, refusals: &mut Refusals) -> Option<Vec<String>> {
        let raw = self.given(name)?.get();
        let texts = serde_json::from_str(raw).map(|text| vec![text]).or_else(|_| serde_json::from_str(raw)).ok();
        self.or_refuse(name, texts, "must be a string or an array of strings", refusals)
    }

    /// A field with an array: its first items, at most `most`, and how many there are.
    pub(crate) fn items(
        &mut self,
        name: &str,
        most: usize,
        refusals: &mut Refusals,
    ) -> Option<(Vec<&'a RawValue>, usize)> {
        let raw = self.given(name)?;
        self.or_refuse(name, items(raw.get(), most).ok(), "must be an array", refusals)
    }

    /// A field with an object of its own.
    pub(crate) fn object(&mut self, name: &str, refusals: &mut Refusals) -> Option<Self> {
        let raw = self.given(name)?;
        let entries = self.or_refuse(name, entries(raw.get()).ok(), "must be an object", refusals)?;
        Some(Self::new(format!("{}{name}.", self.prefix), entries, refusals))
    }

    /// A field with an instant.
    pub(crate) fn instant(&mut self, name: &str, refusals: &mut Refusals) -> Option<DateTime<Utc>> {
        let text = self.text(name, refusals)?;
        instant::read(&text).map_err(|message| refusals.add(format!("{}{name}", self.prefix), message)).ok()
    }

    /// A field with one of a few words.
    pub(crate) fn word<T: Copy>(&mut self, name: &str, words: &[(&str, T)], refusals: &mut Refusals) -> Option<T> {
        let text = self.text(name, refusals)?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, meaning)| *meaning);
        let known = words.iter().map(|(word, _)| format!("{word:?}")).collect::<Vec<_>>().join(", ");
        self.or_refuse(name, found, &format!("must be one of {known}"), refusals)
    }

    /// Every field that is left, as text.
    pub(crate) fn all_text(mut self, refusals: &mut Refusals) -> Vec<(String, String)> {
        std::mem::take(&mut self.entries)
            .into_iter()
            .filter_map(|(name, raw)| {
                let text = serde_json::from_str(raw.get()).ok();
                let text = self.or_refuse(&shortened(&name), text, "must be a string", refusals)?;
                Some((name, text))
            })
            .collect()
    }

    /// Refuses what nobody asked for; `read_only` are names that exist, but not for writing.
    pub(crate) fn finish(self, read_only: &[&str], refusals: &mut Refusals) {
        for (name, _) in &self.entries {
            let message = match read_only.contains(&name.as_str()) {
                true => "is read-only; leave it out",
                false => "is not a known field; leave it out or mend its name",
            };
            refusals.add(format!("{}{}", self.prefix, shortened(name)), message);
        }
    }

    fn given(&mut self, name: &str) -> Option<&'a RawValue> {
        self.raw(name).filter(|raw| raw.get() != "null")
    }

    fn or_refuse<T>(&self, name: &str, value: Option<T>, expected: &str, refusals: &mut Refusals) -> Option<T> {
        if value.is_none() {
            refusals.add(format!("{}{name}", self.prefix), expected);
        }
        value
    }
}

/// A whole number, however it is spelled: `2.0` and `2e0` are `2` to every reader of JSON.
fn whole(text: &str) -> Option<i64> {
    /// Beyond it not every whole number can be told from its neighbours.
    const EXACT: f64 = (1_u64 << 53) as f64;
    let spelled =
        || serde_json::from_str::<f64>(text).ok().filter(|number| number.fract() == 0.0 && number.abs() <= EXACT);
    serde_json::from_str(text).ok().or_else(|| Some(spelled()? as i64))
}

/// A caller's name for a field, short enough to be said back.
pub(crate) fn shortened(name: &str) -> String {
    let mut short: String = name.chars().take(60).collect();
    if short.len() < name.len() {
        short.push('…');
    }
    short
}

/// What was read of an object.
struct Entries<'a> {
    entries: Vec<(String, &'a RawValue)>,
    are_all: bool,
}

fn entries(text: &str) -> Result<Entries<'_>, serde_json::Error> {
    struct Reading;

    impl<'de> Visitor<'de> for Reading {
        type Value = Entries<'de>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut entries = Vec::new();
            while entries.len() < MAX_FIELDS
                && let Some(entry) = map.next_entry()?
            {
                entries.push(entry);
            }
            let mut are_all = true;
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                are_all = false;
            }
            Ok(Entries { entries, are_all })
        }
    }

    let mut reader = serde_json::Deserializer::from_str(text);
    let entries = reader.deserialize_map(Reading)?;
    reader.end()?;
    Ok(entries)
}

fn items(text: &str, most: usize) -> Result<(Vec<&RawValue>, usize), serde_json::Error> {
    struct Reading(usize);

    impl<'de> Visitor<'de> for Reading {
        type Value = (Vec<&'de RawValue>, usize);

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            let mut items = Vec::new();
            while items.len() < self.0
                && let Some(item) = seq.next_element()?
            {
                items.push(item);
            }
            let mut total = items.len();
            while seq.next_element::<IgnoredAny>()?.is_some() {
                total += 1;
            }
            Ok((items, total))
        }
    }

    serde_json::Deserializer::from_str(text).deserialize_seq(Reading(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str, read: impl Fn(&mut Fields<'_>, &mut Refusals)) -> Vec<String> {
        let mut refusals = Refusals::default();
        let mut fields = Fields::of_body(text, &mut refusals).unwrap();
        read(&mut fields, &mut refusals);
        fields.finish(&["id"], &mut refusals);
        let errors = refusals.or(()).err().map(|problem| problem.errors).unwrap_or_default();
        errors.into_iter().map(|error| format!("{} {}", error.field, error.message)).collect()
    }

    #[test]
    fn everything_wrong_is_noted_by_name() {
        let errors = refused(r#"{"a":1,"n":"x","o":{"t":2,"u":1},"id":1,"z":1,"b":null,"a":2}"#, |fields, refusals| {
            assert_eq!(fields.text("a", refusals), None);
            assert_eq!(fields.text("b", refusals), None);
            assert_eq!(fields.whole("n", 0..=9, refusals), None);
            let mut inner = fields.object("o", refusals).unwrap();
            inner.text("t", refusals);
            inner.finish(&[], refusals);
        });
        let expected = [
            "a stands twice",
            "a must be a string",
            "n must be a whole number from 0 to 9",
            "o.t must be a string",
            "o.u is not a known field",
        ];
        assert!(errors.iter().zip(expected).all(|(error, expected)| error.starts_with(expected)), "{errors:?}");
        assert!(errors.iter().any(|error| error == "id is read-only; leave it out"));
        assert_eq!(errors.len(), 7, "{errors:?}");
    }

    #[test]
    fn a_body_is_one_json_object() {
        for (text, why) in [
            ("", "empty"),
            ("[]", "must be a JSON object"),
            ("3", "must be a JSON object"),
            ("{", "not JSON"),
            ("{} {}", "not JSON"),
            ("{\"a\":}", "not JSON"),
            ("nope", "not JSON"),
        ] {
            let problem = Fields::of_body(text, &mut Refusals::default()).err().unwrap();
            assert!(problem.detail.contains(why), "{text}: {}", problem.detail);
        }
    }

    #[test]
    fn large_objects_and_arrays_are_counted_and_not_kept() {
        let fields: Vec<_> = (0..5_000).map(|n| format!("\"f{n}\":1")).collect();
        let errors = refused(&format!("{{\"o\":{{{}}}}}", fields.join(",")), |fields, refusals| {
            fields.object("o", refusals).unwrap().finish(&[], refusals);
        });
        assert!(errors[0].starts_with("o has more than 1000 fields"), "{errors:?}");
        let errors = refused(r#"{"a":[1,[2],{"b":3},4],"c":{}}"#, |fields, refusals| {
            let (items, total) = fields.items("a", 3, refusals).unwrap();
            assert_eq!((items[1].get(), items[2].get(), items.len(), total), ("[2]", r#"{"b":3}"#, 3, 4));
            assert!(Fields::of_item(items[0], refusals).is_none() && Fields::of_item(items[2], refusals).is_some());
            assert!(fields.items("c", 3, refusals).is_none());
        });
        assert_eq!(errors, ["c must be an array"]);
    }

    #[test]
    fn whole_numbers_are_read_however_they_are_spelled() {
        for (text, number) in [
            ("7", Some(7)),
            ("7.0", Some(7)),
            ("7e2", Some(700)),
            ("-0.0", Some(0)),
            ("9223372036854775807", Some(i64::MAX)),
        ] {
            assert_eq!(whole(text), number, "{text}");
        }
        for text in ["7.5", "\"7\"", "true", "1e300", "9223372036854775808", "null"] {
            assert_eq!(whole(text), None, "{text}");
        }
    }

    #[test]
    fn one_text_may_stand_for_several() {
        let errors = refused(r#"{"a":"x","b":["y","z"],"c":[1],"d":"no"}"#, |fields, refusals| {
            assert_eq!(fields.texts("a", refusals).unwrap(), ["x"]);
            assert_eq!(fields.texts("b", refusals).unwrap(), ["y", "z"]);
            assert!(fields.texts("c", refusals).is_none() && fields.flag("d", refusals).is_none());
        });
        assert_eq!(errors, ["c must be a string or an array of strings", "d must be true or false"]);
    }

    #[test]
    fn raw_values_keep_their_text_and_any_depth_is_read_without_recursion() {
        let deep = format!("{{\"p\":{}{}}}", "[".repeat(200_000), "]".repeat(200_000));
        let mut refusals = Refusals::default();
        let mut fields = Fields::of_body(&deep, &mut refusals).unwrap();
        assert_eq!(fields.raw("p").unwrap().get().len(), 400_000);
        let mut fields = Fields::of_body(r#"{"p": 1.50e2}"#, &mut refusals).unwrap();
        assert_eq!(fields.raw("p").unwrap().get(), "1.50e2");
    }
}
