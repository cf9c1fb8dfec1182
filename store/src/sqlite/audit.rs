//! The audit log.

use async_trait::async_trait;
use futures::FutureExt;
use punctual_domain::audit::AuditEntry;
use punctual_domain::id::{AuditId, KeyId};
use punctual_domain::store::{Audit, AuditFilter, Page, StoreError};
use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Sqlite};
use uuid::Uuid;

use super::rows::{Columns, micros};
use super::{SqliteStore, broken};

#[async_trait]
impl Audit for SqliteStore {
    async fn record(&self, entries: Vec<AuditEntry>) -> Result<(), StoreError> {
        if entries.is_empty() {
            return Ok(());
        }
        self.write(move |connection, _| {
            async move {
                let mut query = QueryBuilder::<Sqlite>::new(
                    "INSERT INTO punctual_audit (id, at, key_id, actor, action, target, status, request_id) ",
                );
                query.push_values(entries, |mut row, entry| {
                    row.push_bind(entry.id.0)
                        .push_bind(micros(entry.at))
                        .push_bind(entry.key_id.map(|id| id.0))
                        .push_bind(entry.actor)
                        .push_bind(entry.action)
                        .push_bind(entry.target)
                        .push_bind(i64::from(entry.status))
                        .push_bind(entry.request_id);
                });
                query.build().execute(connection).await.map(drop).map_err(broken)
            }
            .boxed()
        })
        .await
    }

    async fn audit(&self, filter: &AuditFilter, page: Page<AuditId>) -> Result<Vec<AuditEntry>, StoreError> {
        let mut query = matching(filter, page);
        self.read(move |connection, _| {
            async move {
                let found = query.build().fetch_all(connection).await.map_err(broken)?;
                found.iter().map(entry).collect()
            }
            .boxed()
        })
        .await
    }
}

/// Entries that match, newest first.
pub(super) fn matching(filter: &AuditFilter, page: Page<AuditId>) -> QueryBuilder<Sqlite> {
    let mut query = QueryBuilder::<Sqlite>::new(
        "SELECT id, at, key_id, actor, action, target, status, request_id FROM punctual_audit WHERE true",
    );
    if let Some(key_id) = filter.key_id {
        query.push(" AND key_id = ").push_bind(key_id.0);
    }
    for (column, text) in [("actor", &filter.actor), ("action", &filter.action), ("target", &filter.target)] {
        if let Some(text) = text {
            query.push(format!(" AND {column} = ")).push_bind(text.clone());
        }
    }
    if let Some(from) = filter.at.from {
        query.push(" AND at >= ").push_bind(micros(from));
    }
    if let Some(to) = filter.at.to {
        query.push(" AND at < ").push_bind(micros(to));
    }
    if let Some(after) = page.after {
        query.push(" AND id < ").push_bind(after.0);
    }
    query.push(" ORDER BY id DESC LIMIT ").push_bind(i64::from(page.limit));
    query
}

fn entry(row: &SqliteRow) -> Result<AuditEntry, StoreError> {
    let mut columns = Columns::of(row);
    Ok(AuditEntry {
        id: AuditId(columns.take()?),
        at: columns.take_instant()?,
        key_id: columns.take::<Option<Uuid>>()?.map(KeyId),
        actor: columns.take()?,
        action: columns.take()?,
        target: columns.take()?,
        status: columns.take_count()?,
        request_id: columns.take()?,
    })
}
