//! Lists of tasks: only the filters that were given become conditions, so that each can use its index.

use punctual_domain::id::TaskId;
use punctual_domain::store::{Page, TaskFilter};
use punctual_domain::task::TaskStatus;
use sqlx::{Postgres, QueryBuilder};

type Query = QueryBuilder<Postgres>;

/// Tasks that match, newest first.
pub(super) fn tasks(filter: &TaskFilter, page: Page<TaskId>) -> Query {
    let mut query = Query::new("");
    let halves = [
        (asks_for(filter, true), include_str!("sql/live_tasks.sql")),
        (asks_for(filter, false), include_str!("sql/ended_tasks.sql")),
    ];
    union(&mut query, halves, filter, page);
    query
}

/// Ids of tasks that match, newest first.
pub(super) fn ids(filter: &TaskFilter, page: Page<TaskId>) -> Query {
    let mut query = Query::new("");
    let halves = [
        (asks_for(filter, true), "SELECT id FROM punctual_tasks "),
        (asks_for(filter, false), "SELECT id FROM punctual_task_history "),
    ];
    union(&mut query, halves, filter, page);
    query
}

/// How many tasks match.
pub(super) fn count(filter: &TaskFilter) -> Query {
    let mut query = Query::new("SELECT ");
    for (i, (wanted, table)) in
        [(asks_for(filter, true), "punctual_tasks"), (asks_for(filter, false), "punctual_task_history")]
            .into_iter()
            .enumerate()
    {
        query.push(if i == 0 { "" } else { " + " });
        if wanted {
            query.push("(SELECT count(*) FROM ").push(table).push(" ");
            push_conditions(&mut query, filter, None);
            query.push(")");
        } else {
            query.push("0::bigint");
        }
    }
    query
}

/// The same filter, for live tasks only; `None` if it asks for none.
pub(super) fn live_only(filter: &TaskFilter) -> Option<TaskFilter> {
    only(filter, &[TaskStatus::Pending, TaskStatus::Running])
}

/// The same filter, for failed tasks only; `None` if it asks for none.
pub(super) fn failed_only(filter: &TaskFilter) -> Option<TaskFilter> {
    only(filter, &[TaskStatus::Failed])
}

fn only(filter: &TaskFilter, allowed: &[TaskStatus]) -> Option<TaskFilter> {
    let asked = |status: &TaskStatus| filter.status.is_empty() || filter.status.contains(status);
    let status: Vec<_> = allowed.iter().copied().filter(asked).collect();
    (!status.is_empty()).then(|| TaskFilter { status, ..filter.clone() })
}

/// Whether the filter's statuses reach into the live tasks, or into the ended ones.
fn asks_for(filter: &TaskFilter, live: bool) -> bool {
    filter.status.is_empty() || filter.status.iter().any(|status| status.has_ended() != live)
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
        query.push(" AND run_at >= ").push_bind(from);
    }
    if let Some(to) = filter.run_at.to {
        query.push(" AND run_at < ").push_bind(to);
    }
}
