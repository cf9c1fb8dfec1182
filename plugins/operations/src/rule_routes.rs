//! `/rules`: the notification rules, those that come with dates and those that people add.

use punctual_sdk::{Answer, Page, Problem, Request, Route, Schema, Transaction, on_either, sqlx};
use serde_json::json;

use crate::rule::{CHANNELS, Rule, Says, select_rules};
use crate::scheduler::{self, Plan};
use crate::subject::{KINDS, Subject};

const TYPES: [&str; 2] = ["event", "task"];
const STATUSES: [&str; 3] = ["pending", "synced", "failed"];

pub(crate) fn routes() -> Vec<Route> {
    let says = || {
        let of_type = |name| Schema::object([("type", Schema::word([name])), ("anchor", Schema::word(KINDS))]);
        let offset = Schema::format("duration").example("-PT24H").about("ISO 8601, with a sign, at most 366 days");
        Schema::either([of_type("at_subject_date"), of_type("relative").needs([("offset", offset)])])
    };
    let channels = || Schema::some(Schema::word(CHANNELS)).each_once();
    let input = Schema::object([("subjectType", Schema::word(TYPES)), ("subjectId", Schema::id()), ("rule", says())])
        .takes([("channels", channels().or(json!(["email"]))), ("active", Schema::flag())]);
    let shape = || {
        Schema::object([
            ("id", Schema::id()),
            ("subjectType", Schema::word(TYPES)),
            ("subjectId", Schema::id()),
            ("kind", Schema::word(KINDS)),
            ("rule", says()),
            ("scheduleId", Schema::id().or_null().about("the task that tells")),
            ("syncStatus", Schema::word(STATUSES)),
            ("syncError", Schema::text().or_null()),
            ("channels", channels()),
            ("active", Schema::flag()),
            ("deletedAt", Schema::instant().or_null()),
            ("lastSentAt", Schema::instant().or_null()),
            ("createdAt", Schema::instant()),
            ("updatedAt", Schema::instant()),
        ])
    };
    let example = json!({
        "subjectType": "event", "subjectId": "018f0000-0000-7000-8000-000000000000",
        "rule": {"type": "relative", "anchor": "start", "offset": "-PT24H"}, "channels": ["email"],
    });
    vec![
        Route::get("/rules", list)
            .named("listNotificationRules", "Lists notification rules, newest first, deleted ones too if asked for")
            .query("subjectType", Schema::word(TYPES))
            .query("subjectId", Schema::id())
            .query("syncStatus", Schema::word(STATUSES))
            .query("deleted", Schema::flag().about("whether deleted ones are listed too"))
            .answers_page(shape()),
        Route::post("/rules", create)
            .named("createNotificationRule", "Adds a notification rule to an event or a task")
            .takes(input, example)
            .may_conflict()
            .answers(201, "The rule", shape()),
        Route::get("/rules/{id}", show)
            .named("getNotificationRule", "Shows a notification rule, also a deleted one")
            .answers(200, "The rule", shape()),
        Route::patch("/rules/{id}", patch)
            .named("patchNotificationRule", "Changes when, how, or whether a notification rule tells")
            .takes(
                Schema::object([]).takes([("rule", says()), ("channels", channels()), ("active", Schema::flag())]),
                json!({"channels": ["email", "webhook"]}),
            )
            .may_conflict()
            .answers(200, "The rule", shape()),
        Route::delete("/rules/{id}", delete)
            .named("deleteNotificationRule", "Deletes a notification rule: it tells nobody any more")
            .answers_nothing("It is deleted"),
    ]
}

async fn list(request: Request) -> Result<Answer, Problem> {
    let mut query = request.query();
    let page = Page::of(&mut query);
    let subject_type = query.word("subjectType", &TYPES);
    let subject_id = query.id("subjectId");
    let status = query.word("syncStatus", &STATUSES);
    let deleted_too = query.flag("deleted").unwrap_or(false);
    query.finish()?;
    let some = select_rules!(
        "WHERE id < $1 AND ($2 IS NULL OR subject_type = $2) AND ($3 IS NULL OR subject_id = $3)
        AND ($4 IS NULL OR sync_status = $4) AND ($5 OR deleted_at IS NULL) ORDER BY id DESC LIMIT $6"
    );
    let found: Vec<Rule> = on_either!(request.database(), |pool| {
        let bound = sqlx::query_as(some).bind(page.before()).bind(subject_type).bind(subject_id).bind(status);
        bound.bind(deleted_too).bind(page.rows()).fetch_all(pool).await?
    });
    page.answer(found.iter().map(Rule::view))
}

async fn create(request: Request) -> Result<Answer, Problem> {
    request.no_query()?;
    let (context, now) = (&request.context, request.now);
    let mut fields = request.fields();
    let subject_type = fields.needs("subjectType", |fields, name| fields.word(name, &TYPES));
    let subject_id = fields.needs("subjectId", |fields, name| fields.id(name));
    let says = fields.object("rule", Says::of);
    if says.is_none() {
        fields.refuse("rule", "is missing");
    }
    let channels = fields.words("channels", &CHANNELS).unwrap_or_else(|| vec!["email"]);
    let active = fields.flag("active").unwrap_or(true);
    fields.finish()?;
    let Some(says) = says.flatten() else { return Err(Problem::invalid("rule", "says nothing")) };
    let mut transaction = request.database().begin().await?;
    // A change of its dates comes before this, and is seen here, or after, and sees the rule.
    let subject = Subject::lock(&mut transaction, subject_id).await?.filter(|found| found.subject_type == subject_type);
    let unknown = || Problem::invalid("subjectId", format!("there is no {subject_type} {subject_id}"));
    let subject = subject.ok_or_else(unknown)?;
    if subject.anchor(says.anchor, context)?.is_none() {
        return Err(Problem::invalid("rule.anchor", format!("the {subject_type} has no {} date", says.anchor)));
    }
    let rule = Rule { active, ..Rule::new(&subject, &says, &channels, now) };
    rule.insert(&mut transaction).await.map_err(taken)?;
    let answer = request.commit(transaction, Answer::created(rule.view())?).await?;
    scheduler::schedule_all(context, Plan::of(rule.id), now).await;
    // As it is by now; what was kept tells how it began.
    match Rule::find(&request.database(), rule.id).await? {
        Some(rule) => answer.showing(rule.view()),
        None => Ok(answer),
    }
}

async fn show(request: Request) -> Result<Answer, Problem> {
    request.no_query()?;
    Answer::ok(found(&request).await?.view())
}

async fn patch(request: Request) -> Result<Answer, Problem> {
    request.no_query()?;
    let (context, now) = (&request.context, request.now);
    let mut fields = request.fields();
    let says = fields.object("rule", Says::of);
    let channels = fields.words("channels", &CHANNELS);
    let active = fields.flag("active");
    fields.finish()?;
    let mut transaction = request.database().begin().await?;
    let (rule, subject) = locked(&mut transaction, &request).await?;
    let mut changed = rule.clone();
    if let Some(channels) = channels {
        changed.channels = json!(channels).to_string();
    }
    changed.active = active.unwrap_or(rule.active);
    if let Some(says) = says.flatten() {
        let subject = subject.ok_or_else(|| Problem::not_found(format!("{} of the rule", rule.subject_type)))?;
        if subject.anchor(says.anchor, context)?.is_none() {
            return Err(Problem::invalid(
                "rule.anchor",
                format!("the {} has no {} date", rule.subject_type, says.anchor),
            ));
        }
        let said = Rule::new(&subject, &says, &["email"], now);
        (changed.kind, changed.rule, changed.rule_key) = (said.kind, said.rule, said.rule_key);
    }
    let is_moved = changed.rule_key != rule.rule_key;
    let update =
        "UPDATE operations_notification_rules SET channels = $2, active = $3, kind = $4, rule = $5, rule_key = $6,
        updated_at = $7 WHERE id = $1 AND deleted_at IS NULL";
    on_either!(transaction, |connection| {
        let bound = sqlx::query(update).bind(rule.id).bind(&changed.channels).bind(changed.active).bind(&changed.kind);
        let bound = bound.bind(&changed.rule).bind(&changed.rule_key).bind(now);
        bound.execute(connection).await.map_err(taken)?;
    });
    if is_moved {
        scheduler::make_pending(&mut transaction, &rule, now).await?;
    }
    transaction.commit().await?;
    if is_moved {
        scheduler::schedule_all(context, Plan::of(rule.id), now).await;
    }
    Answer::ok(found(&request).await?.view())
}

async fn delete(request: Request) -> Result<Answer, Problem> {
    request.no_query()?;
    let mut transaction = request.database().begin().await?;
    let (rule, _) = locked(&mut transaction, &request).await?;
    scheduler::delete(&mut transaction, &rule, request.now).await?;
    transaction.commit().await?;
    Ok(Answer::nothing())
}

async fn found(request: &Request) -> Result<Rule, Problem> {
    let id = request.id("rule")?;
    Rule::find(&request.database(), id).await?.ok_or_else(|| Problem::not_found(format!("rule {id}")))
}

/// The rule and its subject, in the order in which everybody locks them.
async fn locked(transaction: &mut Transaction, request: &Request) -> Result<(Rule, Option<Subject>), Problem> {
    let id = request.id("rule")?;
    let unknown = || Problem::not_found(format!("rule {id} that is not deleted"));
    let subject_id = Rule::read(transaction, id).await?.ok_or_else(unknown)?.subject_id;
    let subject = Subject::lock(transaction, subject_id).await?;
    let rule = Rule::lock(transaction, id).await?.ok_or_else(unknown)?;
    Ok((rule, subject))
}

fn taken(error: sqlx::Error) -> Problem {
    Problem::taken(error, "the subject has such a rule already")
}
