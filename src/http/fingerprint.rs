//! The same short text for bodies that are the same JSON, however they are written.
//!
//! Blanks, the order of keys, escapes in strings and the spelling of numbers (`1.0`, `1e0`) make no difference; digits
//! are never rounded. The text must be JSON; what is nested deeper than any task may be is compared letter by letter.

use punctual_domain::json::MAX_DEPTH;
use sha2::{Digest, Sha256};

/// The fingerprint of a request.
pub(crate) fn of(method_and_path: &str, body: &str) -> String {
    let mut canonical = Vec::with_capacity(body.len());
    Scanner { rest: body, depth: 0 }.value(&mut canonical);
    let digest = Sha256::new().chain_update(method_and_path).chain_update([0]).chain_update(canonical).finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

struct Scanner<'a> {
    rest: &'a str,
    depth: usize,
}

/// A batch, its tasks and their payloads, and room beside them.
const MAX_SCANNED_DEPTH: usize = MAX_DEPTH + 16;

impl<'a> Scanner<'a> {
    fn value(&mut self, out: &mut Vec<u8>) {
        match self.peek() {
            Some(b'{' | b'[') if self.depth == MAX_SCANNED_DEPTH => {
                out.extend_from_slice(self.take(self.rest.len()).as_bytes());
            }
            Some(b'{') => self.deeper(Self::object, out),
            Some(b'[') => self.deeper(Self::array, out),
            Some(b'"') => write_text(&self.string(), out),
            _ => {
                let end = self.rest.find(|c: char| matches!(c, ',' | ']' | '}') || c.is_ascii_whitespace());
                let word = self.take(end.unwrap_or(self.rest.len()));
                out.extend_from_slice(canonical_word(word).as_bytes());
            }
        }
    }

    fn deeper(&mut self, scan: impl FnOnce(&mut Self, &mut Vec<u8>), out: &mut Vec<u8>) {
        self.depth += 1;
        scan(self, out);
        self.depth -= 1;
    }

    fn object(&mut self, out: &mut Vec<u8>) {
        let mut entries = Vec::new();
        self.take(1);
        while self.peek() == Some(b'"') {
            let name = self.string();
            self.skip(b':');
            let mut value = Vec::new();
            self.value(&mut value);
            entries.push((name, value));
            self.skip(b',');
        }
        self.skip(b'}');
        entries.sort();
        out.push(b'{');
        for (name, value) in entries {
            write_text(&name, out);
            out.push(b':');
            out.extend_from_slice(&value);
            out.push(b',');
        }
        out.push(b'}');
    }

    fn array(&mut self, out: &mut Vec<u8>) {
        self.take(1);
        out.push(b'[');
        while self.peek().is_some_and(|next| next != b']') {
            self.value(out);
            out.push(b',');
            self.skip(b',');
        }
        self.skip(b']');
        out.push(b']');
    }

    fn string(&mut self) -> String {
        let bytes = self.rest.as_bytes();
        let mut end = 1;
        while end < bytes.len() && bytes[end] != b'"' {
            end += if bytes[end] == b'\\' { 2 } else { 1 };
        }
        let raw = self.take((end + 1).min(self.rest.len()));
        serde_json::from_str(raw).unwrap_or_else(|_| raw.to_owned())
    }

    fn peek(&mut self) -> Option<u8> {
        self.rest = self.rest.trim_ascii_start();
        self.rest.bytes().next()
    }

    fn skip(&mut self, byte: u8) {
        if self.peek() == Some(byte) {
            self.take(1);
        }
    }

    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }
}

/// Text with its length before it, so that nothing in it can be taken for structure.
fn write_text(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("\"{}:", text.len()).as_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// A literal as it is, a number as its digits and the power of ten behind them.
fn canonical_word(word: &str) -> String {
    let (sign, number) = word.strip_prefix('-').map_or(("", word), |number| ("-", number));
    if !number.starts_with(|c: char| c.is_ascii_digit()) {
        return word.to_owned();
    }
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let digits = all.trim_start_matches('0');
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return "0".to_owned();
    }
    let Ok(exponent) = exponent.trim_start_matches('+').parse::<i64>() else { return word.to_owned() };
    let power = i128::from(exponent) - fraction.len() as i128 + (digits.len() - significant.len()) as i128;
    format!("{sign}{significant}e{power}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_json_has_the_same_fingerprint() {
        for (one, other) in [
            (r#"{"a":1,"b":[true,null]}"#, " { \"b\" : [ true , null ] , \"a\" : 1 } "),
            (r#"{"a":"A/"}"#, r#"{"\u0061":"\u0041\/"}"#),
            ("[1.0, 100, 0.5, -0.0, 0]", "[1, 1e2, 5E-1, 0, 0e9]"),
            (r#"{"o":{"x":{},"y":[]}}"#, r#"{"o":{"y":[],"x":{}}}"#),
        ] {
            assert_eq!(of("POST /x", one), of("POST /x", other), "{one}");
        }
    }

    #[test]
    fn any_depth_is_read_without_recursion() {
        let deep = |end: &str| format!("{}{end}{}", "[".repeat(500_000), "]".repeat(500_000));
        assert_eq!(of("POST /x", &deep("1")), of("POST /x", &deep("1")));
        assert_ne!(of("POST /x", &deep("1")), of("POST /x", &deep("2")));
    }

    #[test]
    fn other_json_has_another() {
        for (one, other) in [
            (r#"{"a":1}"#, r#"{"a":2}"#),
            (r#"{"a":1}"#, r#"{"a":"1"}"#),
            ("[1,2]", "[2,1]"),
            ("[[1],2]", "[[1,2]]"),
            ("12345678901234567890123", "12345678901234567890124"),
            (r#"["a","b"]"#, r#"["a\",\"b"]"#),
            ("{}", "[]"),
            ("1", "-1"),
            ("null", "false"),
        ] {
            assert_ne!(of("POST /x", one), of("POST /x", other), "{one}");
        }
        assert_ne!(of("POST /x", "{}"), of("POST /y", "{}"));
    }
}
