//! JSON text that both databases can hold and every reader understands the same way.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

/// How deep arrays and objects may be nested.
pub const MAX_DEPTH: usize = 128;

/// One JSON value, kept as the text it was given in: numbers keep their digits, objects their order.
///
/// Holds no U+0000 (PostgreSQL cannot store it), no duplicate key (readers disagree about them), and is nested at
/// most [`MAX_DEPTH`] deep.
#[derive(Clone, PartialEq, Eq)]
pub struct Json(Box<str>);

/// Why a text is not acceptable JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// Not JSON, or JSON that readers would understand differently.
    #[error("{0}")]
    Malformed(String),
    /// Arrays and objects nested too deeply.
    #[error("nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
}

impl Json {
    /// Checks a text and takes it over.
    ///
    /// # Errors
    /// When the text is not one JSON value within the rules above.
    pub fn parse(text: impl Into<Box<str>>) -> Result<Self, JsonError> {
        let text = text.into();
        check_depth(&text)?;
        let mut reader = serde_json::Deserializer::from_str(&text);
        reader.disable_recursion_limit();
        Check
            .deserialize(&mut reader)
            .and_then(|()| reader.end())
            .map_err(|error| JsonError::Malformed(error.to_string()))?;
        Ok(Self(text))
    }

    /// Takes over text that was checked before it was stored.
    pub fn from_stored(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// The empty object, which is the default payload.
    pub fn empty_object() -> Self {
        Self("{}".into())
    }

    /// The text itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text as serde_json's raw value.
    ///
    /// # Errors
    /// When text taken over by [`Json::from_stored`] was not JSON after all.
    pub fn to_raw(&self) -> Result<Box<RawValue>, serde_json::Error> {
        RawValue::from_string(self.0.to_string())
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::parse(raw.get()).map_err(D::Error::custom)
    }
}

/// Checks how deep a text is nested, whether or not it is JSON otherwise.
///
/// # Errors
/// [`JsonError::TooDeep`], when it is nested deeper than [`MAX_DEPTH`].
pub fn check_depth(text: &str) -> Result<(), JsonError> {
    if depth(text) > MAX_DEPTH { Err(JsonError::TooDeep) } else { Ok(()) }
}

/// How much deeper an answer may be than a payload that it holds.
const AROUND: usize = 16;

/// Reads what is or holds a payload, of the greatest depth that one may have.
///
/// # Errors
/// When it is not JSON, or not what is expected.
pub fn read_deep<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    if depth(text) > MAX_DEPTH + AROUND {
        return Err(serde_json::Error::custom("nested too deep"));
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    reader.disable_recursion_limit();
    let answer = T::deserialize(&mut reader)?;
    reader.end()?;
    Ok(answer)
}

/// The deepest nesting in `text`, whether or not it is otherwise JSON.
fn depth(text: &str) -> usize {
    let (mut now, mut deepest) = (0usize, 0usize);
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => {
                while let Some(inside) = bytes.next() {
                    match inside {
                        b'\\' => drop(bytes.next()),
                        b'"' => break,
                        _ => {}
                    }
                }
            }
            b'[' | b'{' => {
                now += 1;
                deepest = deepest.max(now);
            }
            b']' | b'}' => now = now.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Reads one value only to see whether it is acceptable.
struct Check;

impl<'de> DeserializeSeed<'de> for Check {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Check {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        if text.contains('\0') {
            return Err(E::custom("the character U+0000 cannot be stored; remove it"));
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Check)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut keys = BTreeSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            Check.visit_str(&key)?;
            entries.next_value_seed(Check)?;
            if let Some(key) = keys.replace(key) {
                return Err(A::Error::custom(format!("the key {key:?} stands twice in one object")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_json_value_is_kept_as_it_was_written() {
        for text in ["null", "true", "-1.50e2", "12345678901234567890123", "\"ü\"", "[1, 2]", r#"{"b":1,"a":[{}]}"#] {
            assert_eq!(Json::parse(text).unwrap().as_str(), text);
            assert_eq!(serde_json::to_string(&Json::parse(text).unwrap()).unwrap(), text);
        }
    }

    #[test]
    fn what_cannot_be_stored_or_read_alike_is_refused() {
        for (text, why) in [
            ("", "EOF"),
            ("{", "EOF"),
            ("1 2", "trailing"),
            (r#""\u0000""#, "U+0000"),
            (r#"{"\u0000":1}"#, "U+0000"),
            (r#"{"a":1,"a":2}"#, "\"a\" stands twice"),
            (r#"[{"a":1,"\u0061":2}]"#, "stands twice"),
            ("NaN", "expected"),
            (r#""\ud800""#, "hex escape"),
        ] {
            let error = Json::parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn an_answer_may_hold_what_is_as_deep_as_can_be() {
        let around = |depth| {
            format!(r#"{{"items": [{{"payload": {}}}], "nextCursor": null}}"#, "[".repeat(depth) + &"]".repeat(depth))
        };
        let answer: serde_json::Value = read_deep(&around(MAX_DEPTH)).unwrap();
        assert!(answer["items"][0]["payload"][0][0].is_array());
        assert!(read_deep::<serde_json::Value>(&around(MAX_DEPTH + AROUND)).is_err());
        assert!(read_deep::<serde_json::Value>("{} {}").is_err());
    }

    #[test]
    fn nesting_is_bounded_and_strings_do_not_count() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(Json::parse(nested(MAX_DEPTH)).is_ok());
        assert_eq!(Json::parse(nested(MAX_DEPTH + 1)), Err(JsonError::TooDeep));
        assert!(Json::parse(format!(r#""{}\"[""#, "[".repeat(500))).is_ok());
        assert_eq!(Json::parse("[".repeat(1_000_000)), Err(JsonError::TooDeep));
    }
}
