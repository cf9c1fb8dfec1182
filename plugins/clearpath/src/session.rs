//! Test sessions: from when a kit is ordered until there is a result, or nobody waits for one any more.

use chrono::{DateTime, Days, NaiveDate, NaiveTime, TimeDelta, Utc};
use punctual_sdk::{
    Answer, Database, Fields, NewTask, Page, Problem, Request, Route, Schema, Transaction, exactly, on_either, row,
    shown, sqlx,
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::record::{Record, Shared, found, held, show};
use crate::{ZONE, certificate};

const STATUSES: [&str; 8] =
    ["pending", "active", "retrieval_due", "mailed", "results_pending", "complete", "cancelled", "expired"];

/// What somebody may say about a session; that it is complete or expired follows from something else.
const SETTABLE: [&str; 6] = ["pending", "active", "retrieval_due", "mailed", "results_pending", "cancelled"];

/// Under way: begun, and without a result.
const OPEN: [&str; 4] = ["active", "retrieval_due", "mailed", "results_pending"];

/// The e-mails that come so many days after the activation.
const DAYS: [(&str, i64); 4] = [("day_30", 30), ("day_60", 60), ("day_80", 80), ("day_88", 88)];

/// How long a test takes where nobody says it.
const USUAL_DAYS: Days = Days::new(90);

row! {
    #[derive(Debug, Clone)]
    pub(crate) struct Session {
        pub(crate) id: Uuid,
        pub(crate) user_id: String,
        pub(crate) name: String,
        pub(crate) email: String,
        pub(crate) status: String,
        pub(crate) clearpath_order_id: Option<String>,
        pub(crate) kit_serial_number: Option<String>,
        pub(crate) activated_at: Option<DateTime<Utc>>,
        pub(crate) expected_completion_date: Option<NaiveDate>,
        pub(crate) expired_at: Option<DateTime<Utc>>,
        pub(crate) created_at: DateTime<Utc>,
        pub(crate) updated_at: DateTime<Utc>,
    }
}

/// Selects sessions, by the names of all columns; the rest of the statement says which.
macro_rules! select_sessions {
    ($which:literal) => {
        concat!(
            "SELECT id, user_id, name, email, status, clearpath_order_id, kit_serial_number, activated_at, \
             expected_completion_date, expired_at, created_at, updated_at FROM clearpath_sessions ",
            $which
        )
    };
}
pub(crate) use select_sessions;

impl Record for Session {
    const NOUN: &'static str = "session";
    const ONE: &'static str = select_sessions!("WHERE id = $1");

    fn view(&self) -> Value {
        json!({
            "id": self.id,
            "userId": self.user_id,
            "name": self.name,
            "email": self.email,
            "status": self.status,
            "clearpathOrderId": self.clearpath_order_id,
            "kitSerialNumber": self.kit_serial_number,
            "activatedAt": self.activated_at.map(shown),
            "expectedCompletionDate": self.expected_completion_date,
            "expiredAt": self.expired_at.map(shown),
            "createdAt": shown(self.created_at),
            "updatedAt": shown(self.updated_at),
        })
    }
}

impl Shared for Session {
    const HOLD: &'static str = "UPDATE clearpath_sessions SET updated_at = updated_at WHERE id = $1";
}

row! {
    #[derive(Debug, Clone)]
    pub(crate) struct TestResult {
        pub(crate) id: Uuid,
        pub(crate) test_session_id: Uuid,
        /// In becquerels per cubic metre.
        pub(crate) radon_level: f64,
        pub(crate) source: String,
        pub(crate) created_at: DateTime<Utc>,
    }
}

impl TestResult {
    pub(crate) async fn of_session(database: &Database, session: Uuid) -> Result<Option<Self>, sqlx::Error> {
        let one = "SELECT id, test_session_id, radon_level, source, created_at FROM clearpath_results
            WHERE test_session_id = $1";
        on_either!(database, |pool| sqlx::query_as(one).bind(session).fetch_optional(pool).await)
    }

    /// Writes the result of a session, completes that, and has its certificate made later, all or nothing; `false` if there is a
    /// result already.
    pub(crate) async fn add(&self, transaction: &mut Transaction) -> Result<bool, Problem> {
        let insert = "INSERT INTO clearpath_results (id, test_session_id, radon_level, source, created_at)
            VALUES ($1, $2, $3, $4, $5) ON CONFLICT (test_session_id) DO NOTHING";
        let complete = "UPDATE clearpath_sessions SET status = 'complete', updated_at = $2
            WHERE id = $1 AND status NOT IN ('cancelled', 'expired')";
        let added = on_either!(transaction, |connection| {
            let bound = sqlx::query(insert).bind(self.id).bind(self.test_session_id).bind(self.radon_level);
            let added = bound.bind(&self.source).bind(self.created_at).execute(&mut *connection).await?.rows_affected();
            if added > 0 {
                let bound = sqlx::query(complete).bind(self.test_session_id).bind(self.created_at);
                if bound.execute(connection).await?.rows_affected() == 0 {
                    return Err(Problem::conflict("the session was cancelled or expired in between"));
                }
            }
            added
        });
        if added > 0 {
            let task = NewTask::new(certificate::TOPIC).payload(json!({"sessionId": self.test_session_id}));
            transaction.enqueue(task.attempts(3)).await?;
        }
        Ok(added > 0)
    }

    pub(crate) fn view(&self) -> Value {
        json!({
            "id": self.id,
            "testSessionId": self.test_session_id,
            "radonLevel": self.radon_level,
            "source": self.source,
            "createdAt": shown(self.created_at),
        })
    }
}

pub(crate) fn routes() -> Vec<Route> {
    let status =
        || ("status", Schema::word(SETTABLE).about("every one but `pending` and `cancelled` writes its e-mails"));
    let said = || {
        [
            ("userId", Schema::key().about("the session's own id where nobody says it")),
            ("clearpathOrderId", Schema::key()),
            ("kitSerialNumber", Schema::key()),
            ("activatedAt", Schema::instant()),
            (
                "expectedCompletionDate",
                Schema::format("date").about("90 days after the activation where nobody says it"),
            ),
        ]
    };
    let shape = || {
        Schema::object([
            ("id", Schema::id()),
            ("userId", Schema::text().example("user-17")),
            ("name", Schema::text().example("Ada")),
            ("email", Schema::text().example("ada@example.com")),
            ("status", Schema::word(STATUSES)),
            ("clearpathOrderId", Schema::text().or_null()),
            ("kitSerialNumber", Schema::text().or_null()),
            ("activatedAt", Schema::instant().or_null()),
            ("expectedCompletionDate", Schema::format("date").or_null()),
            ("expiredAt", Schema::instant().or_null()),
            ("createdAt", Schema::instant()),
            ("updatedAt", Schema::instant()),
        ])
    };
    let result = || {
        Schema::object([
            ("id", Schema::id()),
            ("testSessionId", Schema::id()),
            ("radonLevel", Schema::number(0.0..=1e9).about("in Bq/m³")),
            ("source", Schema::word(["user", "lab"])),
            ("createdAt", Schema::instant()),
        ])
    };
    let person = [("name", Schema::field_text()), ("email", Schema::format("email"))];
    vec![
        Route::get("/sessions", list)
            .named("listTestSessions", "Lists test sessions, newest first")
            .query("status", Schema::word(STATUSES))
            .answers_page(shape()),
        Route::post("/sessions", create)
            .named(
                "createTestSession",
                "Makes a test session, active unless it is said otherwise, and writes its e-mails",
            )
            .takes(
                Schema::object(person).takes([status()]).takes(said()),
                json!({"name": "Ada", "email": "ada@example.com", "clearpathOrderId": "CP-17"}),
            )
            .may_conflict()
            .answers(201, "The session", shape()),
        Route::get("/sessions/{id}", show::<Session>).named("getTestSession", "Shows a test session").answers(
            200,
            "The session",
            shape(),
        ),
        Route::patch("/sessions/{id}", patch)
            .named(
                "patchTestSession",
                "Changes a test session; one that is begun gets its e-mails, and those that wait follow its dates",
            )
            .takes(Schema::object([]).may_have([status()]).takes(said()), json!({"status": "mailed"}))
            .may_conflict()
            .answers(200, "The session", shape()),
        Route::get("/sessions/{id}/result", show_result)
            .named("getTestResult", "Shows the result of a test session")
            .answers(200, "The result", result()),
        Route::post("/sessions/{id}/result", enter_result)
            .named("enterTestResult", "Enters the result of a test session, and has its certificate made")
            .takes(Schema::object([("radonLevel", Schema::number(0.0..=1e9))]), json!({"radonLevel": 120.5}))
            .may_conflict()
            .answers(201, "The result", result()),
    ]
}

impl Session {
    /// What a caller may say of it, as they would say it.
    fn said(&self) -> Value {
        json!({
            "status": self.status,
            "userId": self.user_id,
            "clearpathOrderId": self.clearpath_order_id,
            "kitSerialNumber": self.kit_serial_number,
            "activatedAt": self.activated_at.map(exactly),
            "expectedCompletionDate": self.expected_completion_date,
        })
    }

    /// Takes over what a caller says besides the status; what they leave out returns to its default.
    fn read(&mut self, mut fields: Fields, request: &Request) -> Result<(), Problem> {
        self.user_id = fields.key("userId").unwrap_or_else(|| self.id.to_string());
        self.clearpath_order_id = fields.key("clearpathOrderId");
        self.kit_serial_number = fields.key("kitSerialNumber");
        self.activated_at = fields.instant("activatedAt");
        self.expected_completion_date = fields.date("expectedCompletionDate");
        fields.finish()?;
        self.updated_at = request.now;
        self.begin(request)
    }

    /// A test that is under way knows since when, and until when it takes, whichever status it began with.
    fn begin(&mut self, request: &Request) -> Result<(), Problem> {
        if self.is_open() {
            let activated_at = *self.activated_at.get_or_insert(request.now);
            if self.expected_completion_date.is_none() {
                self.expected_completion_date = usual_completion(activated_at, request)?;
            }
        }
        Ok(())
    }

    /// A completion that nobody said follows the activation.
    fn follow_activation(&mut self, before: &Self, request: &Request) -> Result<(), Problem> {
        let (Some(was), Some(is)) = (before.activated_at, self.activated_at) else { return Ok(()) };
        let is_said = request.body.get("expectedCompletionDate").is_some_and(|said| !said.is_null());
        if was != is && !is_said && before.expected_completion_date == usual_completion(was, request)? {
            self.expected_completion_date = usual_completion(is, request)?;
        }
        Ok(())
    }

    fn is_open(&self) -> bool {
        OPEN.contains(&self.status.as_str())
    }

    /// When its e-mails are due, by kind; none while it has no dates.
    fn plan(&self, request: &Request) -> Result<Vec<(&'static str, DateTime<Utc>)>, Problem> {
        let (Some(activated_at), Some(completion)) = (self.activated_at, self.expected_completion_date) else {
            return Ok(Vec::new());
        };
        let completion = request.context.zone(ZONE)?.instant(completion.and_time(NaiveTime::MIN));
        let days = DAYS.into_iter().map(|(kind, days)| (kind, activated_at + TimeDelta::days(days)));
        Ok(days.chain([("results_prompt", completion)]).collect())
    }
}

/// When a test that was activated then is complete where nobody says it.
fn usual_completion(activated_at: DateTime<Utc>, request: &Request) -> Result<Option<NaiveDate>, Problem> {
    Ok(request.context.zone(ZONE)?.date(activated_at).checked_add_days(USUAL_DAYS))
}

async fn list(request: Request) -> Result<Answer, Problem> {
    let mut query = request.query();
    let page = Page::of(&mut query);
    let status = query.word("status", &STATUSES);
    query.finish()?;
    let some = select_sessions!("WHERE id < $1 AND ($2 IS NULL OR status = $2) ORDER BY id DESC LIMIT $3");
    let found: Vec<Session> = on_either!(request.database(), |pool| {
        sqlx::query_as(some).bind(page.before()).bind(status).bind(page.rows()).fetch_all(pool).await?
    });
    page.answer(found.iter().map(Session::view))
}

async fn create(request: Request) -> Result<Answer, Problem> {
    request.no_query()?;
    let mut fields = request.fields();
    let (name, email) = (fields.needs("name", Fields::text), fields.needs("email", Fields::email));
    let mut session = Session {
        id: Uuid::now_v7(),
        user_id: String::new(),
        name,
        email,
        status: String::new(),
        clearpath_order_id: None,
        kit_serial_number: None,
        activated_at: None,
        expected_completion_date: None,
        expired_at: None,
        created_at: request.now,
        updated_at: request.now,
    };
    session.status = fields.word("status", &SETTABLE).unwrap_or("active").to_owned();
    session.read(fields, &request)?;
    let mut transaction = request.database().begin().await?;
    let insert =
        "INSERT INTO clearpath_sessions (id, user_id, name, email, status, clearpath_order_id, kit_serial_number,
        activated_at, expected_completion_date, created_at, updated_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10)";
    on_either!(transaction, |connection| {
        let bound =
            sqlx::query(insert).bind(session.id).bind(&session.user_id).bind(&session.name).bind(&session.email);
        let bound = bound.bind(&session.status).bind(&session.clearpath_order_id).bind(&session.kit_serial_number);
        let bound = bound.bind(session.activated_at).bind(session.expected_completion_date).bind(session.created_at);
        bound.execute(connection).await.map_err(taken)?;
    });
    if session.is_open() {
        queue_emails(&mut transaction, &session, &request).await?;
    }
    request.commit(transaction, Answer::created(session.view())?).await
}

async fn patch(request: Request) -> Result<Answer, Problem> {
    request.no_query()?;
    let mut transaction = request.database().begin().await?;
    let before: Session = held(&mut transaction, &request).await?;
    if ["complete", "cancelled", "expired"].contains(&before.status.as_str()) {
        return Err(Problem::conflict(format!("the session is {}, and does not change any more", before.status)));
    }
    let mut session = before.clone();
    let mut fields = request.merged_into(before.said());
    session.status = fields.needs("status", |fields, name| fields.word(name, &SETTABLE)).to_owned();
    session.read(fields, &request)?;
    session.follow_activation(&before, &request)?;
    let update =
        "UPDATE clearpath_sessions SET status = $2, user_id = $3, clearpath_order_id = $4, kit_serial_number = $5,
        activated_at = $6, expected_completion_date = $7, updated_at = $8 WHERE id = $1";
    on_either!(transaction, |connection| {
        let bound = sqlx::query(update).bind(session.id).bind(&session.status);
        let bound = bound.bind(&session.user_id).bind(&session.clearpath_order_id).bind(&session.kit_serial_number);
        let bound = bound.bind(session.activated_at).bind(session.expected_completion_date).bind(session.updated_at);
        bound.execute(connection).await.map_err(taken)?;
    });
    move_emails(&mut transaction, &before, &session, &request).await?;
    if session.is_open() && !before.is_open() {
        queue_emails(&mut transaction, &session, &request).await?;
    }
    transaction.commit().await?;
    Answer::ok(session.view())
}

/// Writes the e-mails of a session that is under way now, those that it does not have.
async fn queue_emails(transaction: &mut Transaction, session: &Session, request: &Request) -> Result<(), Problem> {
    let insert =
        "INSERT INTO clearpath_email_log (id, user_id, test_session_id, email_type, recipient, status, scheduled_at,
            retry_count, is_template_error, created_at)
        SELECT $1, $2, $3, $4, $5, 'queued', $6, 0, $7, $8 WHERE NOT EXISTS
            (SELECT 1 FROM clearpath_email_log WHERE test_session_id = $3 AND email_type = $4)";
    for (kind, at) in session.plan(request)? {
        on_either!(transaction, |connection| {
            let bound = sqlx::query(insert).bind(Uuid::now_v7()).bind(&session.user_id).bind(session.id).bind(kind);
            let bound = bound.bind(&session.email).bind(at).bind(false).bind(request.now);
            bound.execute(connection).await?;
        });
    }
    Ok(())
}

/// Moves the e-mails of a session whose dates have changed, those that may still go out. One whose new date is past is due now: it
/// has not waited since then.
async fn move_emails(
    transaction: &mut Transaction,
    before: &Session,
    session: &Session,
    request: &Request,
) -> Result<(), Problem> {
    let update = "UPDATE clearpath_email_log SET scheduled_at = $3 WHERE test_session_id = $1 AND email_type = $2
        AND status IN ('queued', 'failed')";
    let planned = before.plan(request)?;
    for (kind, at) in session.plan(request)?.into_iter().filter(|moved| !planned.contains(moved)) {
        let at = at.max(request.now);
        on_either!(transaction, |connection| {
            sqlx::query(update).bind(session.id).bind(kind).bind(at).execute(connection).await?;
        });
    }
    Ok(())
}

async fn show_result(request: Request) -> Result<Answer, Problem> {
    request.no_query()?;
    let session: Session = found(&request).await?;
    let found = TestResult::of_session(&request.database(), session.id).await?;
    Answer::ok(found.ok_or_else(|| Problem::not_found(format!("result of session {}", session.id)))?.view())
}

async fn enter_result(request: Request) -> Result<Answer, Problem> {
    request.no_query()?;
    let mut fields = request.fields();
    let radon_level = fields.needs("radonLevel", level);
    fields.finish()?;
    let session: Session = found(&request).await?;
    if ["cancelled", "expired"].contains(&session.status.as_str()) {
        return Err(Problem::conflict(format!("the session is {}", session.status)));
    }
    let result = TestResult {
        id: Uuid::now_v7(),
        test_session_id: session.id,
        radon_level,
        source: "user".to_owned(),
        created_at: request.now,
    };
    let mut transaction = request.database().begin().await?;
    if !result.add(&mut transaction).await? {
        return Err(Problem::conflict("the session has a result already"));
    }
    request.commit(transaction, Answer::created(result.view())?).await
}

/// A radon level, in becquerels per cubic metre.
pub(crate) fn level(fields: &mut Fields, name: &str) -> Option<f64> {
    let is_level = |value: &Value| value.as_f64().filter(|level| (0.0..=1e9).contains(level));
    fields.check(name, |value| is_level(&value).ok_or_else(|| "must be a number of Bq/m³, not below 0".to_owned()))
}

fn taken(error: sqlx::Error) -> Problem {
    Problem::taken(error, "another session has that clearpathOrderId or kitSerialNumber")
}
