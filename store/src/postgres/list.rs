//! Lists of tasks: only the filters that were given become conditions, so that each can use its index.

use punctual_domain::id::TaskId;
use punctual_domain::store::{Page, Part, TaskFilter};
use sqlx::{Postgres, QueryBuilder};

use super::stretch::Newest;
use crate::instant::bounded;

pub(super) type Query = QueryBuilder<Postgres>;

/// Tasks that match, newest first; of some parts those that were found already.
pub(super) fn tasks(filter: &TaskFilter, page: Page<TaskId>, found: &[Newest]) -> Query {
    pages(filter, page, found, [include_str!("sql/live_tasks.sql"), include_str!("sql/ended_tasks.sql")])
}

/// Ids of tasks that match, newest first.
pub(super) fn ids(filter: &TaskFilter, page: Page<TaskId>) -> Query {
    pages(filter, page, &[], ["SELECT id FROM punctual_tasks ", "SELECT id FROM punctual_task_history "])
}

/// How many live tasks match.
pub(super) fn count_live(filter: &TaskFilter) -> Query {
    let mut query = Query::new("SELECT count(*) FROM punctual_tasks ");
    push_conditions(&mut query, filter, None);
    push_status(&mut query, filter);
    query
}

/// How many of the ended tasks that match can be written again: of those that share a dedupe key one, and none if the
/// key lives.
pub(super) fn count_retriable(filter: &TaskFilter) -> Query {
    let mut query = Query::new(
        "SELECT count(*) FILTER (WHERE dedupe_key IS NULL)
            + count(DISTINCT (topic, dedupe_key)) FILTER (WHERE dedupe_key IS NOT NULL)
         FROM punctual_task_history AS h ",
    );
    push_conditions(&mut query, filter, None);
    push_status(&mut query, filter);
    query.push(
        " AND NOT EXISTS (SELECT FROM punctual_tasks AS t WHERE t.topic = h.topic AND t.dedupe_key = h.dedupe_key)",
    );
    query
}

/// The newest of each part, and of those the newest.
fn pages(filter: &TaskFilter, page: Page<TaskId>, found: &[Newest], [live, ended]: [&'static str; 2]) -> Query {
    let mut query = Query::new("");
    let parts = filter.parts();
    let mut joined = "";
    for part in parts.iter().copied() {
        query.push(joined).push("(").push(if part.is_live() { live } else { ended });
        match found.iter().find(|newest| newest.part == part) {
            Some(newest) => query.push("WHERE id = ANY (").push_bind(newest.ids.clone()).push(")"),
            None => push_conditions(&mut query, filter, page.after),
        };
        push_part(&mut query, part);
        query.push(" ORDER BY id DESC LIMIT ").push_bind(i64::from(page.limit)).push(")");
        joined = " UNION ALL ";
    }
    // One part alone is ordered already.
    if parts.len() > 1 {
        query.push(" ORDER BY id DESC LIMIT ").push_bind(i64::from(page.limit));
    }
    query
}

/// The status of a part, word for word and one at a time: there are indexes for some of them.
pub(super) fn push_part(query: &mut Query, part: Part) {
    if let Some(status) = part.status() {
        query.push(format!(" AND status = '{status}'"));
    }
}

fn push_status(query: &mut Query, filter: &TaskFilter) {
    if !filter.status.is_empty() {
        let names: Vec<_> = filter.status.iter().map(|status| status.as_str()).collect();
        query.push(" AND status = ANY (").push_bind(names).push(")");
    }
}

/// All conditions but that of the status.
pub(super) fn push_conditions<'q>(query: &'q mut Query, filter: &TaskFilter, after: Option<TaskId>) -> &'q mut Query {
    query.push("WHERE true");
    if let Some(after) = after {
        query.push(" AND id < ").push_bind(after.0);
    }
    for (condition, wanted) in [
        (" AND topic = ", filter.topic.as_ref().map(|topic| topic.as_str())),
        (" AND owner_id = ", filter.owner_id.as_deref()),
        (" AND tenant_id = ", filter.tenant_id.as_deref()),
        (" AND correlation_id = ", filter.correlation_id.as_deref()),
    ] {
        if let Some(wanted) = wanted {
            query.push(condition).push_bind(wanted.to_owned());
        }
    }
    if let Some(client_request_id) = &filter.client_request_id {
        query
            .push(" AND id IN (SELECT c.id FROM punctual_client_requests AS c WHERE c.client_request_id = ")
            .push_bind(client_request_id.clone())
            .push(")");
    }
    if let Some(schedule_id) = filter.schedule_id {
        query.push(" AND schedule_id = ").push_bind(schedule_id.0);
    }
    if let Some(from) = filter.run_at.from {
        query.push(" AND run_at >= ").push_bind(bounded(from));
    }
    if let Some(to) = filter.run_at.to {
        query.push(" AND run_at < ").push_bind(bounded(to));
    }
    query
}
