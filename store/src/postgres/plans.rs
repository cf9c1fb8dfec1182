//! How PostgreSQL finds what lists are asked for, with enough rows that it has to choose.

use punctual_domain::id::{AuditId, FireId, MessageId, TaskId};
use punctual_domain::outbox::MessageStatus;
use punctual_domain::store::{Page, Part};
use punctual_domain::task::TaskStatus;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection, Execute, PgConnection, Postgres, QueryBuilder, Row};

use super::{audit, fires, list, outbox, stretch};
use crate::{Options, Scratch, connect, filters};

/// Twenty thousand of each kind.
const FILL: &str = "
INSERT INTO punctual_tasks (id, topic, status, run_at, first_run_at, owner_id, tenant_id, correlation_id, schedule_id, created_at)
SELECT gen_random_uuid(), 'topic' || i % 100, CASE WHEN i % 100 = 0 THEN 'running' ELSE 'pending' END,
    timestamptz '2026-03-01' + i * interval '1 minute', timestamptz '2026-03-01', 'owner' || i % 1000, 'tenant' || i % 500,
    'correlation' || i, lpad(to_hex(i % 1000), 32, '0')::uuid, timestamptz '2026-03-01'
FROM generate_series(1, 20000) AS i;
INSERT INTO punctual_task_history (id, topic, status, priority, run_at, timezone, payload, owner_id, tenant_id, correlation_id,
    timeout_seconds, attempt, lost, snoozes, epoch, schedule_id, created_at, completed_at)
SELECT gen_random_uuid(), 'topic' || i % 100, CASE WHEN i % 100 = 0 THEN 'failed' ELSE 'completed' END, 0,
    timestamptz '2026-02-01' + i * interval '1 minute', 'UTC', '{}', 'owner' || i % 1000, 'tenant' || i % 500,
    'correlation' || i, 3600, 1, 0, 0, 1, lpad(to_hex(i % 1000), 32, '0')::uuid, timestamptz '2026-02-01',
    timestamptz '2026-02-01' + i * interval '1 minute'
FROM generate_series(1, 20000) AS i;
INSERT INTO punctual_client_requests SELECT 'request' || row_number() OVER (), 'task', id FROM punctual_tasks;
INSERT INTO punctual_fires (id, schedule_id, kind, scheduled_at, fired_at, tz_version, task_id)
SELECT gen_random_uuid(), lpad(to_hex(i % 1000), 32, '0')::uuid, 'schedule', timestamptz '2026-02-01' + i * interval '1 minute',
    timestamptz '2026-02-01' + i * interval '1 minute', '2026a', gen_random_uuid()
FROM generate_series(1, 20000) AS i;
INSERT INTO punctual_outbox (id, dedupe_key, transport, recipient, body, status, next_attempt_at, created_at)
SELECT gen_random_uuid(), 'key' || i, 'log', 'me', '{}', CASE WHEN i % 100 = 0 THEN 'failed' ELSE 'sent' END, now(), now()
FROM generate_series(1, 20000) AS i;
INSERT INTO punctual_audit (id, at, key_id, actor, action, target, status, request_id)
SELECT gen_random_uuid(), timestamptz '2026-02-01' + i * interval '1 minute', lpad(to_hex(i % 100), 32, '0')::uuid,
    'actor' || i % 100, 'action' || i % 70, 'target' || i, 200, '' FROM generate_series(1, 20000) AS i;
ANALYZE";

/// The most rows that may be sorted for a page of fifty.
const SORTED: f64 = 2_000.0;

/// Says what is wrong with a plan: a table that is read from end to end, or many rows sorted.
fn fault(plan: &Value) -> Option<String> {
    let rows = plan["Plan Rows"].as_f64().unwrap_or_default();
    match plan["Node Type"].as_str() {
        Some("Seq Scan") if plan["Relation Name"] != "punctual_schedules" => {
            return Some(format!("{} is read from end to end", plan["Relation Name"]));
        }
        Some("Sort") if rows > SORTED => return Some(format!("{rows} rows are sorted")),
        _ => {}
    }
    plan["Plans"].as_array().into_iter().flatten().find_map(fault)
}

async fn explain(connection: &mut PgConnection, mut query: QueryBuilder<Postgres>) -> Option<String> {
    let mut query = query.build();
    let arguments = query.take_arguments().unwrap().unwrap_or_default();
    let sql = query.sql().as_str().to_owned();
    let explained = format!("EXPLAIN (FORMAT JSON) {sql}");
    let row = sqlx::query_with(AssertSqlSafe(explained), arguments)
        .persistent(false)
        .fetch_one(connection)
        .await
        .unwrap_or_else(|error| panic!("{error}: {sql}"));
    let plan: Value = serde_json::from_str(row.try_get_unchecked(0).unwrap()).unwrap();
    let conditions =
        || sql.split("WHERE").skip(1).map(|part| part.lines().next().unwrap_or_default().trim()).collect::<Vec<_>>();
    fault(&plan[0]["Plan"]).map(|fault| format!("{fault}: {:?}", conditions()))
}

/// A database with our tables and what a test puts into them; none, and a word about it, without a server.
pub(super) async fn filled(with: &'static str) -> Option<(Scratch, PgConnection)> {
    let Ok(server) = std::env::var("TEST_DATABASE_URL") else {
        assert!(std::env::var_os("CI").is_none(), "CI skips no database: set TEST_DATABASE_URL");
        println!("skipped: TEST_DATABASE_URL is not set");
        return None;
    };
    let scratch = Scratch::create(&server).await.unwrap();
    connect(scratch.url(), Options::default()).await.unwrap().close().await.unwrap();
    let mut connection = PgConnection::connect(scratch.url()).await.unwrap();
    sqlx::raw_sql(with).execute(&mut connection).await.unwrap();
    Some((scratch, connection))
}

#[tokio::test]
async fn no_list_reads_a_table_from_end_to_end_or_sorts_it() {
    let Some((scratch, mut connection)) = filled(FILL).await else { return };

    let mut queries = Vec::new();
    let mut by_id = Vec::new();
    for page in filters::pages(TaskId) {
        for filter in &filters::tasks() {
            if !filter.is_of_time_alone() {
                queries.push(list::tasks(filter, page, &[]));
                continue;
            }
            for part in [Part::Of(TaskStatus::Pending), Part::Ended, Part::Of(TaskStatus::Completed)] {
                queries.push(stretch::few_from(None, part, filter, page, page.limit));
                queries.push(stretch::few_from(page.after, part, filter, Page::first(50), page.limit));
                by_id.push(stretch::by_id(part, filter, page));
            }
        }
    }
    for page in filters::pages(FireId) {
        queries.extend(filters::fires().iter().map(|filter| fires::matching(filters::schedule(), filter, page)));
    }
    for page in filters::pages(AuditId) {
        queries.extend(filters::audit().iter().map(|filter| audit::matching(filter, page)));
    }
    for page in filters::pages(MessageId) {
        let statuses = [None, Some(MessageStatus::Pending), Some(MessageStatus::Sent), Some(MessageStatus::Failed)];
        queries.extend(statuses.map(|status| outbox::matching(status, page)));
    }
    let asked = queries.len() + by_id.len();
    let mut faults = Vec::new();
    for query in queries {
        faults.extend(explain(&mut connection, query).await);
    }
    let mut transaction = connection.begin().await.unwrap();
    sqlx::raw_sql(stretch::BY_ID).execute(&mut *transaction).await.unwrap();
    for query in by_id {
        faults.extend(explain(&mut transaction, query).await);
    }
    transaction.rollback().await.unwrap();
    scratch.remove().await.unwrap();
    let first: Vec<_> = faults.iter().take(20).collect();
    assert!(faults.is_empty(), "{} of {asked} lists: {first:#?}", faults.len());
    assert!(asked > 4_000, "{asked} lists");
}

/// Ten thousand tasks that are due, of which the statistics know nothing.
const BACKLOG: &str = "
ALTER TABLE punctual_tasks SET (autovacuum_enabled = off);
INSERT INTO punctual_tasks (id, topic, run_at, first_run_at, created_at)
SELECT gen_random_uuid(), 'topic', timestamptz '2026-03-01', timestamptz '2026-03-01', timestamptz '2026-03-01'
FROM generate_series(1, 10000)";

#[tokio::test]
async fn a_look_for_due_topics_reads_little_however_much_is_due() {
    let Some((scratch, mut connection)) = filled(BACKLOG).await else { return };
    let look = concat!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ", include_str!("sql/due_topics.sql"));
    let row = sqlx::query(look)
        .bind(None::<chrono::DateTime<chrono::Utc>>)
        .bind("")
        .bind(1_000_i64)
        .fetch_one(&mut connection)
        .await
        .unwrap();
    let plan: Value = serde_json::from_str(row.try_get_unchecked(0).unwrap()).unwrap();
    scratch.remove().await.unwrap();
    assert_eq!(plan[0]["Plan"]["Actual Rows"].as_f64(), Some(1.0));
    let blocks = |which: &str| plan[0]["Plan"][which].as_u64().unwrap();
    let pages = blocks("Shared Hit Blocks") + blocks("Shared Read Blocks");
    assert!(pages < 100, "{pages} pages were read: {plan:#}");
}
