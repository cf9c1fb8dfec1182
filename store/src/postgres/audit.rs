//! The audit log.

use async_trait::async_trait;
use punctual_domain::audit::AuditEntry;
use punctual_domain::id::{AuditId, KeyId};
use punctual_domain::store::{Audit, AuditFilter, Page, StoreError};
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder};
use uuid::Uuid;

use super::{PostgresStore, broken, rows};
use crate::instant::bounded;

#[async_trait]
impl Audit for PostgresStore {
    async fn record(&self, entries: Vec<AuditEntry>) -> Result<(), StoreError> {
        if entries.is_empty() {
            return Ok(());
        }
        let mut query = QueryBuilder::<Postgres>::new(
            "INSERT INTO punctual_audit (id, at, key_id, actor, action, target, status, request_id) ",
        );
        query.push_values(entries, |mut row, entry| {
            row.push_bind(entry.id.0)
                .push_bind(bounded(entry.at))
                .push_bind(entry.key_id.map(|id| id.0))
                .push_bind(entry.actor)
                .push_bind(entry.action)
                .push_bind(entry.target)
                .push_bind(i32::from(entry.status))
                .push_bind(entry.request_id);
        });
        lend!(self, |connection| { query.build().execute(connection).await.map(drop).map_err(broken) })
    }

    async fn audit(&self, filter: &AuditFilter, page: Page<AuditId>) -> Result<Vec<AuditEntry>, StoreError> {
        let mut query = matching(filter, page);
        lend!(self, |connection| {
            let found = query.build().fetch_all(connection).await.map_err(broken)?;
            found.iter().map(entry).collect()
        })
    }
}

/// Entries that match, newest first.
pub(super) fn matching(filter: &AuditFilter, page: Page<AuditId>) -> QueryBuilder<Postgres> {
    let mut query = QueryBuilder::<Postgres>::new(
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
        query.push(" AND at >= ").push_bind(bounded(from));
    }
    if let Some(to) = filter.at.to {
        query.push(" AND at < ").push_bind(bounded(to));
    }
    if let Some(after) = page.after {
        query.push(" AND id < ").push_bind(after.0);
    }
    query.push(" ORDER BY id DESC LIMIT ").push_bind(i64::from(page.limit));
    query
}

fn entry(row: &PgRow) -> Result<AuditEntry, StoreError> {
    let mut columns = rows::Columns::of(row);
    Ok(AuditEntry {
        id: AuditId(columns.take()?),
        at: columns.take()?,
        key_id: columns.take::<Option<Uuid>>()?.map(KeyId),
        actor: columns.take()?,
        action: columns.take()?,
        target: columns.take()?,
        status: columns.take::<i32>()?.try_into().unwrap_or(0),
        request_id: columns.take()?,
    })
}
