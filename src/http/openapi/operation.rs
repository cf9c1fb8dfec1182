//! What one route takes and answers, every problem included.
//!
//! What holds for routes of a kind is added here, so that nobody has to remember it: the key and the role, what stands in
//! the path, `Idempotency-Key`, and the problems that any such request may meet.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::{Method, StatusCode};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::http::cursor;
use crate::http::endpoint::{Access, Endpoint};
use crate::http::problem::Code;
use crate::http::query::{DEFAULT_LIMIT, MAX_LIMIT};
use punctual_sdk::Schema;

/// The name of the way to say who one is.
pub(crate) const KEY: &str = "apiKey";

/// One operation, as far as it was told.
pub(crate) struct Operation {
    path: String,
    access: Access,
    id: &'static str,
    summary: &'static str,
    places: BTreeMap<&'static str, Schema>,
    parameters: Vec<Value>,
    body: Option<Value>,
    answers: BTreeMap<u16, Value>,
    problems: BTreeSet<Code>,
    takes_idempotency_key: bool,
}

impl Operation {
    /// The operation of a route, with all that is said about it.
    pub(super) fn of(endpoint: &Endpoint) -> Self {
        let Endpoint { method, path, access, id, summary, describe, .. } = endpoint;
        let bare = Self {
            path: path.to_string(),
            access: *access,
            id,
            summary,
            places: BTreeMap::new(),
            parameters: Vec::new(),
            body: None,
            answers: BTreeMap::new(),
            problems: BTreeSet::from([Code::Invalid, Code::UriTooLong, Code::HeadersTooLarge, Code::Internal]),
            takes_idempotency_key: *method == Method::POST,
        };
        describe(bare)
    }

    /// What stands in the path, where it is not an id.
    pub(super) fn place(mut self, name: &'static str, schema: Schema) -> Self {
        self.places.insert(name, schema);
        self
    }

    /// A parameter that may be given. One without a value counts as not given.
    pub(in crate::http) fn query(self, name: &str, schema: Schema) -> Self {
        self.parameter("query", name, false, schema)
    }

    /// A parameter that has to be given.
    pub(super) fn needs_query(self, name: &str, schema: Schema) -> Self {
        self.parameter("query", name, true, schema)
    }

    /// A header that may be given.
    pub(super) fn header(self, name: &str, schema: Schema) -> Self {
        self.parameter("header", name, false, schema)
    }

    /// A page of a list is asked for, and answered.
    pub(super) fn paged(self, items: Schema) -> Self {
        self.paged_after("cursor", items)
    }

    /// The same where the list is by name.
    pub(super) fn paged_by_name(self, items: Schema) -> Self {
        self.paged_after("cursor-by-name", items)
    }

    /// A page of a list is asked for; what is answered is said elsewhere.
    pub(in crate::http) fn pages(self) -> Self {
        self.pages_after("uuid")
    }

    fn pages_after(self, cursor: &str) -> Self {
        let limit = Schema::whole(1..=i64::from(MAX_LIMIT)).or(DEFAULT_LIMIT).about("how many items at the most");
        let id = Uuid::from_u128(0x019a_8f3e_5d7c_7c43_9f1e_3b8f_0a6f_2d11);
        let example = match cursor {
            "cursor" => cursor::after(id),
            "cursor-by-name" => cursor::after_name("mail.send"),
            _ => id.to_string(),
        };
        let cursor = Schema::format(cursor).about("`nextCursor` of the page before, as it is").example(example);
        self.query("limit", limit).query("cursor", cursor)
    }

    fn paged_after(self, cursor: &str, items: Schema) -> Self {
        self.pages_after(cursor)
            .answers(StatusCode::OK, "A page", Schema::page(items))
            .with("Link", "where the next page is, `rel=\"next\"`; missing on the last one")
    }

    /// An edit that can be made to a known version only.
    pub(super) fn if_match(self) -> Self {
        let about = "the version that is meant to be changed, as in `ETag`; another one there is 412";
        self.header("If-Match", Schema::text().about(about).example("\"1\"")).refuses([Code::VersionMismatch])
    }

    /// A body of JSON.
    pub(in crate::http) fn body(self, schema: Schema, example: Value) -> Self {
        self.bodies(&["application/json"], true, schema, example)
    }

    /// A body of JSON that may be left out.
    pub(super) fn optional_body(self, schema: Schema, example: Value) -> Self {
        self.bodies(&["application/json"], false, schema, example)
    }

    /// A body that may be left out, and has nothing to say.
    pub(in crate::http) fn empty_body(self) -> Self {
        self.optional_body(Schema::object([]), json!({}))
    }

    /// A body that is merged into what there is.
    pub(in crate::http) fn patch_body(self, schema: Schema, example: Value) -> Self {
        self.bodies(&["application/json", "application/merge-patch+json"], true, schema, example)
    }

    /// An answer of JSON.
    pub(super) fn answers(self, status: StatusCode, what: &str, schema: Schema) -> Self {
        self.answers_as(status, what, "application/json", schema)
    }

    /// An answer of another kind.
    pub(in crate::http) fn answers_as(mut self, status: StatusCode, what: &str, kind: &str, schema: Schema) -> Self {
        let answer = answer(what, Some((kind, schema)));
        self.answers.insert(status.as_u16(), answer);
        self
    }

    /// An answer without a body.
    pub(in crate::http) fn answers_nothing(mut self, what: &str) -> Self {
        self.answers.insert(StatusCode::NO_CONTENT.as_u16(), answer(what, None));
        self
    }

    /// A header of every answer that was named so far.
    pub(super) fn with(mut self, header: &str, about: &str) -> Self {
        for answer in self.answers.values_mut() {
            answer["headers"][header] = json!({"description": about, "schema": {"type": "string"}});
        }
        self
    }

    /// A header of one answer.
    pub(in crate::http) fn with_location(mut self, of: &str) -> Self {
        if let Some(answer) = self.answers.get_mut(&StatusCode::CREATED.as_u16()) {
            let about = format!("the address of the new {of}");
            answer["headers"]["Location"] = json!({"description": about, "schema": {"type": "string"}});
        }
        self
    }

    /// Operations that can go on with something of each answer, which they have in their path as `{id}` or `{name}`.
    pub(super) fn leads_to<const N: usize>(mut self, place: &str, said: &str, operations: [&str; N]) -> Self {
        for answer in self.answers.values_mut() {
            for operation in operations {
                answer["links"][operation] = json!({"operationId": operation, "parameters": {place: said}});
            }
        }
        self
    }

    /// Problems that it may meet beside those that any such route may.
    pub(in crate::http) fn refuses<const N: usize>(mut self, codes: [Code; N]) -> Self {
        self.problems.extend(codes);
        self
    }

    /// A `POST` whose answer is never kept.
    pub(super) fn without_idempotency_key(mut self) -> Self {
        self.takes_idempotency_key = false;
        self
    }

    /// The operation object of OpenAPI.
    pub(super) fn into_value(mut self) -> Value {
        self.add_what_holds_for_its_kind();
        let mut parameters: Vec<_> = placeholders(&self.path)
            .map(|name| {
                let schema = self.places.get(name).cloned().unwrap_or_else(Schema::id);
                json!({"in": "path", "name": name, "required": true, "schema": schema.into_value()})
            })
            .collect();
        parameters.append(&mut self.parameters);
        let mut responses: Map<_, _> =
            self.answers.into_iter().map(|(status, answer)| (status.to_string(), answer)).collect();
        let mut by_status: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
        for code in self.problems {
            by_status.entry(code.status().as_u16()).or_default().push(code);
        }
        for (status, codes) in by_status {
            responses.entry(status.to_string()).or_insert_with(|| problem(&codes));
        }
        let (security, role) = match self.access {
            Access::Open => (json!([]), "Open to everybody.".to_owned()),
            Access::Role(role) => {
                (json!([{KEY: [role.as_str()]}]), format!("Needs the role `{}` or a stronger one.", role.as_str()))
            }
        };
        let mut operation = json!({
            "operationId": self.id,
            "summary": self.summary,
            "description": role,
            "tags": [tag(&self.path)],
            "security": security,
            "parameters": parameters,
            "responses": responses,
        });
        if let Some(body) = self.body {
            operation["requestBody"] = body;
        }
        operation
    }

    fn add_what_holds_for_its_kind(&mut self) {
        if placeholders(&self.path).next().is_some() {
            self.problems.insert(Code::NotFound);
        }
        if let Access::Role(_) = self.access {
            self.problems.extend([Code::Unauthenticated, Code::Forbidden, Code::RateLimited, Code::Unavailable]);
        }
        if self.body.is_some() {
            self.problems.extend([Code::RequestTimeout, Code::TooLarge, Code::UnsupportedMediaType]);
        }
        if self.takes_idempotency_key {
            self.problems.insert(Code::IdempotencyKeyReused);
            let about = "makes the call safe to repeat for 24 hours: the same key and body get the first answer again";
            let schema = json!({
                "type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[ -~]+$",
                "description": about, "examples": ["order-17"],
            });
            self.parameters
                .push(json!({"in": "header", "name": "Idempotency-Key", "required": false, "schema": schema}));
        }
    }

    fn parameter(mut self, place: &str, name: &str, is_required: bool, schema: Schema) -> Self {
        let schema = schema.into_value();
        let mut parameter = json!({"in": place, "name": name, "required": is_required});
        if schema["type"] == "array" {
            // Several values, separated by commas.
            parameter["style"] = "form".into();
            parameter["explode"] = false.into();
        }
        if place == "query" && !is_required {
            parameter["allowEmptyValue"] = true.into();
        }
        parameter["schema"] = schema;
        self.parameters.push(parameter);
        self
    }

    fn bodies(mut self, kinds: &[&str], is_required: bool, schema: Schema, example: Value) -> Self {
        let schema = schema.into_value();
        let content = kinds.iter().map(|kind| (kind.to_string(), json!({"schema": schema, "example": example})));
        self.body = Some(json!({"required": is_required, "content": content.collect::<Map<_, _>>()}));
        self
    }
}

/// The names in braces of a path.
pub(super) fn placeholders(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

/// What a path is about: `tasks` of `/api/v1/tasks/{id}`, a plugin's name of its paths.
fn tag(path: &str) -> &str {
    let path = path.strip_prefix("/api/v1/plugins/").unwrap_or(path);
    path.strip_prefix("/api/v1/")
        .or(Some(path).filter(|path| !path.starts_with('/')))
        .and_then(|rest| rest.split('/').next())
        .unwrap_or("service")
}

fn answer(what: &str, content: Option<(&str, Schema)>) -> Value {
    let mut answer = json!({
        "description": what,
        "headers": {"X-Request-Id": {"$ref": "#/components/headers/X-Request-Id"}},
    });
    if let Some((kind, schema)) = content {
        answer["content"] = json!({kind: {"schema": schema.into_value()}});
    }
    answer
}

/// The answer of one status, which is a problem with one of these codes.
fn problem(codes: &[Code]) -> Value {
    let mut names: Vec<_> = codes.iter().map(|code| code.name()).collect();
    names.dedup();
    let status = codes.first().map_or(500, |code| code.status().as_u16());
    let titles: Vec<_> = codes.iter().map(|code| code.title()).collect();
    let mut problem = answer(&titles.join(", or: "), None);
    let schema = json!({
        "allOf": [
            {"$ref": "#/components/schemas/Problem"},
            {"properties": {"status": {"const": status}, "code": {"enum": names}}},
        ],
    });
    let example = codes.first().map(|code| code.example());
    problem["content"] = json!({"application/problem+json": {"schema": schema, "example": example}});
    for code in codes {
        if let Some((header, _, about)) = code.header() {
            problem["headers"][header] = json!({"description": about, "schema": {"type": "string"}});
        }
    }
    problem
}
