//! Lists of tasks: only the filters that were given become conditions, so that each can use its index.

use punctual_domain::id::TaskId;
use punctual_domain::store::{Page, TaskFilter};
use sqlx::{Postgres, QueryBuilder};

use crate::instant::bounded;

pub(super) type Query = QueryBuilder<Postgres>;

/// Tasks that match, newest first.
pub(super) fn tasks(filter: &TaskFilter, page: Page<TaskId>) -> Query {
    let mut query = Query::new("");
    let halves = [
        (filter.asks_for_live(), include_str!("sql/live_tasks.sql")),
        (filter.asks_for_ended(), include_str!("sql/ended_tasks.sql")),
    ];
    union(&mut query, halves, filter, page);
    query
}

/// Ids of tasks that match, newest first.
pub(super) fn ids(filter: &TaskFilter, page: Page<TaskId>) -> Query {
    let mut query = Query::new("");
    let halves = [
        (filter.asks_for_live(), "SELECT id FROM punctual_tasks "),
        (filter.asks_for_ended(), "SELECT id FROM punctual_task_history "),
    ];
    union(&mut query, halves, filter, page);
    query
}

/// How many live tasks match.
pub(super) fn count_live(filter: &TaskFilter) -> Query {
    let mut query = Query::new("SELECT count(*) FROM punctual_tasks ");
    push_conditions(&mut query, filter, None);
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
    query.push(
        " AND NOT EXISTS (SELECT FROM punctual_tasks AS t WHERE t.topic = h.topic AND t.dedupe_key = h.dedupe_key)",
    );
    query
}

fn union(query: &mut Query, halves: [(bool, &'static str); 2], filter: &TaskFilter, page: Page<TaskId>) {
    let mut joined = "";
    for (_, select) in halves.iter().filter(|(wanted, _)| *wanted) {
        query.push(joined).push("(").push(*select);
        push_conditions(query, filter, page.after);
        query.push(" ORDER BY id DESC LIMIT ").push_bind(i64::from(page.limit)).push(")");
        joined = " UNION ALL ";
    }
    // The ends of both halves together; one half alone is ordered already.
    if halves.iter().all(|(wanted, _)| *wanted) {
        query.push(" ORDER BY id DESC LIMIT ").push_bind(i64::from(page.limit));
    }
}

fn push_conditions(query: &mut Query, filter: &TaskFilter, after: Option<TaskId>) {
    query.push("WHERE true");
    if let Some(after) = after {
        query.push(" AND id < ").push_bind(after.0);
    }
    if !filter.status.is_empty() {
        let names: Vec<_> = filter.status.iter().map(|status| status.as_str()).collect();
        query.push(" AND status = ANY (").push_bind(names).push(")");
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
}
