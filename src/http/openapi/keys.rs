//! API keys, and the log of who changed what.

use axum::http::StatusCode;
use punctual_domain::key::Role;
use serde_json::json;

use super::operation::Operation;
use crate::http::keys::MOST_TOPICS;
use punctual_sdk::Schema;

pub(in crate::http) fn list(operation: Operation) -> Operation {
    operation.paged(Schema::named("Key"))
}

pub(in crate::http) fn create(operation: Operation) -> Operation {
    let topics =
        Schema::texts(Schema::topic_pattern(), 0..=MOST_TOPICS).about("what it is limited to; none is no limit");
    let secret = Schema::text().about("the key itself: it is not shown again").example("pk_…");
    operation
        .without_idempotency_key()
        .body(
            Schema::object([("name", Schema::key().matching(r"\S").example("deploy")), ("role", role())])
                .takes([("topics", topics)]),
            json!({"name": "deploy", "role": "submit", "topics": ["mail.*"]}),
        )
        .answers(StatusCode::CREATED, "The new key", key().needs([("key", secret)]))
        .leads_to("id", "$response.body#/id", ["revokeKey"])
}

pub(in crate::http) fn revoke(operation: Operation) -> Operation {
    operation.answers_nothing("It is revoked, at once")
}

pub(in crate::http) fn audit(operation: Operation) -> Operation {
    operation
        .query("keyId", Schema::id())
        .query("actor", Schema::text().example("deploy"))
        .query("action", Schema::text().example("PUT /api/v1/topics/{name}"))
        .query("target", Schema::text().example("mail.send"))
        .query("from", Schema::instant().about("nothing before"))
        .query("to", Schema::instant().about("only what was before"))
        .paged(Schema::named("Change"))
}

pub(super) fn schemas() -> Vec<(&'static str, Schema)> {
    let about = "what was changed or made, by its path; the filter of a bulk call, as JSON; else empty";
    let target = Schema::text().about(about).example("mail.send");
    let change = Schema::object([
        ("id", Schema::id()),
        ("at", Schema::instant()),
        ("keyId", Schema::id().or_null()),
        ("actor", Schema::text().about("the name of the key, or `local`").example("deploy")),
        ("action", Schema::text().example("PUT /api/v1/topics/{name}")),
        ("target", target),
        ("status", Schema::whole(100..=599).about("what was answered").example(200)),
        ("requestId", Schema::text().example("019a8f3e-5d7c-7c43-9f1e-3b8f0a6f2d10")),
    ]);
    vec![("Key", key()), ("Change", change)]
}

fn key() -> Schema {
    Schema::object([
        ("id", Schema::id()),
        ("name", Schema::key().example("deploy")),
        ("role", role()),
        ("topics", Schema::list(Schema::topic_pattern())),
        ("createdAt", Schema::instant()),
        ("revokedAt", Schema::instant().or_null()),
    ])
}

fn role() -> Schema {
    Schema::word(Role::ALL.map(Role::as_str))
}
