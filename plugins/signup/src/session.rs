//! Sessions: sign-ups that were begun. One that is finished is gone.

use std::time::Duration;

use chrono::{DateTime, Utc};
use punctual_sdk::{
    Answer, Database, Fields, NewTask, Page, Problem, Request, Role, Route, Schema, on_either, row, shown, sqlx,
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::emails::{ALERT_TOPIC, Begun, EARLY_TOPIC, LATE_TOPIC};

const EARLY: Duration = Duration::from_secs(60 * 60);
const LATE: Duration = Duration::from_secs(24 * 60 * 60);

/// How far a sign-up may have come.
const STAGES: [&str; 5] = ["step_1", "step_2", "step_3", "step_4", "complete"];

row! {
    /// A sign-up that was begun.
    pub(crate) struct Session {
        pub(crate) id: Uuid,
        pub(crate) email: String,
        pub(crate) current_stage: String,
        pub(crate) created_at: DateTime<Utc>,
        pub(crate) updated_at: DateTime<Utc>,
    }
}

/// Selects sessions, by the names of all columns; the rest of the statement says which.
macro_rules! select_sessions {
    ($which:literal) => {
        concat!("SELECT id, email, current_stage, created_at, updated_at FROM signup_sessions ", $which)
    };
}

impl Session {
    /// The session, unless it was finished.
    pub(crate) async fn find(database: &Database, id: Uuid) -> Result<Option<Self>, sqlx::Error> {
        let one = select_sessions!("WHERE id = $1");
        on_either!(database, |pool| sqlx::query_as(one).bind(id).fetch_optional(pool).await)
    }

    /// Whether nobody needs to be reminded of it any more.
    pub(crate) fn is_past_step_3(&self) -> bool {
        matches!(self.current_stage.as_str(), "step_4" | "complete")
    }

    fn view(&self) -> Value {
        json!({
            "id": self.id,
            "email": self.email,
            "currentStage": self.current_stage,
            "createdAt": shown(self.created_at),
            "updatedAt": shown(self.updated_at),
        })
    }
}

pub(crate) fn routes() -> Vec<Route> {
    let stage = || Schema::word(STAGES);
    let session = || {
        Schema::object([
            ("id", Schema::id()),
            ("email", Schema::format("email")),
            ("currentStage", stage()),
            ("createdAt", Schema::instant()),
            ("updatedAt", Schema::instant()),
        ])
    };
    let email = Schema::format("email").about("whom reminders go to");
    vec![
        Route::get("/sessions", list)
            .named("listSignupSessions", "Lists sign-ups that were begun, newest first")
            .answers_page(session()),
        Route::post("/sessions", begin)
            .named("beginSignup", "Begins a sign-up, tells the sales, and plans its reminders")
            .role(Role::Submit)
            .takes(Schema::object([("email", email)]), json!({"email": "ada@example.com"}))
            .answers(201, "The session", session()),
        Route::get("/sessions/{id}", show).named("getSignupSession", "Shows a sign-up that was begun").answers(
            200,
            "The session",
            session(),
        ),
        Route::patch("/sessions/{id}", advance)
            .named("advanceSignup", "Says how far a sign-up has come")
            .role(Role::Submit)
            .takes(Schema::object([("currentStage", stage())]), json!({"currentStage": "step_2"}))
            .answers(200, "The session", session()),
        Route::delete("/sessions/{id}", finish)
            .named("finishSignup", "Finishes a sign-up: it is reminded of no more")
            .role(Role::Submit)
            .answers_nothing("It is finished"),
    ]
}

async fn list(request: Request) -> Result<Answer, Problem> {
    let mut query = request.query();
    let page = Page::of(&mut query);
    query.finish()?;
    let some = select_sessions!("WHERE id < $1 ORDER BY id DESC LIMIT $2");
    let found: Vec<Session> = on_either!(request.database(), |pool| {
        sqlx::query_as(some).bind(page.before()).bind(page.rows()).fetch_all(pool).await?
    });
    page.answer(found.iter().map(Session::view))
}

/// The session and its three tasks are one transaction.
async fn begin(request: Request) -> Result<Answer, Problem> {
    request.no_query()?;
    let mut fields = request.fields();
    let email = fields.needs("email", Fields::email);
    fields.finish()?;
    let session = Session {
        id: Uuid::now_v7(),
        email,
        current_stage: STAGES[0].to_owned(),
        created_at: request.now,
        updated_at: request.now,
    };
    let mut transaction = request.database().begin().await?;
    let insert =
        "INSERT INTO signup_sessions (id, email, current_stage, created_at, updated_at) VALUES ($1, $2, $3, $4, $4)";
    on_either!(transaction, |connection| {
        let insert = sqlx::query(insert).bind(session.id).bind(&session.email).bind(&session.current_stage);
        insert.bind(session.created_at).execute(connection).await?;
    });
    let begun = Begun { session_id: session.id, email: session.email.clone() };
    let task = |topic| NewTask::new(topic).payload(&begun).metadata("tenantId", session.id.to_string());
    transaction.enqueue(task(ALERT_TOPIC)).await?;
    transaction.enqueue(task(EARLY_TOPIC).after(EARLY)).await?;
    transaction.enqueue(task(LATE_TOPIC).after(LATE)).await?;
    request.commit(transaction, Answer::created(session.view())?).await
}

async fn show(request: Request) -> Result<Answer, Problem> {
    request.no_query()?;
    Answer::ok(found(&request).await?.view())
}

async fn advance(request: Request) -> Result<Answer, Problem> {
    request.no_query()?;
    let mut fields = request.fields();
    let stage = fields.needs("currentStage", |fields, name| fields.word(name, &STAGES));
    fields.finish()?;
    let id = request.id("session")?;
    let update = "UPDATE signup_sessions SET current_stage = $2, updated_at = $3 WHERE id = $1";
    on_either!(request.database(), |pool| {
        sqlx::query(update).bind(id).bind(stage).bind(request.now).execute(pool).await?;
    });
    Answer::ok(found(&request).await?.view())
}

async fn finish(request: Request) -> Result<Answer, Problem> {
    request.no_query()?;
    let id = request.id("session")?;
    let delete = "DELETE FROM signup_sessions WHERE id = $1";
    let deleted =
        on_either!(request.database(), |pool| { sqlx::query(delete).bind(id).execute(pool).await?.rows_affected() });
    if deleted == 0 { Err(Problem::not_found(format!("session {id}"))) } else { Ok(Answer::nothing()) }
}

async fn found(request: &Request) -> Result<Session, Problem> {
    let id = request.id("session")?;
    let found = Session::find(&request.database(), id).await?;
    found.ok_or_else(|| Problem::not_found(format!("session {id}")))
}
