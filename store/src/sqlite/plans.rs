//! How SQLite finds what lists are asked for.

use punctual_domain::id::{AuditId, FireId, MessageId, TaskId};
use punctual_domain::outbox::MessageStatus;
use sqlx::{AssertSqlSafe, Connection, SqliteConnection};

use super::{audit, fires, list, outbox};
use crate::{Options, connect, filters};

#[tokio::test]
async fn no_list_reads_a_table_without_an_index() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("punctual.db").display());
    connect(&url, Options::default()).await.unwrap().close().await.unwrap();
    let mut connection = SqliteConnection::connect(&url).await.unwrap();

    let mut queries = Vec::new();
    for page in filters::pages(TaskId) {
        queries.extend(filters::tasks().iter().map(|filter| list::tasks(filter, page)));
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
    let asked = queries.len();
    let mut faults = Vec::new();
    for query in queries {
        let sql = query.sql().as_str().to_owned();
        // What is bound does not matter: nothing has been measured of the values.
        let explained = format!("EXPLAIN QUERY PLAN {sql}");
        let plan: Vec<(i64, i64, i64, String)> =
            sqlx::query_as(AssertSqlSafe(explained)).fetch_all(&mut connection).await.unwrap();
        // A subquery that was made on the way is scanned too, and is a page long.
        let is_bad = |step: &str| step.starts_with("SCAN ") && !step.contains("USING") && !step.starts_with("SCAN (");
        faults.extend(plan.iter().filter(|(.., step)| is_bad(step)).map(|(.., step)| format!("{step}: {sql}")));
    }
    let first: Vec<_> = faults.iter().take(3).collect();
    assert!(faults.is_empty(), "{} of {asked} lists: {first:#?}", faults.len());
}
