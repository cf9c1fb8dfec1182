//! Keeps rules and their tasks together.
//!
//! What a command means for the rules of its subject is decided inside the command's own transaction: rules are made, taken
//! back or made `pending` again there, and tasks of a date that no longer holds are cancelled with it. Scheduling comes after
//! the commit, rule by rule, and can fail without undoing anything: the reconciler tries again.
//!
//! Writing the rules can fail, too, each for itself, and undoes nothing either. The task of the old date is cancelled all the same,
//! and the subject notes which of its dates are `unplanned`: the next command, or the reconciler, plans those anew.

use std::collections::BTreeSet;
use std::fmt;

use chrono::{DateTime, Utc};
use punctual_sdk::{Context, EnqueueError, Error, NewTask, Transaction, on_either, sqlx};
use serde_json::{Value, json};
use tracing::error;
use uuid::Uuid;

use crate::rule::{Rule, Says};
use crate::subject::{KINDS, Subject};

/// What is left to do after a command is committed: rules to schedule, and errors to log.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    rules: Vec<Uuid>,
    unplanned: BTreeSet<String>,
    scheduler_errors: Vec<Value>,
}

impl Plan {
    /// To schedule one rule.
    pub(crate) fn of(rule: Uuid) -> Self {
        Self { rules: vec![rule], ..Self::default() }
    }

    fn failed(&mut self, subject: &Subject, kind: &str, rule: Option<Uuid>, error: &dyn fmt::Display) {
        self.unplanned.insert(kind.to_owned());
        self.scheduler_errors.push(json!({
            "subjectId": subject.id, "kind": kind, "notificationRuleId": rule, "error": error.to_string(),
        }));
    }
}

/// A subject was made: it gets a rule for each date that it has.
pub(crate) async fn on_subject_created(
    transaction: &mut Transaction,
    context: &Context,
    subject: &Subject,
    now: DateTime<Utc>,
) -> Result<Plan, sqlx::Error> {
    let mut plan = Plan::default();
    for kind in KINDS {
        match subject.anchor(kind, context) {
            Ok(Some(_)) => add_automatic(transaction, subject, kind, now, &mut plan).await?,
            Ok(None) => {}
            Err(error) => plan.failed(subject, kind, None, &error),
        }
    }
    note_unplanned(transaction, subject.id, None, &plan).await?;
    Ok(plan)
}

/// A subject was changed, or has dates that are unplanned.
pub(crate) async fn on_subject_dates_changed(
    transaction: &mut Transaction,
    context: &Context,
    before: &Subject,
    subject: &Subject,
    now: DateTime<Utc>,
) -> Result<Plan, sqlx::Error> {
    let mut plan = Plan::default();
    lock_rules(transaction, subject).await?;
    let rules = Rule::read_all(transaction, subject.id).await?;
    for kind in KINDS {
        // What was not planned is as good as new.
        let was = if before.is_unplanned(kind) { Ok(None) } else { before.anchor(kind, context) };
        let (was, is) = match was.and_then(|was| Ok((was, subject.anchor(kind, context)?))) {
            Ok(dates) => dates,
            Err(error) => {
                plan.failed(subject, kind, None, &error);
                continue;
            }
        };
        let of_kind: Vec<_> = rules.iter().filter(|rule| rule.kind == kind).collect();
        match (of_kind.first(), was, is) {
            (Some(_), _, None) => {
                for rule in of_kind {
                    change(transaction, subject, rule, Change::Delete, now, &mut plan).await?;
                }
            }
            (None, None, Some(_)) => add_automatic(transaction, subject, kind, now, &mut plan).await?,
            (Some(_), was, is) if was != is => match to_plan(of_kind, subject, context, now) {
                Ok(rules) => {
                    for rule in rules {
                        change(transaction, subject, rule, Change::MakePending, now, &mut plan).await?;
                    }
                }
                Err(error) => plan.failed(subject, kind, None, &error),
            },
            // The date is the same, or somebody has taken the rule away.
            _ => {}
        }
    }
    note_unplanned(transaction, subject.id, before.unplanned.as_deref(), &plan).await?;
    Ok(plan)
}

/// Plans the dates of a subject that are unplanned, unless somebody did meanwhile.
pub(crate) async fn plan_again(context: &Context, subject: Uuid, now: DateTime<Utc>) -> Result<(), Error> {
    let mut transaction = context.database().begin().await?;
    let Some(subject) = Subject::lock(&mut transaction, subject).await? else { return Ok(()) };
    let plan = on_subject_dates_changed(&mut transaction, context, &subject, &subject, now).await?;
    transaction.commit().await?;
    schedule_all(context, plan, now).await;
    Ok(())
}

/// Notes with a subject which of its dates are unplanned now.
async fn note_unplanned(
    transaction: &mut Transaction,
    subject: Uuid,
    before: Option<&str>,
    plan: &Plan,
) -> Result<(), sqlx::Error> {
    let kinds: Vec<_> = plan.unplanned.iter().map(String::as_str).collect();
    let unplanned = Some(kinds.join(" ")).filter(|kinds| !kinds.is_empty());
    if unplanned.as_deref() == before {
        return Ok(());
    }
    let update = "UPDATE operations_subjects SET unplanned = $2 WHERE id = $1";
    on_either!(transaction, |connection| {
        sqlx::query(update).bind(subject).bind(unplanned).execute(connection).await.map(drop)
    })
}

/// Locks the rules of a subject; where that cannot be, it goes on without: the subject is locked, and each write fails for itself.
async fn lock_rules(transaction: &mut Transaction, subject: &Subject) -> Result<(), sqlx::Error> {
    let before = transaction.savepoint().await?;
    match Rule::lock_all(transaction, subject.id).await {
        Ok(()) => Ok(()),
        Err(_) => transaction.undo_to(before).await,
    }
}

/// What becomes of a rule.
#[derive(Debug, Clone, Copy)]
enum Change {
    Delete,
    MakePending,
}

/// Changes a rule, which can fail alone. Its task is cancelled in any case: it stands for a date that no longer holds.
async fn change(
    transaction: &mut Transaction,
    subject: &Subject,
    rule: &Rule,
    change: Change,
    now: DateTime<Utc>,
    plan: &mut Plan,
) -> Result<(), sqlx::Error> {
    let before = transaction.savepoint().await?;
    let changed = match change {
        Change::Delete => delete(transaction, rule, now).await,
        Change::MakePending => make_pending(transaction, rule, now).await,
    };
    match (changed, change) {
        (Ok(()), Change::MakePending) => plan.rules.push(rule.id),
        (Ok(()), Change::Delete) => {}
        (Err(error), _) => {
            transaction.undo_to(before).await?;
            plan.failed(subject, &rule.kind, Some(rule.id), &error);
            if let Some(task) = rule.schedule_id {
                let before = transaction.savepoint().await?;
                if let Err(error) = transaction.cancel(task).await {
                    transaction.undo_to(before).await?;
                    plan.failed(subject, &rule.kind, Some(rule.id), &error);
                }
            }
        }
    }
    Ok(())
}

/// The rules of a date that has changed which are planned anew: those that live, and those that were dropped and have something
/// to tell again. Of those that say the same it is the one that lives, else the newest.
fn to_plan<'r>(
    of_kind: Vec<&'r Rule>,
    subject: &Subject,
    context: &Context,
    now: DateTime<Utc>,
) -> Result<Vec<&'r Rule>, Error> {
    let (dropped, mut planned): (Vec<_>, Vec<_>) = of_kind.into_iter().partition(|rule| rule.is_dropped());
    for rule in dropped.into_iter().rev() {
        let is_ahead = rule.run_at(subject, context)?.is_some_and(|run_at| run_at > now);
        if is_ahead && planned.iter().all(|other| other.rule_key != rule.rule_key) {
            planned.push(rule);
        }
    }
    Ok(planned)
}

/// A subject was deleted, and with it all its rules.
pub(crate) async fn on_subject_deleted(
    transaction: &mut Transaction,
    subject: &Subject,
    now: DateTime<Utc>,
) -> Result<Plan, sqlx::Error> {
    let mut plan = Plan::default();
    lock_rules(transaction, subject).await?;
    for rule in Rule::read_all(transaction, subject.id).await? {
        change(transaction, subject, &rule, Change::Delete, now, &mut plan).await?;
    }
    Ok(plan)
}

/// Gives a subject the rule that comes with a date, which can fail alone.
async fn add_automatic(
    transaction: &mut Transaction,
    subject: &Subject,
    kind: &'static str,
    now: DateTime<Utc>,
    plan: &mut Plan,
) -> Result<(), sqlx::Error> {
    let rule = Rule::new(subject, &Says::at_subject_date(kind), &["email"], now);
    let before = transaction.savepoint().await?;
    match rule.insert(transaction).await {
        Ok(()) => plan.rules.push(rule.id),
        Err(error) => {
            transaction.undo_to(before).await?;
            plan.failed(subject, kind, None, &error);
        }
    }
    Ok(())
}

/// Soft-deletes a rule for good, and cancels its task.
pub(crate) async fn delete(transaction: &mut Transaction, rule: &Rule, now: DateTime<Utc>) -> Result<(), EnqueueError> {
    if let Some(task) = rule.schedule_id {
        transaction.cancel(task).await?;
    }
    let update =
        "UPDATE operations_notification_rules SET active = $3, deleted_at = COALESCE(deleted_at, $2), updated_at = $2,
        active_when_dropped = NULL, version = version + 1 WHERE id = $1";
    on_either!(transaction, |connection| {
        sqlx::query(update).bind(rule.id).bind(now).bind(false).execute(connection).await?;
    });
    Ok(())
}

/// Soft-deletes a rule that could not be scheduled and whose instant is past, until its date moves to the future; `false` if that
/// is not so, or not any more.
pub(crate) async fn drop_past(context: &Context, id: Uuid, now: DateTime<Utc>) -> Result<bool, Error> {
    let database = context.database();
    let Some(rule) = Rule::find(&database, id).await? else { return Ok(false) };
    let mut transaction = database.begin().await?;
    // In the order in which everybody locks them: a date that moves meanwhile comes before or after this.
    let subject = Subject::lock(&mut transaction, rule.subject_id).await?;
    let rule = Rule::lock(&mut transaction, id).await?;
    let Some(rule) = rule.filter(|rule| rule.sync_status != "synced") else { return Ok(false) };
    let run_at = match &subject {
        Some(subject) => rule.run_at(subject, context)?,
        None => None,
    };
    if run_at.is_some_and(|run_at| run_at > now) {
        return Ok(false);
    }
    let update = "UPDATE operations_notification_rules SET active_when_dropped = active, active = $3, deleted_at = $2,
        updated_at = $2, version = version + 1 WHERE id = $1";
    on_either!(transaction, |connection| {
        sqlx::query(update).bind(rule.id).bind(now).bind(false).execute(connection).await?;
    });
    transaction.commit().await?;
    Ok(true)
}

/// Makes a rule pending, whatever it was, also dropped: its task is cancelled, and it may tell once more.
pub(crate) async fn make_pending(
    transaction: &mut Transaction,
    rule: &Rule,
    now: DateTime<Utc>,
) -> Result<(), EnqueueError> {
    if let Some(task) = rule.schedule_id {
        transaction.cancel(task).await?;
    }
    let update =
        "UPDATE operations_notification_rules SET sync_status = 'pending', sync_error = NULL, schedule_id = NULL,
        last_sent_at = NULL, active = COALESCE(active_when_dropped, active), active_when_dropped = NULL,
        deleted_at = NULL, updated_at = $2, version = version + 1 WHERE id = $1";
    on_either!(transaction, |connection| {
        sqlx::query(update).bind(rule.id).bind(now).execute(connection).await?;
    });
    Ok(())
}

/// Schedules rules after a command, each for itself. What goes wrong, or went wrong in the command, is logged, and nobody hears of it
/// otherwise.
pub(crate) async fn schedule_all(context: &Context, plan: Plan, now: DateTime<Utc>) {
    let Plan { rules, mut scheduler_errors, .. } = plan;
    for id in rules {
        if let Err(error) = schedule(context, id, now).await {
            scheduler_errors.push(json!({"notificationRuleId": id, "error": error.to_string()}));
        }
    }
    if !scheduler_errors.is_empty() {
        error!(scheduler_errors = %json!(scheduler_errors), "notification rules not scheduled");
    }
}

/// What became of a rule that was to be scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheduled {
    /// It has a task.
    Synced,
    /// It needs none: it is deleted, or somebody else was first.
    NotNeeded,
    /// Its instant is past.
    Past,
}

/// Writes the task of a rule that has none, and notes it with the rule, both or neither. What goes wrong is noted with the rule
/// too.
///
/// # Errors
/// When the task cannot be written; also if its instant is past.
pub(crate) async fn schedule(context: &Context, id: Uuid, now: DateTime<Utc>) -> Result<(), Error> {
    let failed = match try_to_schedule(context, id, now).await {
        Ok(Scheduled::Past) => "the instant of the rule is past".into(),
        Ok(_) => return Ok(()),
        Err(error) => error,
    };
    let update = "UPDATE operations_notification_rules SET sync_status = 'failed', sync_error = $2, schedule_id = NULL,
        updated_at = $3 WHERE id = $1 AND sync_status <> 'synced' AND deleted_at IS NULL";
    let reason = failed.to_string();
    on_either!(context.database(), |pool| {
        sqlx::query(update).bind(id).bind(&reason).bind(now).execute(pool).await?;
    });
    Err(failed)
}

pub(crate) async fn try_to_schedule(context: &Context, id: Uuid, now: DateTime<Utc>) -> Result<Scheduled, Error> {
    let database = context.database();
    let Some(rule) = Rule::find(&database, id).await?.filter(|rule| rule.deleted_at.is_none()) else {
        return Ok(Scheduled::NotNeeded);
    };
    let Some(subject) = Subject::find(&database, rule.subject_id).await? else { return Ok(Scheduled::Past) };
    let Some(run_at) = rule.run_at(&subject, context)?.filter(|run_at| *run_at > now) else {
        return Ok(Scheduled::Past);
    };
    let mut transaction = database.begin().await?;
    // Ids only: who is told, and of what, is looked up when it is due.
    let payload = json!({
        "subjectType": rule.subject_type,
        "subjectId": rule.subject_id,
        "notificationRuleId": rule.id,
        "kind": rule.kind,
    });
    let task = NewTask::new(rule.topic()).payload(payload).at(run_at).timezone(subject.zone(context));
    let task_id = transaction.enqueue(task).await?;
    let update = "UPDATE operations_notification_rules SET sync_status = 'synced', sync_error = NULL, schedule_id = $2,
        updated_at = $3 WHERE id = $1 AND sync_status <> 'synced' AND version = $4 AND deleted_at IS NULL";
    let updated = on_either!(transaction, |connection| {
        let bound = sqlx::query(update).bind(id).bind(task_id).bind(now).bind(rule.version);
        bound.execute(connection).await?.rows_affected()
    });
    if updated == 0 {
        transaction.rollback().await?;
        return Ok(Scheduled::NotNeeded);
    }
    transaction.commit().await?;
    Ok(Scheduled::Synced)
}
