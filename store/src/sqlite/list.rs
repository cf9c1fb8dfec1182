//! Lists of tasks: only the filters that were given become conditions, so that each can use its index.

use punctual_domain::id::TaskId;
use punctual_domain::store::{Page, Part, TaskFilter};
use punctual_domain::task::TaskStatus;
use sqlx::{QueryBuilder, Sqlite};

use super::rows::micros;

pub(super) type Query = QueryBuilder<Sqlite>;

/// Tasks that match, newest first.
pub(super) fn tasks(filter: &TaskFilter, page: Page<TaskId>) -> Query {
    pages(filter, page, [include_str!("sql/live_tasks.sql"), include_str!("sql/ended_tasks.sql")])
}

/// Ids of tasks that match, newest first.
pub(super) fn ids(filter: &TaskFilter, page: Page<TaskId>) -> Query {
    pages(filter, page, ["SELECT id FROM punctual_tasks", "SELECT id FROM punctual_task_history"])
}

/// How many live tasks match.
pub(super) fn count_live(filter: &TaskFilter) -> Query {
    let mut query = Query::new("SELECT count(*) FROM punctual_tasks");
    push_conditions(&mut query, filter, None);
    push_status(&mut query, filter);
    query
}

/// How many of the ended tasks that match can be written again: of those that share a dedupe key one, and none if the
/// key lives.
pub(super) fn count_retriable(filter: &TaskFilter) -> Query {
    let mut query = Query::new(
        "SELECT count(*) FILTER (WHERE dedupe_key IS NULL)
            + count(DISTINCT json_array(topic, dedupe_key)) FILTER (WHERE dedupe_key IS NOT NULL)
         FROM punctual_task_history AS h",
    );
    push_conditions(&mut query, filter, None);
    push_status(&mut query, filter);
    query.push(
        " AND NOT EXISTS (SELECT 1 FROM punctual_tasks AS t
            WHERE t.topic = h.topic AND t.dedupe_key = h.dedupe_key AND t.dedupe_key IS NOT NULL)",
    );
    query
}

/// The newest of each part, and of those the newest.
fn pages(filter: &TaskFilter, page: Page<TaskId>, [live, ended]: [&'static str; 2]) -> Query {
    let mut query = Query::new("");
    let mut joined = "";
    for part in filter.parts() {
        // A part's own order and limit need a SELECT around them.
        query.push(joined).push("SELECT * FROM (\n").push(if part.is_live() { live } else { ended });
        push_conditions(&mut query, filter, page.after);
        // Word for word, and one at a time: there are indexes for some of them.
        match part {
            // In the order of ids, whatever index there is: those of pending tasks have them in another order.
            Part::Of(TaskStatus::Pending) if filter.is_of_status_alone() => query.push(" AND +status = 'pending'"),
            // The index holds none that completed, which has to be said in its own words.
            Part::Of(status @ (TaskStatus::Failed | TaskStatus::Cancelled)) => {
                query.push(format!(" AND status = '{}' AND status <> 'completed'", status.as_str()))
            }
            Part::Of(status) => query.push(format!(" AND status = '{}'", status.as_str())),
            Part::Live | Part::Ended => &mut query,
        };
        query.push(" ORDER BY id DESC LIMIT ").push_bind(i64::from(page.limit)).push(")");
        joined = " UNION ALL ";
    }
    query.push(" ORDER BY id DESC LIMIT ").push_bind(i64::from(page.limit));
    query
}

fn push_status(query: &mut Query, filter: &TaskFilter) {
    if !filter.status.is_empty() {
        let mut names = query.push(" AND status IN (").separated(", ");
        for status in &filter.status {
            names.push_bind(status.as_str());
        }
        query.push(")");
    }
}

/// All conditions but that of the status.
fn push_conditions(query: &mut Query, filter: &TaskFilter, after: Option<TaskId>) {
    query.push(" WHERE true");
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
            .push(" AND id = (SELECT c.id FROM punctual_client_requests AS c WHERE c.client_request_id = ")
            .push_bind(client_request_id.clone())
            .push(")");
    }
    if let Some(schedule_id) = filter.schedule_id {
        query.push(" AND schedule_id = ").push_bind(schedule_id.0);
    }
    if let Some(from) = filter.run_at.from {
        query.push(" AND run_at >= ").push_bind(micros(from));
    }
    if let Some(to) = filter.run_at.to {
        query.push(" AND run_at < ").push_bind(micros(to));
    }
}
