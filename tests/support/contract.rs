//! The API's own description, and whether what is answered is as it says. Every answer that a test gets is held to it.

use std::path::Path;
use std::sync::OnceLock;

use chrono::{DateTime, NaiveDate, Utc};
use reqwest::Method;
use serde_json::Value;

use super::{Answer, punctual};

/// What `punctual openapi` prints.
pub struct Contract {
    pub document: Value,
}

/// A route, and what is said about one of its methods.
pub struct Operation<'a> {
    pub route: &'a str,
    pub method: Method,
    pub told: &'a Value,
}

impl Contract {
    /// That of the binary under test.
    pub fn of_binary() -> &'static Self {
        static CONTRACT: OnceLock<Contract> = OnceLock::new();
        CONTRACT.get_or_init(|| {
            let output = punctual(Path::new("/")).arg("openapi").output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Self { document: serde_json::from_slice(&output.stdout).unwrap() }
        })
    }

    /// Every operation.
    pub fn operations(&self) -> impl Iterator<Item = Operation<'_>> {
        let paths = self.document["paths"].as_object().unwrap().iter();
        paths.flat_map(|(route, methods)| {
            let methods = methods.as_object().unwrap().iter();
            methods.map(move |(method, told)| Operation { route, method: method.to_uppercase().parse().unwrap(), told })
        })
    }

    /// Fails unless the answer to this call is one that is described.
    pub fn check(&self, method: &Method, path: &str, answer: &Answer) {
        let found = self.operation(method, path);
        let described = match &found {
            Some(operation) => operation.told["responses"].get(answer.status.as_str()),
            None => Some(&Value::Null),
        };
        let described = described.unwrap_or_else(|| panic!("{method} {path} is not said to answer {answer:?}"));
        let kind = answer.header("content-type").split(';').next().unwrap().trim().to_owned();
        let schema = match described["content"].as_object() {
            Some(content) => {
                let media = content.get(&kind).unwrap_or_else(|| panic!("{method} {path}: {kind:?} of {answer:?}"));
                &media["schema"]
            }
            None if found.is_some() => {
                assert_eq!(answer.text, "", "{method} {path} is said to answer nothing");
                return;
            }
            // A route that is not described answers with problems only.
            None => &self.document["components"]["schemas"]["Problem"],
        };
        if kind.ends_with("json") && *method != Method::HEAD {
            let wrong = self.violations(schema, &answer.json());
            assert!(wrong.is_empty(), "{method} {path}: {wrong:#?} in {answer:?}");
        }
        for header in described["headers"].as_object().into_iter().flatten().map(|(name, _)| name) {
            // It is missing on the last page.
            let is_there = header == "Link" || answer.headers.contains_key(header);
            assert!(is_there, "{method} {path}: no {header} in {answer:?}");
        }
    }

    /// What a value breaks of a schema.
    pub fn violations(&self, schema: &Value, value: &Value) -> Vec<String> {
        let mut wrong = Vec::new();
        self.look(schema, value, "", &mut wrong);
        wrong
    }

    fn operation(&self, method: &Method, path: &str) -> Option<Operation<'_>> {
        let matching = |operation: &Operation<'_>| {
            let parts = (operation.route.split('/'), path.split('/'));
            let is_same = |(route, part): (&str, &str)| route == part || (route.starts_with('{') && !part.is_empty());
            parts.0.clone().count() == parts.1.clone().count() && parts.0.zip(parts.1).all(is_same)
        };
        // Heads are asked for like the whole.
        let asked = if *method == Method::HEAD { Method::GET } else { method.clone() };
        let mut found: Vec<_> = self.operations().filter(matching).collect();
        // The most special route answers, whatever the method.
        let braces = found.iter().map(|operation| operation.route.matches('{').count()).min()?;
        found.retain(|operation| operation.route.matches('{').count() == braces);
        found.into_iter().find(|operation| operation.method == asked)
    }

    fn look(&self, schema: &Value, value: &Value, at: &str, wrong: &mut Vec<String>) {
        let Some(keywords) = schema.as_object() else {
            if schema == &Value::Bool(false) {
                wrong.push(format!("{at} must not be there"));
            }
            return;
        };
        for (keyword, said) in keywords {
            let holds = match keyword.as_str() {
                "$ref" => {
                    let target = self.document.pointer(said.as_str().unwrap().trim_start_matches('#')).unwrap();
                    self.look(target, value, at, wrong);
                    true
                }
                "type" => match said {
                    Value::Array(kinds) => kinds.iter().any(|kind| is_of(kind.as_str().unwrap(), value)),
                    kind => is_of(kind.as_str().unwrap(), value),
                },
                "enum" => said.as_array().unwrap().contains(value),
                "const" => said == value,
                "anyOf" => said.as_array().unwrap().iter().any(|shape| self.violations(shape, value).is_empty()),
                "allOf" => {
                    said.as_array().unwrap().iter().for_each(|shape| self.look(shape, value, at, wrong));
                    true
                }
                "not" => !self.violations(said, value).is_empty(),
                "properties" => {
                    for (name, schema) in said.as_object().unwrap() {
                        if let Some(member) = value.get(name) {
                            self.look(schema, member, &format!("{at}/{name}"), wrong);
                        }
                    }
                    true
                }
                "required" => {
                    let names = said.as_array().unwrap().iter().map(|name| name.as_str().unwrap());
                    !value.is_object() || names.into_iter().all(|name| value.get(name).is_some())
                }
                "additionalProperties" => {
                    let known = |name: &str| keywords.get("properties").is_some_and(|known| known.get(name).is_some());
                    let others = value.as_object().into_iter().flatten().filter(|(name, _)| !known(name));
                    others.for_each(|(name, other)| self.look(said, other, &format!("{at}/{name}"), wrong));
                    true
                }
                "items" => {
                    let items = value.as_array().into_iter().flatten().enumerate();
                    items.for_each(|(n, item)| self.look(said, item, &format!("{at}/{n}"), wrong));
                    true
                }
                "propertyNames" => {
                    let names = value.as_object().into_iter().flatten().map(|(name, _)| Value::from(name.as_str()));
                    names.for_each(|name| self.look(said, &name, at, wrong));
                    true
                }
                "minimum" => value.as_f64().is_none_or(|number| number >= said.as_f64().unwrap()),
                "maximum" => value.as_f64().is_none_or(|number| number <= said.as_f64().unwrap()),
                "exclusiveMinimum" => value.as_f64().is_none_or(|number| number > said.as_f64().unwrap()),
                "minLength" => value.as_str().is_none_or(|text| text.chars().count() as u64 >= said.as_u64().unwrap()),
                "maxLength" => value.as_str().is_none_or(|text| text.chars().count() as u64 <= said.as_u64().unwrap()),
                "minItems" => value.as_array().is_none_or(|items| items.len() as u64 >= said.as_u64().unwrap()),
                "maxItems" => value.as_array().is_none_or(|items| items.len() as u64 <= said.as_u64().unwrap()),
                "uniqueItems" => {
                    value.as_array().is_none_or(|items| (1..items.len()).all(|i| !items[..i].contains(&items[i])))
                }
                "maxProperties" => value.as_object().is_none_or(|map| map.len() as u64 <= said.as_u64().unwrap()),
                "format" => value.as_str().is_none_or(|text| has_format(said.as_str().unwrap(), text)),
                // Read by people, or by what has regular expressions.
                "description" | "default" | "examples" | "pattern" => true,
                other => panic!("the description says {other:?}, which nobody checks here"),
            };
            if !holds {
                wrong.push(format!("{at} is {value}, and its {keyword} is {said}"));
            }
        }
    }
}

fn is_of(kind: &str, value: &Value) -> bool {
    match kind {
        "null" => value.is_null(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other:?} is no type"),
    }
}

fn has_format(format: &str, text: &str) -> bool {
    match format {
        "date-time" => text.parse::<DateTime<Utc>>().is_ok(),
        "date" => text.parse::<NaiveDate>().is_ok(),
        "uuid" => text.len() == 36 && text.parse::<uuid::Uuid>().is_ok(),
        "uri" => text.contains(':'),
        _ => !text.is_empty(),
    }
}
