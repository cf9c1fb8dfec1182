//! The outbox: messages on their way out.

use axum::http::StatusCode;
use punctual_domain::outbox::MessageStatus;
use serde_json::json;

use super::operation::Operation;
use crate::http::problem::Code;
use punctual_sdk::Schema;

pub(in crate::http) fn list(operation: Operation) -> Operation {
    operation
        .query("status", Schema::word(MessageStatus::ALL.map(MessageStatus::as_str)))
        .paged(Schema::named("Message"))
        .leads_to("id", "$response.body#/items/0/id", ["retryMessage"])
}

pub(in crate::http) fn show(operation: Operation) -> Operation {
    operation.answers(StatusCode::OK, "The message", Schema::named("Message"))
}

pub(in crate::http) fn retry(operation: Operation) -> Operation {
    operation.empty_body().answers(StatusCode::OK, "The message", Schema::named("Message")).refuses([Code::NotFailed])
}

pub(super) fn schemas() -> Vec<(&'static str, Schema)> {
    let said = Schema::any()
        .about("what it says: subject, text, html, templateSlug, data")
        .example(json!({"subject": "Your order is waiting", "text": "Go on where you stopped.", "html": null}));
    let message = Schema::object([
        ("id", Schema::id()),
        ("status", Schema::word(MessageStatus::ALL.map(MessageStatus::as_str))),
        ("transport", Schema::text().example("smtp")),
        ("recipient", Schema::text().example("ada@example.com")),
        ("dedupeKey", Schema::text().example("signup-reminder-early__17")),
        ("body", said),
        ("attempt", Schema::count()),
        ("nextAttemptAt", Schema::instant().or_null()),
        ("providerId", Schema::text().or_null()),
        ("error", Schema::text().or_null()),
        ("createdAt", Schema::instant()),
        ("completedAt", Schema::instant().or_null()),
    ]);
    vec![("Message", message)]
}
