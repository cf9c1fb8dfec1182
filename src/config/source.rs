//! Where values come from: defaults, then the file, then the environment, then flags.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::error;
use super::key::{Hide, KEYS, Key, OTHER_VARIABLES};
use super::{ConfigError, ConfigErrors};
use crate::plugins::Plugins;

/// The file that is read if it is there and no other is named.
pub const DEFAULT_FILE: &str = "config/punctual.toml";

/// What a configuration is read from.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// The file that was named; it must exist.
    pub file: Option<PathBuf>,
    /// The environment.
    pub environment: Vec<(String, String)>,
    /// Flags: the key, the flag, the value.
    pub flags: Vec<(&'static str, &'static str, String)>,
    /// The plugins that can be turned on.
    pub plugins: Plugins,
}

impl Sources {
    /// The environment of this process, and the default file, in a binary with these plugins.
    pub fn of_process(plugins: Plugins) -> Self {
        let environment = std::env::vars_os()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
            .collect();
        Self { file: None, environment, flags: Vec::new(), plugins }
    }
}

/// Where one value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Nobody said otherwise.
    Default,
    /// A key of a file.
    File(PathBuf),
    /// A variable of the environment.
    Variable(String),
    /// A flag of the command.
    Flag(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}

/// The text of one key and where it came from.
#[derive(Debug, Clone)]
pub(super) struct Text {
    pub(super) text: String,
    pub(super) source: Source,
}

/// The texts of all keys that have one, by name.
pub(super) type Texts = BTreeMap<&'static str, Text>;

/// Collects the texts of all sources; the later one wins. Notes what cannot be understood, and what is only odd.
pub(super) fn collect(
    sources: &Sources,
    errors: &mut ConfigErrors,
    warnings: &mut Vec<String>,
) -> (Texts, Vec<Declared>) {
    let mut texts = Texts::new();
    for key in KEYS {
        if let Some(default) = key.default {
            texts.insert(key.name, Text { text: default.to_owned(), source: Source::Default });
        }
    }
    let declared = collect_file(sources.file.as_deref(), &mut texts, errors);
    collect_environment(&sources.environment, &mut texts, warnings);
    for (name, flag, value) in &sources.flags {
        texts.insert(name, Text { text: value.clone(), source: Source::Flag(flag) });
    }
    (texts, declared)
}

/// A topic that the file declares, as the API would be told of it.
pub(super) struct Declared {
    pub(super) name: String,
    pub(super) json: String,
    pub(super) path: PathBuf,
}

fn collect_file(named: Option<&Path>, texts: &mut Texts, errors: &mut ConfigErrors) -> Vec<Declared> {
    let path = named.unwrap_or(Path::new(DEFAULT_FILE));
    let content = match std::fs::read_to_string(path) {
        Ok(content) => content,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && named.is_none() => return Vec::new(),
        Err(error) => {
            errors.add(ConfigError::file(path, format!("cannot be read: {error}")));
            return Vec::new();
        }
    };
    match content.parse::<toml::Table>() {
        Ok(mut table) => {
            let topics = table.remove("topics");
            collect_table("", &table, path, texts, errors);
            topics.map(|topics| collect_topics(&topics, path, errors)).unwrap_or_default()
        }
        Err(error) => {
            errors.add(ConfigError::file(path, not_toml(&content, &error)));
            Vec::new()
        }
    }
}

/// What is wrong and where, without the line itself: it may hold a password.
fn not_toml(content: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| content.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("is not TOML: {} (line {line}, column {column})", error.message().trim_end().replace('\n', ", "))
}

fn collect_topics(topics: &toml::Value, path: &Path, errors: &mut ConfigErrors) -> Vec<Declared> {
    let mut declared = Vec::new();
    let Some(topics) = topics.as_table() else {
        errors.add(ConfigError::key(path, "topics", kind(topics), "tables such as [topics.\"mail.*\"]".into()));
        return declared;
    };
    for (name, topic) in topics {
        match serde_json::to_value(topic) {
            Ok(json) if json.is_object() => {
                let json = in_camel_case(json).to_string();
                declared.push(Declared { name: name.clone(), json, path: path.to_owned() });
            }
            _ => errors.add(ConfigError::key(path, &format!("topics.{name:?}"), kind(topic), "a table".into())),
        }
    }
    declared
}

/// The same with names as the API has them: `rate_per_second` is `ratePerSecond` there.
fn in_camel_case(value: serde_json::Value) -> serde_json::Value {
    let serde_json::Value::Object(fields) = value else { return value };
    let renamed = |name: String| {
        let mut parts = name.split('_');
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |name, part| {
            let mut letters = part.chars();
            name + &letters.next().map(|letter| letter.to_ascii_uppercase()).into_iter().collect::<String>()
                + letters.as_str()
        })
    };
    fields.into_iter().map(|(name, value)| (renamed(name), in_camel_case(value))).collect()
}

fn collect_table(section: &str, table: &toml::Table, path: &Path, texts: &mut Texts, errors: &mut ConfigErrors) {
    for (name, value) in table {
        let name = if section.is_empty() { name.clone() } else { format!("{section}.{name}") };
        let is_section = KEYS.iter().any(|key| key.name.starts_with(&format!("{name}.")));
        match (Key::named(&name), value) {
            (None, toml::Value::Table(inner)) if is_section => collect_table(&name, inner, path, texts, errors),
            (None, _) if is_section => {
                errors.add(ConfigError::key(path, &name, kind(value), "a section with keys".into()));
            }
            (None, _) => errors.add(ConfigError::unknown(path, &name)),
            (Some(key), value) => match text_of(value) {
                Some(text) => {
                    texts.insert(key.name, Text { text, source: Source::File(path.to_owned()) });
                }
                None => {
                    let shown = if key.hide == Hide::Nothing { value.to_string() } else { kind(value) };
                    errors.add(ConfigError::key(path, &name, shown, "a text, a number or a list of texts".into()));
                }
            },
        }
    }
}

/// What kind of value it is, where the value itself would say too much.
fn kind(value: &toml::Value) -> String {
    let kind = match value {
        toml::Value::String(_) => "a text",
        toml::Value::Integer(_) | toml::Value::Float(_) => "a number",
        toml::Value::Boolean(_) => "true or false",
        toml::Value::Datetime(_) => "a time",
        toml::Value::Array(_) => "a list",
        toml::Value::Table(_) => "a table",
    };
    kind.to_owned()
}

/// The value as it would stand in a variable.
fn text_of(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Boolean(flag) => Some(flag.to_string()),
        toml::Value::Array(items) => items
            .iter()
            .map(|item| item.as_str().filter(|item| !item.contains(',')).map(str::to_owned))
            .collect::<Option<Vec<_>>>()
            .map(|items| items.join(",")),
        toml::Value::Float(_) | toml::Value::Datetime(_) | toml::Value::Table(_) => None,
    }
}

/// Takes what is set in the environment; an empty variable counts as not set.
fn collect_environment(environment: &[(String, String)], texts: &mut Texts, warnings: &mut Vec<String>) {
    let value_of = |name: &str| environment.iter().find(|(n, value)| n == name && !value.is_empty()).map(|(_, v)| v);
    let mut known = OTHER_VARIABLES.map(str::to_owned).to_vec();
    for key in KEYS {
        for variable in key.variables() {
            if let Some(value) = value_of(&variable) {
                texts.insert(key.name, Text { text: value.clone(), source: Source::Variable(variable.clone()) });
            }
            known.push(variable);
        }
    }
    for (name, _) in environment {
        if name.starts_with("PUNCTUAL_") && !known.contains(name) {
            let hint = error::suggestion(name, known.iter().map(String::as_str));
            warnings.push(format!("the variable {name} is set, and no key has that name; it changes nothing{hint}"));
        }
    }
    warnings.sort();
}
