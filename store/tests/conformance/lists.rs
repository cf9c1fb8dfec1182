//! Lists of tasks: filters, order and pages, over live and ended tasks alike.

use punctual_domain::id::{ScheduleId, TaskId};
use punctual_domain::store::{Page, Span, TaskFilter};
use punctual_domain::task::{Task, TaskStatus};

use crate::support::*;

/// The ids of every page, one after the other.
async fn pages(node: &NodeStore, filter: &TaskFilter, limit: u32) -> Vec<TaskId> {
    let mut page = Page::first(limit);
    let mut found = Vec::new();
    loop {
        let tasks = node.tasks(filter, page).await.unwrap();
        assert!(tasks.len() <= limit as usize);
        found.extend(ids(&tasks));
        if tasks.len() < limit as usize {
            return found;
        }
        page.after = tasks.last().map(|task| task.id);
    }
}

/// A task of the kind in each of its states, newest last.
async fn in_every_state(world: &World, kind: TaskBuilder) -> Vec<Task> {
    let copy = |kind: &TaskBuilder| {
        let mut new = kind.clone().build();
        new.id = TaskId::generate();
        new
    };
    let mut tasks = Vec::new();
    for status in [TaskStatus::Completed, TaskStatus::Failed, TaskStatus::Cancelled] {
        tasks.push(world.ended(copy(&kind), status).await);
    }
    tasks.push(world.running(copy(&kind)).await);
    tasks.push(world.add(copy(&kind)).await);
    tasks
}

pub(crate) async fn a_list_is_newest_first_over_live_and_ended_tasks(world: World) {
    let mut all = world.add_all((0..9).map(|_| task("mail"))).await;
    for (i, claimed) in world.claim_up_to(9, "mail").await.into_iter().enumerate() {
        all[i] = match i % 3 {
            0 => world.settle_now(&claimed, completed()).await,
            1 => world.settle_now(&claimed, retried(5)).await,
            _ => claimed,
        };
    }
    all.reverse();
    assert_eq!(world.list(TaskFilter::default()).await, all);
}

pub(crate) async fn each_status_is_listed_alone_and_together(world: World) {
    let tasks = in_every_state(&world, task("mail")).await;
    for task in &tasks {
        let filter = TaskFilter { status: vec![task.status], ..Default::default() };
        assert_eq!(world.list(filter).await, std::slice::from_ref(task));
    }
    let several = vec![TaskStatus::Pending, TaskStatus::Failed, TaskStatus::Completed];
    let expected = newest_first(tasks.iter().filter(|task| several.contains(&task.status)));
    assert_eq!(ids(&world.list(TaskFilter { status: several, ..Default::default() }).await), expected);
    let all = TaskFilter { status: TaskStatus::ALL.into(), ..Default::default() };
    assert_eq!(world.list(all).await.len(), 5);
}

pub(crate) async fn each_filter_finds_live_and_ended_tasks(world: World) {
    let schedule_id = ScheduleId::generate();
    let kinds = [
        (task("print"), TaskFilter { topic: Some(topic("print")), ..Default::default() }),
        (task("a").owner("me"), TaskFilter { owner_id: Some("me".into()), ..Default::default() }),
        (task("b").metadata("tenantId", "acme"), TaskFilter { tenant_id: Some("acme".into()), ..Default::default() }),
        (
            task("c").metadata("correlationId", "trace"),
            TaskFilter { correlation_id: Some("trace".into()), ..Default::default() },
        ),
        (
            task("d").of_schedule(schedule_id, world.now()),
            TaskFilter { schedule_id: Some(schedule_id), ..Default::default() },
        ),
    ];
    for (kind, filter) in kinds {
        let tasks = in_every_state(&world, kind).await;
        assert_eq!(ids(&world.list(filter.clone()).await), newest_first(&tasks), "{filter:?}");
    }
    for (i, status) in [TaskStatus::Completed, TaskStatus::Failed, TaskStatus::Cancelled].into_iter().enumerate() {
        let id = i.to_string();
        let ended = world.ended(task("e").client_request_id(&id), status).await;
        assert_eq!(world.list(TaskFilter { client_request_id: Some(id), ..Default::default() }).await, [ended]);
    }
    let pending = world.add(task("e").client_request_id("p")).await;
    let filter = TaskFilter { client_request_id: Some("p".into()), ..Default::default() };
    assert_eq!(world.list(filter).await, [pending]);
}

pub(crate) async fn filters_narrow_each_other(world: World) {
    let wanted = in_every_state(&world, task("mail").owner("me").metadata("tenantId", "acme")).await;
    in_every_state(&world, task("mail.2").owner("me").metadata("tenantId", "acme")).await;
    in_every_state(&world, task("mail.3").owner("you").metadata("tenantId", "acme")).await;
    let filter = TaskFilter {
        topic: Some(topic("mail")),
        owner_id: Some("me".into()),
        tenant_id: Some("acme".into()),
        ..Default::default()
    };
    assert_eq!(ids(&world.list(filter.clone()).await), newest_first(&wanted));
    for task in &wanted {
        let filter = TaskFilter {
            status: vec![task.status],
            run_at: Span { from: Some(task.run_at), to: None },
            ..filter.clone()
        };
        assert_eq!(world.list(filter).await, std::slice::from_ref(task));
    }
    assert_eq!(world.list(TaskFilter { tenant_id: Some("other".into()), ..filter }).await, []);
}

pub(crate) async fn a_span_has_its_first_instant_and_not_its_last(world: World) {
    let instants = [10, 20, 30].map(|seconds| world.in_secs(seconds));
    let live = world.add_all(instants.map(|at| task("mail").at(at))).await;
    let mut ended = world.add_all(instants.map(|at| task("print").at(at))).await;
    for task in &mut ended {
        *task = world.cancel(task.id).await.unwrap();
    }
    let [first, second, third] = instants;
    for (from, to, found) in [
        (Some(first), Some(third), vec![0, 1]),
        (Some(second), None, vec![1, 2]),
        (None, Some(second), vec![0]),
        (Some(second), Some(second), vec![]),
        (None, None, vec![0, 1, 2]),
    ] {
        let filter = TaskFilter { run_at: Span { from, to }, ..Default::default() };
        let expected = newest_first(found.iter().flat_map(|i: &usize| [&live[*i], &ended[*i]]));
        assert_eq!(ids(&world.list(filter).await), expected, "{from:?} to {to:?}");
    }
}

pub(crate) async fn filters_compare_letter_by_letter(world: World) {
    let owners = ["me", "ME", "m%", "m_", "me ", "'me'", "é"];
    world.add_all(owners.map(|owner| task("mail").owner(owner))).await;
    for owner in owners {
        let found = world.list(TaskFilter { owner_id: Some(owner.into()), ..Default::default() }).await;
        assert_eq!(found.len(), 1, "{owner:?}");
        assert_eq!(found[0].metadata["ownerId"], owner);
    }
    let topics = world.list(TaskFilter { topic: Some(topic("Mail")), ..Default::default() }).await;
    assert_eq!(topics, []);
}

pub(crate) async fn a_page_has_no_more_than_its_limit(world: World) {
    let all = newest_first(&world.add_all((0..5).map(|_| task("mail"))).await);
    for limit in [1, 4, 5, 6] {
        let page = world.tasks(&TaskFilter::default(), Page::first(limit)).await.unwrap();
        assert_eq!(ids(&page), all[..all.len().min(limit as usize)]);
    }
    let beyond = Page { after: all.last().copied(), limit: 5 };
    assert_eq!(world.tasks(&TaskFilter::default(), beyond).await, Ok(vec![]));
}

pub(crate) async fn pages_over_a_thousand_tasks_miss_and_repeat_none(world: World) {
    let all = newest_first(&world.add_all((0..1_000).map(|i| task("mail").in_secs(1_000 - i % 7 * 100))).await);
    // A third is ended, so that every page draws from both.
    for id in all.iter().step_by(3) {
        world.cancel(*id).await.unwrap();
    }
    for limit in [7, 100, 1_000] {
        assert_eq!(pages(&world, &TaskFilter::default(), limit).await, all, "pages of {limit}");
    }
    let live = TaskFilter { status: vec![TaskStatus::Pending], ..Default::default() };
    let expected: Vec<_> = all.iter().enumerate().filter(|(i, _)| i % 3 != 0).map(|(_, id)| *id).collect();
    assert_eq!(pages(&world, &live, 64).await, expected);
}

pub(crate) async fn pages_are_not_disturbed_by_tasks_that_arrive_or_end(world: World) {
    let all = newest_first(&world.add_all((0..300).map(|_| task("mail"))).await);
    let mut page = Page::first(25);
    let mut found = Vec::new();
    loop {
        let tasks = world.tasks(&TaskFilter::default(), page).await.unwrap();
        let Some(last) = tasks.last() else { break };
        page.after = Some(last.id);
        found.extend(ids(&tasks));
        world.add_all((0..10).map(|_| task("mail"))).await;
        for task in world.claim_up_to(20, "mail").await {
            world.settle_now(&task, completed()).await;
        }
    }
    assert_eq!(found, all);
}
