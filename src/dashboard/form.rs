//! A form that somebody sent: its fields, by name.

use std::sync::Arc;

use axum::extract::{FromRequest, Request};
use serde_json::{Map, Value};

use crate::http::Api;
use crate::http::body::{FormBody, PayloadFormBody};
use crate::http::problem::{Code, Problem};

/// How many fields a form may have: read, an empty one takes far more memory than its bytes did.
const MOST: usize = 1_000;

/// The fields of a form, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Form(Vec<(String, String)>);

impl FromRequest<Arc<Api>> for Form {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Arc<Api>) -> Result<Self, Problem> {
        let FormBody(body) = FormBody::from_request(request, api).await?;
        Self::sent(&body.text)
    }
}

/// A form that has a payload among its fields.
pub(crate) struct PayloadForm(pub(crate) Form);

impl FromRequest<Arc<Api>> for PayloadForm {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Arc<Api>) -> Result<Self, Problem> {
        let PayloadFormBody(body) = PayloadFormBody::from_request(request, api).await?;
        Form::sent(&body.text).map(Self)
    }
}

impl Form {
    /// Reads the body of a form.
    fn sent(text: &str) -> Result<Self, Problem> {
        if text.split('&').count() > MOST {
            return Err(Problem::new(Code::Invalid, format!("a form has at most {MOST} fields")));
        }
        let form =
            Self::of(text).ok_or_else(|| Problem::new(Code::Invalid, "the form is not UTF-8 once it is decoded"))?;
        Ok(Self(form.0.into_iter().map(|(name, value)| (name, lines(value))).collect()))
    }

    /// Reads fields as browsers send them; also what stands behind the question mark of an address.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let read = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decoded(name)?, decoded(value)?))
        };
        pairs.map(read).collect::<Option<_>>().map(Self)
    }

    /// A form with these fields.
    pub(crate) fn from_pairs<Value: Into<String>>(pairs: impl IntoIterator<Item = (&'static str, Value)>) -> Self {
        Self(pairs.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect())
    }

    /// What was entered, without blanks around it; nothing where nothing was.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.raw(name).map(str::trim).filter(|text| !text.is_empty())
    }

    /// What was entered, as it is.
    pub(crate) fn raw(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// What was entered, as it is; nothing where nothing was.
    pub(crate) fn given(&self, name: &str) -> Option<&str> {
        self.raw(name).filter(|value| !value.is_empty())
    }

    /// All fields, in order.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// What was chosen of several.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(known, value)| known == name && !value.is_empty()).map(|(_, value)| value.as_str())
    }

    /// Puts the texts of these fields into a body for the API, where something was entered.
    pub(crate) fn copy_texts(&self, names: &[&str], body: &mut Map<String, Value>) {
        for name in names {
            if let Some(text) = self.text(name) {
                body.insert((*name).to_owned(), text.into());
            }
        }
    }

    /// The same for numbers; what is none goes as the text that it is, and the API says what is wrong with it.
    pub(crate) fn copy_numbers(&self, names: &[&str], body: &mut Map<String, Value>) {
        for name in names {
            if let Some(text) = self.text(name) {
                let value = text.parse::<i64>().map_or_else(|_| text.into(), Value::from);
                body.insert((*name).to_owned(), value);
            }
        }
    }
}

/// A text as it stands in an address, behind `name=` or between two slashes.
pub(crate) fn encoded(text: &str) -> String {
    let escaped = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => (byte as char).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(escaped).collect()
}

/// A text with the line ends that people write. Browsers send others, whatever they were given.
pub(crate) fn lines(text: String) -> String {
    if text.contains('\r') { text.replace("\r\n", "\n").replace('\r', "\n") } else { text }
}

fn decoded(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut read = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let escaped = (bytes[i] == b'%').then(|| text.get(i + 1..i + 3)).flatten();
        match escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                read.push(byte);
                i += 3;
            }
            None => {
                read.push(if bytes[i] == b'+' { b' ' } else { bytes[i] });
                i += 1;
            }
        }
    }
    String::from_utf8(read).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_browsers_send_them() {
        let form = Form::of("name=a+b%26c&note=%C3%A9%0D%0A&empty=&calendar=x&calendar=y&flag").unwrap();
        assert_eq!(form.text("name"), Some("a b&c"));
        assert_eq!((form.raw("note"), form.text("note")), (Some("é\r\n"), Some("é")));
        assert_eq!((form.text("empty"), form.raw("flag"), form.raw("none")), (None, Some(""), None));
        assert_eq!(form.all("calendar").collect::<Vec<_>>(), ["x", "y"]);
        assert!(Form::of("a=%ff").is_none());
    }

    #[test]
    fn lines_end_in_one_way() {
        for (sent, expected) in [("a", "a"), ("a\r\nb\r\n", "a\nb\n"), ("\r\r\n\n", "\n\n\n")] {
            assert_eq!(lines(sent.to_owned()), expected);
        }
    }

    #[test]
    fn what_is_encoded_comes_back() {
        for text in ["plain", "a b/c?d=e&f", "é<script>", "100%"] {
            assert_eq!(decoded(&encoded(text)).as_deref(), Some(text));
            assert!(encoded(text).bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b'<'));
        }
    }
}
