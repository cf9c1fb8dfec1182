//! Merge patches, as RFC 7396 describes them: objects are merged, `null` removes, all else replaces.
//!
//! Works on text, so that what is not touched keeps its digits and its order.

use std::fmt;

use punctual_domain::json::MAX_DEPTH;
use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;

/// What is nested deeper is no payload of ours, and refused as such later: it is taken as it is.
const MAX_MERGED_DEPTH: usize = MAX_DEPTH + 8;

/// The members of an object, in order.
type Members<'a> = Vec<(String, &'a RawValue)>;

/// What `target` becomes by `patch`; both are JSON.
pub(crate) fn merge(target: &str, patch: &str) -> String {
    let mut merged = String::with_capacity(target.len() + patch.len());
    write(Some(target), patch, 0, &mut merged);
    merged
}

fn write(target: Option<&str>, patch: &str, depth: usize, out: &mut String) {
    let Some(changes) = members(patch).filter(|_| depth < MAX_MERGED_DEPTH) else {
        out.push_str(patch.trim_ascii());
        return;
    };
    let kept = target.and_then(members).unwrap_or_default();
    let change_of = |name: &str| changes.iter().rfind(|(changed, _)| changed == name).map(|(_, change)| change.get());
    let mut is_first = true;
    let mut begin = |name: &str, out: &mut String| {
        out.push(if std::mem::take(&mut is_first) { '{' } else { ',' });
        out.push_str(&serde_json::Value::from(name).to_string());
        out.push(':');
    };
    for (name, value) in &kept {
        match change_of(name) {
            Some("null") => {}
            Some(change) => {
                begin(name, out);
                write(Some(value.get()), change, depth + 1, out);
            }
            None => {
                begin(name, out);
                out.push_str(value.get());
            }
        }
    }
    for (name, change) in &changes {
        if change.get() != "null" && !kept.iter().any(|(known, _)| known == name) {
            begin(name, out);
            write(None, change.get(), depth + 1, out);
        }
    }
    out.push_str(if is_first { "{}" } else { "}" });
}

/// The members of a text that is an object.
fn members(text: &str) -> Option<Members<'_>> {
    struct Reading;

    impl<'de> Visitor<'de> for Reading {
        type Value = Members<'de>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some(member) = map.next_entry()? {
                members.push(member);
            }
            Ok(members)
        }
    }

    if !text.trim_ascii_start().starts_with('{') {
        return None;
    }
    serde_json::Deserializer::from_str(text).deserialize_map(Reading).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_merged_null_removes_and_all_else_replaces() {
        for (target, patch, merged) in [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, "{}"),
            (r#"{"a":"b","b":1.50}"#, r#"{"a":null}"#, r#"{"b":1.50}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":{"b":1,"c":2}}"#, r#"{"a":{"b":null,"d":3}}"#, r#"{"a":{"c":2,"d":3}}"#),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"{"a":"b"}"#, "[1]", "[1]"),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
            ("[1,2]", r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
            ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
            ("{}", "null", "null"),
            (r#"{"é\"":1}"#, r#"{ "\u00e9\"" : { } }"#, r#"{"é\"":{}}"#),
        ] {
            assert_eq!(merge(target, patch), merged, "{target} {patch}");
        }
    }

    #[test]
    fn any_depth_is_merged_in_bounded_steps() {
        let deep = format!("{}1{}", r#"{"a":"#.repeat(100_000), "}".repeat(100_000));
        let merged = merge("{}", &deep);
        assert!(merged.len() == deep.len() && merged.starts_with(r#"{"a":{"a":"#));
    }
}
