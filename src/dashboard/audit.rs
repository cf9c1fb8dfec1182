//! `/audit`: who changed what.

use axum::response::Response;
use maud::{Markup, html};
use punctual_domain::audit::AuditEntry;
use punctual_domain::id::AuditId;
use punctual_domain::store::{AuditFilter, Page, Span};

use super::layout::Place;
use super::parts::{self, Tone, badge};
use super::visitor::Visitor;
use crate::http::cursor;
use crate::http::problem::Problem;
use crate::http::query::Parameters;

/// `GET /audit`.
pub(crate) async fn list(visitor: Visitor) -> Result<Response, Problem> {
    let mut parameters = Parameters::of(&visitor.uri)?;
    // A field of the form that was left empty filters nothing.
    let mut said = |name: &str| parameters.take(name).filter(|text| !text.is_empty());
    let (actor, action, target) = (said("actor"), said("action"), said("target"));
    let filter = AuditFilter {
        key_id: None,
        actor,
        action,
        target,
        at: Span { from: parameters.instant("from"), to: parameters.instant("to") },
    };
    let page: Page<AuditId> = parameters.page();
    parameters.finish()?;
    // One more than is wanted tells whether more follow.
    let mut entries = visitor.api.store.audit(&filter, Page { limit: page.limit + 1, ..page }).await?;
    let has_more = entries.len() > page.limit as usize;
    entries.truncate(page.limit as usize);
    let next_cursor = entries.last().filter(|_| has_more).map(|last| cursor::after(last.id.0));
    let rows: Vec<_> = entries.iter().map(|entry| cells(&visitor, entry)).collect();
    let is_filtered = filter != AuditFilter::default();
    let body = html! {
        section.sheet {
            div.head { h1 { "Audit" } span.hint { "Who changed what, newest first" } }
            form.filters method="get" action="/audit" {
                label { "Who" input name="actor" value=[filter.actor.as_deref()]; }
                label { "Did" input name="action" value=[filter.action.as_deref()] placeholder="POST /api/v1/…"; }
                label { "To what" input name="target" value=[filter.target.as_deref()]; }
                button type="submit" { "Filter" }
                @if is_filtered { a.button href="/audit" { "All" } }
            }
        }
        section #entries.sheet data-live {
            h2.unseen { "Entries" }
            @if rows.is_empty() {
                (parts::empty(match is_filtered {
                    true => "Changes that fit would be here. There are none.",
                    false => "Changes to schedules, topics, tasks and keys would be here. There are none yet.",
                }))
            } @else {
                (parts::table("Changes, newest first", &["When", "Who", "Did", "To what", "Answer"], &rows))
            }
            (parts::pager(&visitor.uri, next_cursor.as_deref()))
        }
    };
    Ok(visitor.page(Place::Audit, "Audit", &body))
}

fn cells(visitor: &Visitor, entry: &AuditEntry) -> Vec<Markup> {
    let tone = if entry.status < 400 { Tone::Good } else { Tone::Bad };
    vec![
        html! { (parts::ago(entry.at, visitor.now)) span.sub { (parts::clock(entry.at)) } },
        html! { (entry.actor) },
        // Where it is too long for its line, it goes on behind a slash.
        html! { code { @for part in entry.action.split_inclusive('/') { (part) wbr; } } },
        html! {
            @if entry.target.is_empty() { span.dim { "—" } }
            @else if let Some(page) = page_of(entry) { a href=(page) { code { (entry.target) } } }
            @else { code { (entry.target) } }
        },
        badge(tone, &entry.status.to_string()),
    ]
}

/// The page of what was changed, where it has one of its own and may still be there.
fn page_of(entry: &AuditEntry) -> Option<String> {
    let (method, route) = entry.action.split_once(' ')?;
    let place = route.strip_prefix("/api/v1/")?.split('/').next()?;
    let has_page = matches!(place, "schedules" | "tasks" | "outbox") && method != "DELETE" && entry.status != 404;
    let is_filter = entry.target.starts_with('{');
    // The target stands as it does in an address.
    (has_page && !is_filter).then(|| format!("/{place}/{}", entry.target))
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;

    #[test]
    fn what_was_changed_has_a_link_where_it_has_a_page() {
        for (action, status, expected) in [
            ("POST /api/v1/schedules", 201, Some("/schedules/x")),
            ("POST /api/v1/tasks/{id}/cancel", 200, Some("/tasks/x")),
            ("POST /api/v1/tasks/{id}/cancel", 404, None),
            ("POST /api/v1/outbox/{id}/retry", 409, Some("/outbox/x")),
            ("DELETE /api/v1/schedules/{id}", 204, None),
            ("PUT /api/v1/topics/{name}", 200, None),
            ("key create", 200, None),
        ] {
            let entry = AuditEntry {
                id: AuditId::generate(),
                at: DateTime::UNIX_EPOCH,
                key_id: None,
                actor: "a".into(),
                action: action.into(),
                target: "x".into(),
                status,
                request_id: String::new(),
            };
            assert_eq!(page_of(&entry).as_deref(), expected, "{action}");
        }
    }
}
