//! Every combination of what the lists of the API can be asked for, for looking at how they are found.

use chrono::{DateTime, Utc};
use punctual_domain::fire::FireStatus;
use punctual_domain::id::{KeyId, ScheduleId};
use punctual_domain::store::{AuditFilter, FireFilter, Page, Span, TaskFilter};
use punctual_domain::task::TaskStatus;
use uuid::Uuid;

/// One of each of two lists.
fn pairs<A: Clone, B: Clone>(first: &[A], second: &[B]) -> Vec<(A, B)> {
    first.iter().flat_map(|one| second.iter().map(move |other| (one.clone(), other.clone()))).collect()
}

/// Nothing, or this.
fn maybe<T: Clone>(value: T) -> [Option<T>; 2] {
    [None, Some(value)]
}

fn instant(text: &str) -> DateTime<Utc> {
    text.parse().expect("an instant")
}

fn spans() -> Vec<Span> {
    let (from, to) = (maybe(instant("2026-03-01T00:00:00Z")), maybe(instant("2026-03-02T00:00:00Z")));
    pairs(&from, &to).into_iter().map(|(from, to)| Span { from, to }).collect()
}

/// The first page, and a later one.
pub(crate) fn pages<Id: Copy>(id: impl Fn(Uuid) -> Id) -> [Page<Id>; 2] {
    maybe(id(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0000))).map(|after| Page { after, limit: 50 })
}

/// All filters of tasks.
pub(crate) fn tasks() -> Vec<TaskFilter> {
    use TaskStatus::{Cancelled, Completed, Failed, Pending, Running};
    let statuses = [
        vec![],
        vec![Pending],
        vec![Running],
        vec![Completed],
        vec![Failed],
        vec![Pending, Running],
        vec![Failed, Cancelled],
        vec![Pending, Failed],
    ];
    let text = |text: &str| maybe(text.to_owned());
    let who = pairs(&pairs(&text("owner1"), &text("tenant1")), &text("correlation1"));
    let what = pairs(&pairs(&maybe("topic1".parse().expect("a topic")), &maybe(schedule())), &text("request1"));
    let all = pairs(&pairs(&pairs(&who, &what), &statuses), &spans());
    all.into_iter()
        .map(|(((who, what), status), run_at)| TaskFilter {
            status,
            topic: what.0.0,
            owner_id: who.0.0,
            tenant_id: who.0.1,
            correlation_id: who.1,
            client_request_id: what.1,
            schedule_id: what.0.1,
            run_at,
        })
        .collect()
}

/// The schedule of all fires, and of a few tasks.
pub(crate) fn schedule() -> ScheduleId {
    ScheduleId(Uuid::from_u128(1))
}

/// All filters of a schedule's fires.
pub(crate) fn fires() -> Vec<FireFilter> {
    let failed = FireStatus::Task(TaskStatus::Failed);
    let statuses = [vec![], vec![failed], vec![FireStatus::Skipped], vec![failed, FireStatus::Skipped]];
    pairs(&statuses, &spans()).into_iter().map(|(status, scheduled_at)| FireFilter { status, scheduled_at }).collect()
}

/// All filters of the audit log.
pub(crate) fn audit() -> Vec<AuditFilter> {
    let text = |text: &str| maybe(text.to_owned());
    let who = pairs(&maybe(KeyId(Uuid::from_u128(1))), &text("actor1"));
    let what = pairs(&text("action1"), &text("target1"));
    pairs(&pairs(&who, &what), &spans())
        .into_iter()
        .map(|(((key_id, actor), (action, target)), at)| AuditFilter { key_id, actor, action, target, at })
        .collect()
}
