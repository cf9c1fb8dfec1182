//! `GET /api/v1/schedules/{id}/executions`: a schedule's fires, with where their tasks stand.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::Uri;
use axum::response::Response;
use chrono::TimeDelta;
use punctual_domain::fire::{Fire, FireKind, FireStatus, SkipReason};
use punctual_domain::id::{FireId, TaskId};
use serde::Serialize;

use super::Api;
use super::instant::Instant;
use super::list_page::ListPage;
use super::problem::Problem;
use super::query::Parameters;
use super::schedule_edit::{no_such_schedule, schedule_id};

/// `GET /api/v1/schedules/{id}/executions`.
pub(crate) async fn list(State(api): State<Arc<Api>>, Path(id): Path<String>, uri: Uri) -> Result<Response, Problem> {
    let id = schedule_id(&id)?;
    let mut parameters = Parameters::of(&uri)?;
    let (filter, page) = (parameters.fire_filter(), parameters.page());
    parameters.finish()?;
    let page = ListPage::read(&api.page_memory, page, |page| api.store.fires(id, &filter, page)).await?;
    if page.items.is_empty() && !api.store.schedule_was_ever(id).await? {
        return Err(no_such_schedule(id));
    }
    let text = page.show(Execution::of)?;
    Ok(page.respond(&uri, text))
}

/// One fire.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Execution<'a> {
    id: FireId,
    kind: FireKind,
    scheduled_at: Instant,
    fired_at: Instant,
    started_at: Option<Instant>,
    completed_at: Option<Instant>,
    status: Option<&'a str>,
    attempts: u32,
    duration_ms: Option<i64>,
    lag_ms: i64,
    error: Option<&'a str>,
    task_id: Option<TaskId>,
    reason: Option<SkipReason>,
    tz_version: &'a str,
    until: Option<Instant>,
    count: u64,
}

impl<'a> Execution<'a> {
    fn of(fire: &'a Fire) -> Self {
        let task = fire.task.as_ref();
        let started_at = task.and_then(|task| task.started_at);
        let completed_at = task.and_then(|task| task.completed_at);
        let not_negative = |span: TimeDelta| span.num_milliseconds().max(0);
        Self {
            id: fire.id,
            kind: fire.kind,
            scheduled_at: Instant(fire.scheduled_at),
            fired_at: Instant(fire.fired_at),
            started_at: started_at.map(Instant),
            completed_at: completed_at.map(Instant),
            status: fire.status().map(FireStatus::as_str),
            attempts: task.map_or(0, |task| task.attempt),
            duration_ms: started_at.zip(completed_at).map(|(from, to)| not_negative(to - from)),
            lag_ms: not_negative(fire.fired_at - fire.scheduled_at),
            error: task.and_then(|task| task.error.as_deref()),
            task_id: task.map(|task| task.id),
            reason: fire.reason,
            tz_version: &fire.tz_version,
            until: fire.until.map(Instant),
            count: fire.count,
        }
    }
}
