//! `/events` and `/tasks`: each command saves its subject, and then has the rules scheduled that it means.

use chrono::{DateTime, NaiveDate, Utc};
use punctual_sdk::{
    Answer, Context, Fields, Page, Problem, Request, Route, Schema, Transaction, exactly, on_either, sqlx,
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::scheduler;
use crate::subject::{Person, Subject, names, select_subjects};

/// How many people one subject may have to do with.
const MOST_PEOPLE: usize = 500;

pub(crate) fn routes() -> Vec<Route> {
    [of_type("event"), of_type("task")].concat()
}

/// The same routes for events and for tasks.
fn of_type(subject_type: &'static str) -> Vec<Route> {
    let is_event = subject_type == "event";
    let (all, one) = if is_event { ("/events", "/events/{id}") } else { ("/tasks", "/tasks/{id}") };
    let named =
        |event: (&'static str, &'static str), task: (&'static str, &'static str)| if is_event { event } else { task };
    let (list_id, list_does) = named(
        ("listOperationsEvents", "Lists events, newest first"),
        ("listOperationsTasks", "Lists tasks of operations, newest first"),
    );
    let (create_id, create_does) = named(
        ("createOperationsEvent", "Makes an event, and plans who is told of its dates"),
        ("createOperationsTask", "Makes a task of operations, and plans who is told of its dates"),
    );
    let (show_id, show_does) =
        named(("getOperationsEvent", "Shows an event"), ("getOperationsTask", "Shows a task of operations"));
    let (put_id, put_does) = named(
        ("replaceOperationsEvent", "Replaces an event"),
        ("replaceOperationsTask", "Replaces a task of operations"),
    );
    let (patch_id, patch_does) = named(
        ("patchOperationsEvent", "Changes some fields of an event"),
        ("patchOperationsTask", "Changes some fields of a task of operations"),
    );
    let (delete_id, delete_does) = named(
        ("deleteOperationsEvent", "Deletes an event, and tells nobody of it any more"),
        ("deleteOperationsTask", "Deletes a task of operations, and tells nobody of it any more"),
    );
    let (start, end, people) = names(subject_type);
    let example = json!({
        "title": "Stand-up", start: "2036-11-16T15:30:00Z", end: "2036-11-16T16:00:00Z", "timezone": "America/Edmonton",
        "creator": {"name": "Ada", "email": "ada@example.com"}, people: [{"name": "Bob", "email": "bob@example.com"}],
    });
    vec![
        Route::get(all, move |request| list(request, subject_type))
            .named(list_id, list_does)
            .answers_page(shape(subject_type)),
        Route::post(all, move |request| create(request, subject_type))
            .named(create_id, create_does)
            .takes(input(subject_type), example.clone())
            .answers(201, "It", shape(subject_type)),
        Route::get(one, move |request| show(request, subject_type)).named(show_id, show_does).answers(
            200,
            "It",
            shape(subject_type),
        ),
        Route::put(one, move |request| replace(request, subject_type))
            .named(put_id, put_does)
            .takes(input(subject_type), example)
            .answers(200, "It", shape(subject_type)),
        Route::patch(one, move |request| patch(request, subject_type))
            .named(patch_id, patch_does)
            .takes(changes(subject_type), json!({"title": "Retrospective"}))
            .answers(200, "It", shape(subject_type)),
        Route::delete(one, move |request| delete(request, subject_type))
            .named(delete_id, delete_does)
            .answers_nothing("It is deleted"),
    ]
}

fn person() -> Schema {
    Schema::object([("name", Schema::field_text())]).takes([("email", Schema::format("email"))])
}

fn title() -> (&'static str, Schema) {
    ("title", Schema::field_text())
}

fn input(subject_type: &str) -> Schema {
    with_dates_and_people(Schema::object([title(), ("creator", person())]), subject_type)
}

/// Some of the fields; null takes one away.
fn changes(subject_type: &str) -> Schema {
    let creator =
        Schema::object([]).may_have([("name", Schema::field_text())]).takes([("email", Schema::format("email"))]);
    with_dates_and_people(Schema::object([]).may_have([title(), ("creator", creator)]), subject_type)
}

fn with_dates_and_people(schema: Schema, subject_type: &str) -> Schema {
    let (start, end, people) = names(subject_type);
    let people = (people, Schema::list_of(person(), 0..=MOST_PEOPLE));
    let schema = schema.takes([("timezone", Schema::timezone()), people]);
    if subject_type == "task" {
        return schema.takes([(start, Schema::instant()), (end, Schema::instant())]);
    }
    let date =
        || Schema::either([Schema::instant(), Schema::format("date")]).about("a date only if the event is all day");
    let instant = || Schema::instant().or_null().into_value();
    schema.takes([(start, date()), (end, date()), ("isAllDay", Schema::flag())]).one_of([
        json!({"required": ["isAllDay"], "properties": {"isAllDay": {"const": true}}}),
        json!({"properties": {start: instant(), end: instant()}}),
    ])
}

fn shape(subject_type: &str) -> Schema {
    let (start, end, people) = names(subject_type);
    let person = || Schema::object([("name", Schema::text().example("Ada")), ("email", Schema::text().or_null())]);
    let schema = Schema::object([
        ("id", Schema::id()),
        ("title", Schema::text().example("Review")),
        (start, Schema::instant().or_null()),
        (end, Schema::instant().or_null()),
        ("timezone", Schema::text().or_null()),
        ("creator", person()),
        (people, Schema::list(person())),
        ("createdAt", Schema::instant()),
        ("updatedAt", Schema::instant()),
    ]);
    if subject_type == "event" { schema.needs([("isAllDay", Schema::flag())]) } else { schema }
}

/// Reads a subject out of fields; `id` and `created_at` are what they are.
fn read(
    mut fields: Fields,
    context: &Context,
    subject_type: &str,
    id: Uuid,
    times: [DateTime<Utc>; 2],
) -> Result<Subject, Problem> {
    let (start, end, people_name) = names(subject_type);
    let is_event = subject_type == "event";
    let is_all_day = is_event && fields.flag("isAllDay").unwrap_or(false);
    let title = fields.needs("title", Fields::text);
    let start_at = date(&mut fields, start, is_all_day);
    let end_at = date(&mut fields, end, is_all_day);
    if let (Some(start_at), Some(end_at)) = (start_at, end_at)
        && end_at < start_at
    {
        fields.refuse(end, format!("must not be before {start}"));
    }
    let timezone = fields.check("timezone", |value| {
        let name = value.as_str().ok_or("must be an IANA name")?;
        context.zone(name).map(|_| name.to_owned()).map_err(|error| error.to_string())
    });
    let person =
        |fields: &mut Fields| Person { name: fields.needs("name", Fields::text), email: fields.email("email") };
    let creator = fields.object("creator", person);
    if creator.is_none() {
        fields.refuse("creator", "is missing: say {\"name\": …, \"email\": …}");
    }
    let people = fields.objects(people_name, MOST_PEOPLE, person).unwrap_or_default();
    fields.finish()?;
    let [created_at, updated_at] = times;
    Ok(Subject {
        id,
        subject_type: subject_type.to_owned(),
        title,
        start_at,
        end_at,
        is_all_day,
        timezone,
        creator: json!(creator).to_string(),
        people: json!(people).to_string(),
        unplanned: None,
        created_at,
        updated_at,
    })
}

/// An instant; if only its date counts, midnight UTC of the date as it is written, whatever its offset.
fn date(fields: &mut Fields, name: &str, is_all_day: bool) -> Option<DateTime<Utc>> {
    if !is_all_day {
        return fields.instant(name);
    }
    fields.check(name, |value| {
        let text = value.as_str().unwrap_or_default();
        let date = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok();
        let date = date.or_else(|| DateTime::parse_from_rfc3339(text).ok().map(|at| at.date_naive()));
        let date = date.ok_or("must be a date such as 2026-12-25, or an RFC 3339 instant")?;
        if !(1970..=9998).contains(&chrono::Datelike::year(&date)) {
            return Err("must be of the years 1970 to 9998".to_owned());
        }
        Ok(date.and_time(chrono::NaiveTime::MIN).and_utc())
    })
}

async fn list(request: Request, subject_type: &'static str) -> Result<Answer, Problem> {
    let mut query = request.query();
    let page = Page::of(&mut query);
    query.finish()?;
    let some = select_subjects!("WHERE subject_type = $1 AND id < $2 ORDER BY id DESC LIMIT $3");
    let found: Vec<Subject> = on_either!(request.database(), |pool| {
        sqlx::query_as(some).bind(subject_type).bind(page.before()).bind(page.rows()).fetch_all(pool).await?
    });
    page.answer(found.iter().map(Subject::view))
}

async fn create(request: Request, subject_type: &'static str) -> Result<Answer, Problem> {
    request.no_query()?;
    let now = request.now;
    let subject = read(request.fields(), &request.context, subject_type, Uuid::now_v7(), [now, now])?;
    let mut transaction = request.database().begin().await?;
    subject.insert(&mut transaction).await?;
    let plan = scheduler::on_subject_created(&mut transaction, &request.context, &subject, now).await?;
    let answer = request.commit(transaction, Answer::created(subject.view())?).await?;
    scheduler::schedule_all(&request.context, plan, now).await;
    Ok(answer)
}

async fn show(request: Request, subject_type: &'static str) -> Result<Answer, Problem> {
    request.no_query()?;
    Answer::ok(found(&request, subject_type).await?.view())
}

async fn replace(request: Request, subject_type: &'static str) -> Result<Answer, Problem> {
    update(request, subject_type, |request, _| request.fields()).await
}

async fn patch(request: Request, subject_type: &'static str) -> Result<Answer, Problem> {
    let merged = |request: &Request, before: &Subject| {
        let mut there = before.view();
        if let Value::Object(fields) = &mut there {
            fields.retain(|name, _| !["id", "createdAt", "updatedAt"].contains(&name.as_str()));
            let (start, end, _) = names(subject_type);
            for (name, at) in [(start, before.start_at), (end, before.end_at)] {
                fields.insert(name.to_owned(), at.map(exactly).into());
            }
        }
        request.merged_into(there)
    };
    update(request, subject_type, merged).await
}

async fn update(
    request: Request,
    subject_type: &'static str,
    fields: impl Fn(&Request, &Subject) -> Fields + Send,
) -> Result<Answer, Problem> {
    request.no_query()?;
    let (context, now) = (&request.context, request.now);
    let mut transaction = request.database().begin().await?;
    let before = locked(&mut transaction, &request, subject_type).await?;
    let subject = read(fields(&request, &before), context, subject_type, before.id, [before.created_at, now])?;
    subject.update(&mut transaction).await?;
    let plan = scheduler::on_subject_dates_changed(&mut transaction, context, &before, &subject, now).await?;
    transaction.commit().await?;
    scheduler::schedule_all(context, plan, now).await;
    Answer::ok(subject.view())
}

async fn delete(request: Request, subject_type: &'static str) -> Result<Answer, Problem> {
    request.no_query()?;
    let mut transaction = request.database().begin().await?;
    let subject = locked(&mut transaction, &request, subject_type).await?;
    let delete = "DELETE FROM operations_subjects WHERE id = $1";
    on_either!(transaction, |connection| {
        sqlx::query(delete).bind(subject.id).execute(connection).await?;
    });
    let plan = scheduler::on_subject_deleted(&mut transaction, &subject, request.now).await?;
    transaction.commit().await?;
    scheduler::schedule_all(&request.context, plan, request.now).await;
    Ok(Answer::nothing())
}

async fn locked(transaction: &mut Transaction, request: &Request, subject_type: &str) -> Result<Subject, Problem> {
    let id = request.id(subject_type)?;
    let found = Subject::lock(transaction, id).await?.filter(|found| found.subject_type == subject_type);
    found.ok_or_else(|| Problem::not_found(format!("{subject_type} {id}")))
}

async fn found(request: &Request, subject_type: &str) -> Result<Subject, Problem> {
    let id = request.id(subject_type)?;
    let found = Subject::find(&request.database(), id).await?.filter(|found| found.subject_type == subject_type);
    found.ok_or_else(|| Problem::not_found(format!("{subject_type} {id}")))
}
