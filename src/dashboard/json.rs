//! JSON on a page: laid out for people, and no more of it than they can read.

use maud::{Markup, html};
use punctual_domain::task::MAX_PAYLOAD_BYTES;

use super::parts::number;

/// How much of a text a page shows, in bytes: what is nested deeply grows twentyfold by its indents.
pub(crate) const SHOWN: usize = 64 * 1024;
/// The same for one of many.
pub(crate) const SHOWN_OF_MANY: usize = 4 * 1024;
/// Deeper than this nothing is indented any further.
const MAX_INDENT: usize = 20;

/// JSON, laid out for people; what is too long for a page is cut, and `whole` leads to all of it.
pub(crate) fn json(text: &str, whole: &str) -> Markup {
    json_up_to(SHOWN, text, whole)
}

/// The same, cut at another size.
pub(crate) fn json_up_to(most: usize, text: &str, whole: &str) -> Markup {
    let laid = laid_out_up_to(most, text);
    html! {
        pre.code tabindex="0" { (beginning(most, &laid)) }
        @if laid.len() > most { (cut(text.len(), whole)) }
    }
}

/// An error that is no JSON, cut in the same way.
pub(crate) fn error_up_to(most: usize, text: &str, whole: &str) -> Markup {
    html! {
        pre.code.bad tabindex="0" { (beginning(most, text)) }
        @if text.len() > most { (cut(text.len(), whole)) }
    }
}

/// Says that there is more.
fn cut(bytes: usize, whole: &str) -> Markup {
    html! { p.hint { "Only its beginning is shown. It has " (number(bytes as u64)) " bytes; " a href=(whole) { "all of it as JSON" } "." } }
}

/// The first bytes of a text, as far as they are whole characters.
fn beginning(most: usize, text: &str) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// JSON for people to edit, all of it: laid out, unless that makes far more of it than it is, or more than a payload may be.
pub(crate) fn to_edit(text: &str) -> String {
    let most = SHOWN.max(text.len() * 2).min(MAX_PAYLOAD_BYTES);
    let laid = laid_out_up_to(most, text);
    if laid.len() > most { text.to_owned() } else { laid }
}

/// The same JSON with line breaks and indents: numbers and the order of keys stay as they were written. It ends a little
/// after `most` bytes.
fn laid_out_up_to(most: usize, text: &str) -> String {
    let (mut laid, mut depth) = (String::with_capacity(most.min(text.len() * 2)), 0_usize);
    let (mut in_text, mut is_escaped) = (false, false);
    let mut chars = text.chars().filter(|c| !c.is_ascii_control()).peekable();
    let line = |laid: &mut String, depth: usize| {
        laid.push('\n');
        laid.extend(std::iter::repeat_n("  ", depth));
    };
    while laid.len() <= most
        && let Some(c) = chars.next()
    {
        if in_text {
            laid.push(c);
            in_text = is_escaped || c != '"';
            is_escaped = !is_escaped && c == '\\';
            continue;
        }
        match c {
            ' ' => {}
            '{' | '[' => {
                laid.push(c);
                while chars.next_if_eq(&' ').is_some() {}
                if let Some(end) = chars.next_if(|c| matches!(c, '}' | ']')) {
                    laid.push(end);
                } else {
                    depth += 1;
                    line(&mut laid, depth.min(MAX_INDENT));
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut laid, depth.min(MAX_INDENT));
                laid.push(c);
            }
            ',' => {
                laid.push(c);
                line(&mut laid, depth.min(MAX_INDENT));
            }
            ':' => laid.push_str(": "),
            '"' => {
                laid.push(c);
                in_text = true;
            }
            c => laid.push(c),
        }
    }
    laid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_laid_out_and_otherwise_left_as_it_was_written() {
        for (text, expected) in [
            ("{}", "{}"),
            ("[ ]", "[]"),
            (r#"{"b":1.50,"a":123456789012345678901234}"#, "{\n  \"b\": 1.50,\n  \"a\": 123456789012345678901234\n}"),
            (r#"{"a": ["x, {y}", "\"", {}]}"#, "{\n  \"a\": [\n    \"x, {y}\",\n    \"\\\"\",\n    {}\n  ]\n}"),
            ("[\n1,\n2\n]", "[\n  1,\n  2\n]"),
        ] {
            assert_eq!(to_edit(text), expected, "{text}");
            assert_eq!(to_edit(&to_edit(text)), expected, "{text}");
        }
    }

    #[test]
    fn what_is_long_or_deep_is_cut_where_it_is_shown_and_whole_where_it_is_edited() {
        let deep = format!("[{}1{}]", "[".repeat(120), "]".repeat(120));
        let deep = format!("[{}{deep}]", format!("{deep},").repeat(4_000));
        let long = format!("[{}\"end\"]", "\"é\",".repeat(200_000));
        for text in [&deep, &long] {
            let page = json(text, "/whole").into_string();
            assert!(page.len() < 8 * SHOWN && page.contains("href=\"/whole\""), "{}", page.len());
            let edited = to_edit(text);
            assert!(edited.len() <= MAX_PAYLOAD_BYTES, "{}: it could not be saved", edited.len());
            let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
            assert_eq!(read(&edited), read(text));
        }
        for (text, is_cut) in [("é".repeat(SHOWN / 2), false), ("é".repeat(SHOWN / 2) + "e", true)] {
            assert_eq!(error_up_to(SHOWN, &text, "/whole").into_string().contains("/whole"), is_cut);
        }
        assert!(error_up_to(3, "éé", "/whole").into_string().contains(">é</pre>"));
    }
}
