use std::collections::BTreeSet;

use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value};
use serde::Serialize;

/// A message with gaps: its subject, its text, and perhaps the same in HTML, usually as files of their own.
///
/// The files are written in [Jinja's language](https://docs.rs/minijinja/latest/minijinja/syntax/): `{{ name }}` is a gap,
/// `{% if … %}` and `{% for … %}` do what they say. Values are escaped in HTML and left as they are in text. A gap that nothing
/// is given for is an error, not an empty space.
///
/// ```
/// use punctual_sdk::Template;
///
/// const WELCOME: Template = Template {
///     slug: "welcome",
///     subject: "Welcome, {{ name }}",
///     text: "Good to have you, {{ name }}.\n", // or include_str!("../templates/welcome.txt")
///     html: Some("<p>Good to have you, <b>{{ name }}</b>.</p>\n"),
///     sample: r#"{"name": "Ada"}"#,
/// };
///
/// let welcome = WELCOME.render(serde_json::json!({"name": "<Bob>"})).unwrap();
/// assert_eq!(welcome.subject, "Welcome, <Bob>");
/// assert_eq!(welcome.html.unwrap(), "<p>Good to have you, <b>&lt;Bob&gt;</b>.</p>\n");
///
/// let error = WELCOME.render(serde_json::json!({"nam": "Bob"})).unwrap_err();
/// assert_eq!(error.to_string(), "the template welcome needs a value for name");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Template {
    /// Its name, unique within the plugin.
    pub slug: &'static str,
    /// The subject, in one line.
    pub subject: &'static str,
    /// The message in plain text.
    pub text: &'static str,
    /// The same in HTML.
    pub html: Option<&'static str>,
    /// A JSON object with a value for every gap: a preview shows it, and the service refuses to start if it does not fit.
    pub sample: &'static str,
}

/// A template with its gaps filled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rendered {
    /// The subject.
    pub subject: String,
    /// The message in plain text.
    pub text: String,
    /// The same in HTML.
    pub html: Option<String>,
}

/// Why a template cannot be filled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// There is no such template.
    #[error("there is no template {0}")]
    Unknown(String),
    /// Nothing is given for these gaps.
    #[error("the template {slug} needs a value for {}", .missing.join(", "))]
    Missing {
        /// The template.
        slug: &'static str,
        /// The gaps.
        missing: Vec<String>,
    },
    /// It is wrong in itself, or what is given does not fit.
    #[error("the template {slug} is broken: {error}")]
    Broken {
        /// The template.
        slug: &'static str,
        /// What is wrong, and where.
        error: String,
    },
}

impl Template {
    /// Fills the gaps.
    ///
    /// # Errors
    /// When a value is missing, also one that would not be shown this time, or the template is wrong.
    pub fn render(&self, values: impl Serialize) -> Result<Rendered, TemplateError> {
        let environment = self.parse()?;
        let values = Value::from_serialize(values);
        let missing = self.gaps(&environment)?.into_iter().filter(|gap| {
            // A value that is null is given.
            values.get_attr(gap).map_or(true, |value| value.is_undefined())
        });
        let missing: Vec<_> = missing.collect();
        if !missing.is_empty() {
            return Err(TemplateError::Missing { slug: self.slug, missing });
        }
        let fill = |part: &str| environment.get_template(part)?.render(&values);
        let fill = |part: &str| fill(part).map_err(|error| self.broken(&error));
        Ok(Rendered { subject: fill(SUBJECT)?, text: fill(TEXT)?, html: self.html.map(|_| fill(HTML)).transpose()? })
    }

    /// Fills the gaps with the sample.
    ///
    /// # Errors
    /// When the template is wrong, or the sample does not fit.
    pub fn preview(&self) -> Result<Rendered, TemplateError> {
        self.render(self.sample_values()?)
    }

    /// The sample.
    ///
    /// # Errors
    /// When it is not a JSON object.
    pub fn sample_values(&self) -> Result<serde_json::Map<String, serde_json::Value>, TemplateError> {
        serde_json::from_str(self.sample)
            .map_err(|error| TemplateError::Broken { slug: self.slug, error: format!("its sample: {error}") })
    }

    fn parse(&self) -> Result<Environment<'static>, TemplateError> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_keep_trailing_newline(true);
        environment.set_auto_escape_callback(|part| if part == HTML { AutoEscape::Html } else { AutoEscape::None });
        let parts = [(SUBJECT, Some(self.subject)), (TEXT, Some(self.text)), (HTML, self.html)];
        for (part, source) in parts.into_iter().filter_map(|(part, source)| Some((part, source?))) {
            environment.add_template(part, source).map_err(|error| self.broken(&error))?;
        }
        Ok(environment)
    }

    /// Everything that a value is needed for, wherever it stands.
    fn gaps(&self, environment: &Environment<'_>) -> Result<BTreeSet<String>, TemplateError> {
        let parts = [SUBJECT, TEXT].into_iter().chain(self.html.map(|_| HTML));
        let mut gaps = BTreeSet::new();
        for part in parts {
            let template = environment.get_template(part).map_err(|error| self.broken(&error))?;
            gaps.extend(template.undeclared_variables(false));
        }
        Ok(gaps)
    }

    fn broken(&self, error: &minijinja::Error) -> TemplateError {
        TemplateError::Broken { slug: self.slug, error: error.to_string() }
    }
}

const SUBJECT: &str = "subject";
const TEXT: &str = "text";
const HTML: &str = "html";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const REMINDER: Template = Template {
        slug: "reminder",
        subject: "{{ title }} is due",
        text: "Dear {{ user.name }},\n{% if note %}{{ note }}\n{% endif %}{% for item in items %}- {{ item }}\n{% endfor %}",
        html: Some("<a href=\"{{ url }}\">{{ title }}</a>"),
        sample: r#"{"title": "Report", "user": {"name": "Ada"}, "note": null, "items": [1, 2], "url": "https://x.example/"}"#,
    };

    #[test]
    fn the_sample_fills_every_gap() {
        let rendered = REMINDER.preview().unwrap();
        assert_eq!(rendered.subject, "Report is due");
        assert_eq!(rendered.text, "Dear Ada,\n- 1\n- 2\n");
        assert_eq!(rendered.html.unwrap(), "<a href=\"https:&#x2f;&#x2f;x.example&#x2f;\">Report</a>");
    }

    #[test]
    fn every_missing_value_is_named_also_one_that_would_not_be_shown() {
        let missing = |values| match REMINDER.render(values) {
            Err(TemplateError::Missing { missing, .. }) => missing.join(" "),
            other => panic!("{other:?}"),
        };
        assert_eq!(missing(json!({})), "items note title url user");
        assert_eq!(missing(json!({"title": 1, "user": {"name": "x"}, "items": [], "url": ""})), "note");
        assert_eq!(missing(json!(null)), "items note title url user");
        let inner = REMINDER.render(json!({"title": 1, "user": {}, "note": "", "items": [], "url": ""}));
        assert!(matches!(inner, Err(TemplateError::Broken { .. })), "{inner:?}");
    }

    #[test]
    fn values_are_escaped_in_html_and_nowhere_else() {
        const MARKED: Template =
            Template { slug: "m", subject: "{{ x }}", text: "{{ x }}", html: Some("{{ x }}"), sample: "{}" };
        let rendered = MARKED.render(json!({"x": "<script>\"&'"})).unwrap();
        assert_eq!((rendered.subject.as_str(), rendered.text.as_str()), ("<script>\"&'", "<script>\"&'"));
        assert_eq!(rendered.html.unwrap(), "&lt;script&gt;&quot;&amp;&#x27;");
    }

    #[test]
    fn a_broken_template_says_where() {
        for broken in [
            Template { text: "{{ title", ..REMINDER },
            Template { text: "{{ title | nonsense }}", ..REMINDER },
            Template { sample: "[]", ..REMINDER },
            Template { sample: "{", ..REMINDER },
        ] {
            let error = broken.preview().unwrap_err().to_string();
            assert!(error.starts_with("the template reminder is broken: "), "{error}");
        }
    }
}
