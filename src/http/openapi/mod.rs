//! `GET /api/v1/openapi.json`: the API's own description, as OpenAPI 3.1 has it.
//!
//! It is made of the table that the router is made of, and a route cannot stand there without saying what it takes and
//! answers: what is not described is not served. The files beside this one say it, one for each thing the API is about.

pub(super) mod calendars;
pub(super) mod inspection;
pub(super) mod keys;
mod operation;
pub(super) mod outbox;
mod sample;
pub(super) mod schedules;
pub(super) mod service;
pub(super) mod tasks;
pub(super) mod templates;
pub(super) mod topics;
pub(super) mod workers;

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use serde_json::{Map, Value, json};

use operation::KEY;
pub(super) use operation::Operation;
use punctual_sdk::Schema;

use super::problem::{Code, Problem};
use super::query::Parameters;
use super::{Api, PluginRoutes, json as json_response, table};

pub(crate) const PATH: &str = "/api/v1/openapi.json";

/// `GET /api/v1/openapi.json`.
pub(crate) async fn show(State(api): State<Arc<Api>>, uri: Uri) -> Result<Response, Problem> {
    Parameters::of(&uri)?.finish()?;
    json_response(StatusCode::OK, api.document.get_or_init(|| document(&api.plugins)))
}

/// The whole description, with the routes of these plugins.
pub(crate) fn document(plugins: &PluginRoutes) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for endpoint in table::endpoints().into_iter().chain(plugins.endpoints()) {
        let method = endpoint.method.as_str().to_ascii_lowercase();
        let path = paths.entry(&*endpoint.path).or_insert_with(|| json!({}));
        path[method] = Operation::of(&endpoint).into_value();
    }
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Punctual",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Fires work on time, once, and can prove it",
            "description": ABOUT,
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "headers": {
                "X-Request-Id": {
                    "description": "the id of the request, as the log and the audit log have it; callers may bring their own",
                    "schema": {"type": "string", "maxLength": 64},
                },
            },
            "securitySchemes": {
                KEY: {
                    "type": "http", "scheme": "bearer",
                    "description": "An API key, `pk_…`. Not needed on this machine until there is one. Roles, each with all \
                                    before it: `read`, `submit`, `operate`, `admin`.",
                },
            },
        },
    });
    sample::complete(&mut document);
    document
}

const ABOUT: &str = "JSON in camelCase. Times need an offset when they come in, and go out in UTC with milliseconds. `null` is \
    the same as leaving a field out, except for `payload`. Texts hold no U+0000. Unknown fields and parameters are refused, \
    never ignored. Every refusal is a problem as RFC 9457 describes it.";

/// Every shape that has a name.
fn schemas() -> Map<String, Value> {
    let all = [
        vec![("Problem", problem())],
        tasks::schemas(),
        schedules::schemas(),
        calendars::schemas(),
        topics::schemas(),
        inspection::schemas(),
        outbox::schemas(),
        templates::schemas(),
        keys::schemas(),
        service::schemas(),
    ];
    all.into_iter().flatten().map(|(name, schema)| (name.to_owned(), schema.into_value())).collect()
}

fn problem() -> Schema {
    let error = Schema::object([
        ("field", Schema::text().example("retry.backoff.type")),
        ("message", Schema::text().about("what to change")),
    ]);
    let codes = Code::ALL.map(Code::name);
    Schema::object([
        ("type", Schema::format("uri")),
        ("title", Schema::text()),
        ("status", Schema::whole(400..=599)),
        ("detail", Schema::text().about("what is wrong, and what to do about it")),
        ("code", Schema::word(codes).about("the same word for the same problem, for programs")),
    ])
    .may_have([("errors", Schema::list(error).about("every bad field, a hundred at the most"))])
    .example(Code::Invalid.example())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(members) => {
                found.extend(members.get("$ref").and_then(Value::as_str).map(str::to_owned));
                members.values().for_each(|member| references(member, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_leads_somewhere_and_every_shape_is_used() {
        let document = document(&PluginRoutes::default());
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        for reference in &found {
            assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
        }
        for name in document["components"]["schemas"].as_object().unwrap().keys() {
            assert!(found.contains(&format!("#/components/schemas/{name}")), "nothing is a {name}");
        }
    }

    #[test]
    fn every_route_of_the_table_is_described_with_what_it_answers() {
        let document = document(&PluginRoutes::default());
        for endpoint in table::endpoints() {
            let method = endpoint.method.as_str().to_ascii_lowercase();
            let operation = &document["paths"][&*endpoint.path][&method];
            let responses = operation["responses"].as_object().unwrap();
            assert!(responses.keys().any(|status| status.starts_with('2')), "{} {}", method, endpoint.path);
            assert_eq!(operation["operationId"], endpoint.id);
            let takes_body = ["post", "put", "patch"].contains(&method.as_str());
            assert_eq!(operation.get("requestBody").is_some(), takes_body, "{} {}", method, endpoint.path);
        }
    }

    #[test]
    fn every_code_of_a_problem_is_named_by_some_route_or_holds_for_all_or_is_for_plugins() {
        let text = document(&PluginRoutes::default())["paths"].to_string();
        for code in Code::ALL.into_iter().filter(|code| ![Code::MethodNotAllowed, Code::Conflict].contains(code)) {
            assert!(text.contains(&format!("\"{}\"", code.name())), "{}", code.name());
        }
    }
}
