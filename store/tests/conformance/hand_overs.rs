//! Tasks that queues outside have accepted: they run without a lease, attempt by attempt, until somebody settles them.

use std::time::Duration;

use punctual_domain::fire::FireStatus;
use punctual_domain::hand_over::{HandOver, HandedOver, MessageJob, Mirrored, NewHandOver, Queue, Step};
use punctual_domain::id::{Epoch, MessageId, TaskId};
use punctual_domain::store::{Bulk, Extension, FireFilter, Page, Settled, TaskFilter, WhichHandOvers};
use punctual_domain::task::{AttemptOutcome, MAX_LOST, NewTask, Task, TaskStatus};
use punctual_domain::topic::{Route, TopicDefinition};

use crate::support::*;

fn queue(name: &str) -> Queue {
    Queue { prefix: "bull".into(), name: name.into() }
}

fn held(task: &Task) -> Extension {
    Extension { task_id: task.id, epoch: task.epoch }
}

/// Hands a task over for a minute; its job has the task's id.
async fn hand_over(node: &NodeStore, task: &Task, name: &str) -> bool {
    let limit = Duration::from_secs(60);
    let hand_over = NewHandOver { queue: queue(name), job_id: task.id.to_string(), limit };
    node.hand_over(held(task), &hand_over).await.unwrap()
}

async fn found(node: &NodeStore, which: WhichHandOvers) -> Vec<TaskId> {
    node.hand_overs(&which, 100).await.unwrap().iter().map(|found| found.task_id).collect()
}

/// The hand-over of a task, whether or not it counts.
async fn of(node: &NodeStore, id: TaskId) -> HandOver {
    node.hand_overs(&WhichHandOvers::OfTask(id), 2).await.unwrap().remove(0)
}

fn of_jobs(name: &str, tasks: &[&Task]) -> WhichHandOvers {
    WhichHandOvers::OfJobs(queue(name), tasks.iter().map(|task| task.id.to_string()).collect())
}

pub(crate) async fn a_handed_over_task_runs_without_a_lease_until_it_is_settled(world: World) {
    let task = world.running(task("mail").attempts(3).serial_key("s")).await;
    assert!(hand_over(&world, &task, "jobs").await);
    let read = world.read(task.id).await;
    assert_eq!((read.status, read.epoch, read.attempt), (TaskStatus::Running, task.epoch, 1));
    assert_eq!(read.lease.map(|lease| (lease.owner, lease.expires_at)), Some((world.id, None)));
    let expected = HandOver {
        task_id: task.id,
        epoch: task.epoch,
        queue: queue("jobs"),
        job_id: task.id.to_string(),
        first_attempt: 1,
        handed_over_at: world.now(),
        ends_at: world.in_secs(60),
        progress: None,
        task: Some(HandedOver {
            topic: topic("mail"),
            attempt: 1,
            started_at: world.now(),
            timeout_seconds: 3600,
            rests: false,
            is_of_schedule: false,
            has_serial_key: true,
        }),
    };
    assert_eq!(of(&world, task.id).await, expected);
    // Nobody frees it, extends it or claims it.
    world.advance_secs(3_600);
    let expired = world.expire(MAX_LOST, 10).await.unwrap();
    assert_eq!((expired.freed, expired.failed), (0, 0));
    assert_eq!(world.next_repair().await.unwrap().expiry_at, None);
    assert_eq!(world.extend_one(&task, LEASE).await, None);
    assert!(world.claim_up_to(1, "mail").await.is_empty());
    let ended = world.settle_now(&read, completed()).await;
    assert_eq!((ended.status, ended.lost, ended.attempt), (TaskStatus::Completed, 0, 1));
    assert_eq!(of(&world, task.id).await, HandOver { task: None, ..expected });
}

pub(crate) async fn what_was_handed_over_counts_as_running(world: World) {
    let (over, held) = (world.running(task("mail")).await, world.running(task("mail")).await);
    world.running(task("print")).await;
    assert!(hand_over(&world, &over, "jobs").await);
    let running = || async {
        let loads = world.loads().await.unwrap();
        (world.counts().await.unwrap().running, loads.into_iter().map(|load| (load.topic, load.running)).collect())
    };
    let loads: Vec<_> = [("mail", 2), ("print", 1)].map(|(topic, running)| (topic.to_owned(), running)).into();
    assert_eq!(running().await, (3, loads), "with a lease or without");
    // A hand-over that does not count any more is not counted.
    let read = world.read(over.id).await;
    world.settle_now(&read, completed()).await;
    world.settle_now(&held, completed()).await;
    assert_eq!(running().await, (1, vec![("print".to_owned(), 1)]));
}

pub(crate) async fn only_the_newest_epoch_can_be_handed_over(world: World) {
    let old = world.running(task("mail").attempts(3)).await;
    world.advance_secs(60);
    world.expire(MAX_LOST, 10).await.unwrap();
    assert!(!hand_over(&world, &old, "jobs").await, "it waits");
    let new = world.claim_one("mail").await;
    assert!(!hand_over(&world, &old, "jobs").await, "another has it");
    assert!(found(&world, WhichHandOvers::OfTask(old.id)).await.is_empty());
    assert!(hand_over(&world, &new, "jobs").await);
    assert!(hand_over(&world, &new, "jobs").await, "a lost answer is repeated");
    assert_eq!(of(&world, new.id).await.first_attempt, 2);
    world.cancel(new.id).await.unwrap();
    assert!(!hand_over(&world, &new, "jobs").await, "it has ended");
}

pub(crate) async fn hand_overs_are_found_by_job_by_queue_and_by_what_is_wrong_with_them(world: World) {
    let mut tasks = Vec::new();
    for name in ["a", "a", "a", "b"] {
        let task = world.running(task("mail")).await;
        assert!(hand_over(&world, &task, name).await);
        tasks.push(task);
    }
    let [first, second, third, other] = &tasks[..] else { panic!() };
    world.cancel(second.id).await.unwrap();
    assert_eq!(found(&world, of_jobs("a", &[first, second, other])).await, [first.id]);
    assert_eq!(found(&world, of_jobs("b", &[other])).await, [other.id]);
    assert!(found(&world, of_jobs("c", &[first])).await.is_empty());
    assert!(found(&world, of_jobs("a", &[])).await.is_empty());
    assert_eq!(found(&world, WhichHandOvers::OfQueue(queue("a"), None)).await, [first.id, third.id]);
    assert_eq!(found(&world, WhichHandOvers::OfQueue(queue("a"), Some(first.id))).await, [third.id]);
    assert_eq!(world.hand_overs(&WhichHandOvers::OfQueue(queue("a"), None), 1).await.unwrap().len(), 1);
    assert_eq!(found(&world, WhichHandOvers::Stray(None)).await, [second.id]);
    assert_eq!(found(&world, WhichHandOvers::Stray(Some(second.id))).await, []);
    assert!(found(&world, WhichHandOvers::Overdue).await.is_empty());
    world.advance_secs(60);
    assert_eq!(found(&world, WhichHandOvers::Overdue).await, [first.id, third.id, other.id]);

    // What counts is not forgotten.
    world.forget_hand_overs(&ids(&tasks)).await.unwrap();
    assert!(found(&world, WhichHandOvers::Stray(None)).await.is_empty());
    assert_eq!(found(&world, WhichHandOvers::OfQueue(queue("a"), None)).await, [first.id, third.id]);
}

/// Has topics be served by the queue of that name.
async fn serve(world: &World, topics: &str, name: &str) {
    let route = Route::Bullmq { queue: name.into(), prefix: "bull".into() };
    world.put_topic(&TopicDefinition::new(topics.parse().unwrap(), route)).await.unwrap();
}

pub(crate) async fn what_may_have_been_handed_over_is_a_stray_until_it_is_forgotten(world: World) {
    serve(&world, "mail", "other").await;
    let (unsure, known) = (world.running(task("mail")).await, world.running(task("mail")).await);
    assert!(hand_over(&world, &known, "jobs").await);
    world.advance_secs(1);
    for task in [&unsure, &known] {
        world.cancel(task.id).await.unwrap();
    }
    let suspected = of(&world, unsure.id).await;
    assert_eq!((&suspected.queue, suspected.job_id), (&queue("other"), format!("t_{}", unsure.id)));
    assert!(suspected.epoch == Epoch(0) && suspected.task.is_none());
    let known_before = of(&world, known.id).await;
    assert_eq!((&known_before.queue, known_before.is_certain()), (&queue("jobs"), true), "what is known stays");
    assert_eq!((known_before.job_id, known_before.ends_at), (known.id.to_string(), world.now()));
    for strays in [WhichHandOvers::Stray, WhichHandOvers::OverdueStray] {
        assert_eq!(found(&world, strays(None)).await, [unsure.id, known.id]);
        assert_eq!(found(&world, strays(Some(unsure.id))).await, [known.id]);
    }
    assert!(found(&world, WhichHandOvers::Overdue).await.is_empty());
    let queues = world.queues().await.unwrap();
    assert!(queues.iter().any(|(found, _)| *found == queue("other")), "somebody must look after it");
    world.forget_hand_overs(&[unsure.id]).await.unwrap();
    assert_eq!(found(&world, WhichHandOvers::Stray(None)).await, [known.id]);
}

pub(crate) async fn whatever_cancels_a_task_that_has_begun_withdraws_it_from_its_queue(world: World) {
    // A task that waits again after its first attempt.
    let waiting = async |new: TaskBuilder| {
        let running = world.running(new.attempts(2)).await;
        world.settle_now(&running, retried(3_600)).await
    };
    let before = waiting(task("mail.one")).await;
    world.cancel(before.id).await.unwrap();
    assert!(found(&world, WhichHandOvers::OfTask(before.id)).await.is_empty(), "no queue serves anything");

    serve(&world, "mail.*", "jobs").await;
    world.put_topic(&TopicDefinition::new("mail.own".parse().unwrap(), Route::Pull)).await.unwrap();
    let schedule = world.every_minute("nightly").await;
    let fire = |topic| task(topic).of_schedule(schedule.id, world.now());
    let deleted = waiting(fire("mail.deleted")).await;
    let replaced = waiting(task("mail.replaced")).await;
    let bulk = waiting(task("mail.bulk")).await;
    let (own, elsewhere) = (waiting(task("mail.own")).await, waiting(task("other")).await);
    let fresh = world.add(task("mail.fresh").in_secs(9_999)).await;

    assert_eq!(world.delete_schedule(schedule.id).await, Ok(true));
    assert_eq!(world.read(deleted.id).await.status, TaskStatus::Cancelled);
    let replacement = world.reschedule(replaced.id, NewTask::like(&replaced)).await.unwrap();
    assert_eq!(world.cancel_matching(&TaskFilter::default(), Bulk::Apply).await, Ok(5));
    let mut expected = [deleted.id, replaced.id, bulk.id];
    expected.sort();
    assert_eq!(found(&world, WhichHandOvers::OverdueStray(None)).await, expected);
    for id in [own.id, elsewhere.id, fresh.id, replacement.id] {
        assert!(found(&world, WhichHandOvers::OfTask(id)).await.is_empty());
    }
    let of_fire = format!("f_{}_{}", schedule.id, world.now().timestamp_millis());
    assert_eq!((of(&world, deleted.id).await.queue, of(&world, deleted.id).await.job_id), (queue("jobs"), of_fire));
    let of_jobs = |name: &str| WhichHandOvers::StrayOfJobs(queue(name), vec![format!("t_{}", bulk.id), "x".into()]);
    assert_eq!(found(&world, of_jobs("jobs")).await, [bulk.id]);
    assert!(found(&world, of_jobs("other")).await.is_empty());
}

fn failed_at(task: &Task, epoch: i64, error: &str) -> Mirrored {
    Mirrored { task_id: task.id, epoch: Epoch(epoch), step: Step::Failed { error: error.into() } }
}

fn began_at(task: &Task, epoch: i64) -> Mirrored {
    Mirrored { task_id: task.id, epoch: Epoch(epoch), step: Step::Began }
}

pub(crate) async fn each_retry_of_a_job_is_an_attempt_with_an_epoch_of_its_own(world: World) {
    let task = world.running(task("mail").attempts(3)).await;
    assert!(hand_over(&world, &task, "jobs").await);
    let began = world.now();
    world.advance_secs(1);
    world.mirror(&[began_at(&task, 1)]).await.unwrap();
    assert_eq!(world.read(task.id).await.attempt, 1, "the first has not ended");
    let first_ended = world.now();
    // Told again, it changes nothing.
    for _ in 0..2 {
        world.mirror(&[failed_at(&task, 1, "first")]).await.unwrap();
    }
    world.mirror(&[failed_at(&task, 2, "none")]).await.unwrap();
    let read = world.read(task.id).await;
    assert_eq!((read.status, read.attempt, read.epoch, read.lost), (TaskStatus::Running, 1, Epoch(2), 1));
    assert_eq!((read.started_at, read.error.as_deref()), (Some(began), Some("first")));
    let known = of(&world, task.id).await;
    assert_eq!((known.epoch, known.first_attempt), (Epoch(2), 1));
    assert!(known.task.unwrap().rests);
    let noted = world.attempts(task.id).await;
    assert_eq!(
        (noted.len(), noted[0].ended_at, noted[0].outcome),
        (1, Some(first_ended), Some(AttemptOutcome::Failed))
    );

    world.advance_secs(1);
    for _ in 0..2 {
        world.mirror(&[began_at(&task, 2)]).await.unwrap();
    }
    let read = world.read(task.id).await;
    assert_eq!((read.attempt, read.epoch, read.lost, read.attempts_used()), (2, Epoch(2), 1, 1));
    assert_eq!(read.started_at, Some(world.now()));
    assert!(!of(&world, task.id).await.task.unwrap().rests);
    assert_eq!(world.attempts(task.id).await.len(), 2);
    world.advance_secs(1);
    world.mirror(&[failed_at(&task, 2, "second")]).await.unwrap();
    world.mirror(&[began_at(&task, 3)]).await.unwrap();
    assert_eq!(world.settle_as(&task, completed()).await, Settled::LeaseLost);
    let newest = world.read(task.id).await;
    let ended = world.settle_now(&newest, failed("third")).await;
    assert_eq!((ended.status, ended.attempt, ended.lost), (TaskStatus::Failed, 3, 0));
    let attempts = world.attempts(task.id).await;
    let told: Vec<_> = attempts.iter().map(|a| (a.number, a.epoch.0, a.outcome, a.error.as_deref())).collect();
    let failed = Some(AttemptOutcome::Failed);
    assert_eq!(told, [(1, 1, failed, Some("first")), (2, 2, failed, Some("second")), (3, 3, failed, Some("third"))]);
    assert!(attempts.iter().all(|attempt| attempt.node_id == world.id));
}

pub(crate) async fn a_task_that_ends_while_it_rests_has_no_attempt_more(world: World) {
    for settled in [false, true] {
        let task = world.running(task("mail").attempts(3)).await;
        hand_over(&world, &task, "jobs").await;
        world.mirror(&[failed_at(&task, 1, "first")]).await.unwrap();
        let status = match settled {
            true => world.settle_now(&world.read(task.id).await, failed("too late")).await.status,
            false => {
                world.cancel(task.id).await.unwrap();
                world.read(task.id).await.status
            }
        };
        assert!(status.has_ended());
        let attempts = world.attempts(task.id).await;
        let told: Vec<_> = attempts.iter().map(|a| (a.number, a.outcome, a.error.as_deref())).collect();
        assert_eq!(told, [(1, Some(AttemptOutcome::Failed), Some("first"))]);
    }
}

pub(crate) async fn a_job_made_anew_begins_with_the_present_attempt(world: World) {
    let task = world.running(task("mail").attempts(5)).await;
    hand_over(&world, &task, "jobs").await;
    for epoch in [1, 2] {
        world.mirror(&[failed_at(&task, epoch, "x")]).await.unwrap();
        world.mirror(&[began_at(&task, epoch + 1)]).await.unwrap();
    }
    world.handed_over_again(&[held(&task)]).await.unwrap();
    assert_eq!(of(&world, task.id).await.first_attempt, 1, "an old epoch");
    world.handed_over_again(&[held(&world.read(task.id).await)]).await.unwrap();
    assert_eq!(of(&world, task.id).await.first_attempt, 3);
}

pub(crate) async fn queues_are_known_with_the_place_up_to_which_they_were_read(world: World) {
    assert!(world.queues().await.unwrap().is_empty());
    for name in ["b", "a", "b"] {
        let task = world.running(task("mail")).await;
        hand_over(&world, &task, name).await;
    }
    assert_eq!(world.queues().await.unwrap(), [(queue("a"), String::new()), (queue("b"), String::new())]);
    world.note_position(&queue("b"), "17-0").await.unwrap();
    world.note_position(&queue("c"), "1-1").await.unwrap();
    let task = world.running(task("mail")).await;
    hand_over(&world, &task, "b").await;
    let other = world.another_node().await;
    assert_eq!(other.queues().await.unwrap(), [(queue("a"), String::new()), (queue("b"), "17-0".into())]);
}

pub(crate) async fn an_execution_is_dispatched_while_a_queue_has_its_task(world: World) {
    let schedule = world.every_minute("nightly").await;
    world.advance_secs(60);
    world.tick_by_the_rules().await;
    let task = world.claim_one("report").await;
    let status = async |asked: &[FireStatus]| {
        let filter = FireFilter { status: asked.to_vec(), ..FireFilter::default() };
        let fires = world.fires(schedule.id, &filter, Page::first(10)).await.unwrap();
        fires.first().map(|fire| fire.status().unwrap())
    };
    let running = FireStatus::Task(TaskStatus::Running);
    assert_eq!(status(&[]).await, Some(running));
    assert_eq!(status(&[FireStatus::Dispatched]).await, None);
    hand_over(&world, &task, "jobs").await;
    assert_eq!(status(&[]).await, Some(FireStatus::Dispatched));
    assert_eq!(status(&[running, FireStatus::Skipped]).await, None);
    assert_eq!(status(&[FireStatus::Dispatched]).await, Some(FireStatus::Dispatched));
    assert!(of(&world, task.id).await.task.unwrap().is_of_schedule);

    let fire = world.fires(schedule.id, &FireFilter::default(), Page::first(1)).await.unwrap().remove(0);
    assert_eq!(world.execution_of(task.id, task.fire).await.unwrap(), Some(fire.id));
    world.settle_now(&task, failed("x")).await;
    assert_eq!(status(&[]).await, Some(FireStatus::Task(TaskStatus::Failed)));
    // What takes its place belongs to the same fire.
    let again = fresh(world.retry(task.id).await.unwrap());
    assert_eq!(world.execution_of(again.id, again.fire).await.unwrap(), Some(fire.id));
    let other = world.running(super::support::task("mail")).await;
    assert_eq!(world.execution_of(other.id, other.fire).await.unwrap(), None);
}

pub(crate) async fn messages_are_known_to_be_in_a_queue_until_they_are_forgotten(world: World) {
    let mut ids = [(); 3].map(|()| MessageId::generate());
    ids.sort();
    let jobs = [0, 1, 2].map(|n| MessageJob { message_id: ids[n], job_id: format!("key {n}") });
    let (mails, others) = (queue("mails"), queue("others"));
    for (queue, job) in [(&others, &jobs[0]), (&mails, &jobs[1]), (&mails, &jobs[2]), (&mails, &jobs[0])] {
        world.note_message_job(queue, job).await.unwrap();
    }
    let known: Vec<_> = world.queues().await.unwrap().into_iter().map(|(queue, _)| queue).collect();
    assert_eq!(known, [mails.clone(), others.clone()]);
    assert_eq!(world.message_jobs(&others, None, 9).await.unwrap(), [], "the first is in the other now");
    assert_eq!(world.message_jobs(&mails, None, 2).await.unwrap(), jobs[..2]);
    assert_eq!(world.message_jobs(&mails, Some(ids[1]), 2).await.unwrap(), jobs[2..]);
    world.forget_message_jobs(&others, &["key 2".into()]).await.unwrap();
    world.forget_message_jobs(&mails, &["key 0".into(), "nobody's".into()]).await.unwrap();
    assert_eq!(world.message_jobs(&mails, None, 9).await.unwrap(), jobs[1..]);
}

pub(crate) async fn what_a_worker_last_said_of_its_progress_is_kept_with_the_job(world: World) {
    let [one, other] = [world.running(task("mail")).await, world.running(task("mail")).await];
    assert!(hand_over(&world, &one, "jobs").await && hand_over(&world, &other, "jobs").await);
    let said = |task: &Task, progress: &str| (task.id.to_string(), progress.to_owned());
    let (mine, theirs) = (queue("jobs"), queue("others"));
    world.note_progress(&mine, &[said(&one, "7"), said(&other, r#"{"of":"é"}"#)]).await.unwrap();
    world.note_progress(&mine, &[said(&one, "8"), ("nobody's".into(), "9".into())]).await.unwrap();
    world.note_progress(&theirs, &[said(&one, "10")]).await.unwrap();
    assert_eq!(of(&world, one.id).await.progress.as_deref(), Some("8"));
    assert_eq!(of(&world, other.id).await.progress.as_deref(), Some(r#"{"of":"é"}"#));
    assert!(hand_over(&world, &one, "jobs").await);
    assert_eq!(of(&world, one.id).await.progress, None, "it begins anew");
}
