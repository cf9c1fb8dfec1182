//! The job `labResultPoll`: asks the lab for results that are new since the last poll that succeeded.

use std::time::Duration;

use chrono::{DateTime, Utc};
use punctual_sdk::{
    Answer, Attempt, Context, Database, Error, Fields, Job, Outcome, Problem, Request, Route, Schema, on_either,
    run_job, shown, sqlx,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tracing::{error, info, warn};
use uuid::Uuid;

use crate::session::{Session, TestResult, level, select_sessions};

const JOB: &str = "labResultPoll";
/// How much it may answer.
const MAX_ANSWER: usize = 16 * 1024 * 1024;
/// How much of what cannot be read is logged, in characters.
const EXCERPT: usize = 200;

/// What is remembered from poll to poll.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct JobState {
    last_run_at: Option<DateTime<Utc>>,
    /// When the last poll began that succeeded.
    last_poll_timestamp: Option<DateTime<Utc>>,
}

/// How lab results come in.
fn model(context: &Context) -> String {
    context.setting("LAB_INTEGRATION_MODEL").unwrap_or_else(|| "none".to_owned())
}

/// Asks the lab, which has so long to answer.
pub(crate) async fn run(attempt: Attempt, patience: Duration) -> Outcome {
    run_job(JOB, async |job| {
        let model = model(&attempt.context);
        if model != "api" {
            info!(job = JOB, "lab polling skipped (model: {model})");
            return Ok(());
        }
        let state = attempt.state_cell::<JobState>(JOB);
        let begun_at = attempt.started_at;
        let before =
            state.update(|state| JobState { last_run_at: Some(begun_at), ..state.unwrap_or_default() }).await?;
        let records = ask(&attempt, patience, before.last_poll_timestamp).await.inspect_err(|failed| {
            error!(job = JOB, err = %failed, "lab API not read");
        })?;
        let (mut ingested, mut lost) = (0, 0);
        for (number, record) in records.into_iter().enumerate() {
            match ingest(&attempt, job, number, &record).await {
                Ok(true) => ingested += 1,
                Ok(false) => {}
                Err(failed) => {
                    lost += 1;
                    job.failed(number, failed);
                }
            }
        }
        info!(job = JOB, ingested, "lab results ingested");
        if lost > 0 {
            // The next poll asks for the same once more; what was stored is skipped then.
            return Err(format!("{lost} results could not be stored").into());
        }
        state.update(|state| JobState { last_poll_timestamp: Some(begun_at), ..state.unwrap_or_default() }).await?;
        Ok(())
    })
    .await
}

/// The records that the lab has, each as it came.
async fn ask(attempt: &Attempt, patience: Duration, since: Option<DateTime<Utc>>) -> Result<Vec<Value>, Error> {
    let url = attempt.context.setting("LAB_API_URL").ok_or("LAB_API_URL is not set")?;
    let client = reqwest::Client::builder().timeout(patience).redirect(reqwest::redirect::Policy::none()).build()?;
    let mut url = reqwest::Url::parse(&format!("{}/results", url.trim_end_matches('/')))?;
    if let Some(since) = since {
        url.query_pairs_mut().append_pair("since", &shown(since));
    }
    let mut request = client.get(url);
    if let Some(key) = attempt.context.setting("LAB_API_KEY") {
        request = request.bearer_auth(key);
    }
    // The address may hold secrets of its own: it stays out of the error.
    let mut response =
        request.send().await.map_err(|failed| format!("lab API unreachable: {}", reasons(&failed.without_url())))?;
    let status = response.status();
    if !status.is_success() {
        return Err(format!("lab API answered HTTP status {}", status.as_u16()).into());
    }
    let mut body = Vec::new();
    while let Some(chunk) =
        response.chunk().await.map_err(|failed| format!("lab API broke off: {}", reasons(&failed.without_url())))?
    {
        if body.len() + chunk.len() > MAX_ANSWER {
            return Err(format!("lab API answered more than {MAX_ANSWER} bytes").into());
        }
        body.extend_from_slice(&chunk);
    }
    let unexpected = || {
        let excerpt = excerpt(&String::from_utf8_lossy(&body));
        Error::from(format!("lab API answered in an unexpected format: {excerpt}"))
    };
    match serde_json::from_slice(&body) {
        Ok(Value::Array(records)) => Ok(records),
        Ok(Value::Object(mut answer)) => match answer.remove("results") {
            Some(Value::Array(records)) => Ok(records),
            _ => Err(unexpected()),
        },
        _ => Err(unexpected()),
    }
}

/// One result of the lab.
struct Record {
    clearpath_order_id: Option<String>,
    kit_serial_number: Option<String>,
    radon_level: f64,
}

impl Record {
    fn read(record: &Value) -> Result<Self, String> {
        // What else the lab says is its own business.
        let known = ["clearpath_order_id", "kit_serial_number", "radon_level"];
        let own = record.as_object().ok_or("is not an object")?;
        // An id that is empty is one that the lab does not have.
        let is_said = |name: &str, value: &Value| name == "radon_level" || value != "";
        let own = own.iter().filter(|(name, value)| known.contains(&name.as_str()) && is_said(name, value));
        let mut fields = Fields::of(own.map(|(name, value)| (name.clone(), value.clone())).collect());
        let read = Self {
            clearpath_order_id: fields.text("clearpath_order_id"),
            kit_serial_number: fields.text("kit_serial_number"),
            radon_level: fields.needs("radon_level", level),
        };
        fields.finish().map_err(|problem| problem.detail)?;
        if read.clearpath_order_id.is_none() && read.kit_serial_number.is_none() {
            return Err("names neither clearpath_order_id nor kit_serial_number".to_owned());
        }
        Ok(read)
    }

    async fn session(&self, database: &Database) -> Result<Option<Session>, sqlx::Error> {
        let by_order = select_sessions!("WHERE clearpath_order_id = $1");
        let by_kit = select_sessions!("WHERE kit_serial_number = $1");
        for (one, id) in [(by_order, &self.clearpath_order_id), (by_kit, &self.kit_serial_number)] {
            let Some(id) = id else { continue };
            let found = on_either!(database, |pool| sqlx::query_as(one).bind(id).fetch_optional(pool).await?);
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}

/// Stores one result, if somebody waits for it; `true` if it was stored.
async fn ingest(attempt: &Attempt, job: &Job, number: usize, record: &Value) -> Result<bool, Error> {
    let read = match Record::read(record) {
        Ok(read) => read,
        Err(reason) => {
            let excerpt = excerpt(&record.to_string());
            warn!(job = JOB, recordId = number, err = reason, excerpt, "lab result malformed");
            job.skipped(number, "malformed");
            return Ok(false);
        }
    };
    let database = attempt.database();
    let Some(session) = read.session(&database).await? else {
        let Record { clearpath_order_id, kit_serial_number, .. } = &read;
        let err = "no session has that order or that kit";
        warn!(job = JOB, recordId = number, clearpath_order_id, kit_serial_number, err, "lab result not stored");
        job.skipped(number, "no session");
        return Ok(false);
    };
    if TestResult::of_session(&database, session.id).await?.is_some() {
        job.skipped(session.id, "duplicate");
        return Ok(false);
    }
    if !["mailed", "results_pending"].contains(&session.status.as_str()) {
        // The lab does not tell of it again: somebody has to look after it.
        let err = format!("the session is {}, and waits for no result", session.status);
        warn!(job = JOB, recordId = %session.id, err, "lab result not stored");
        job.skipped(session.id, "no result is outstanding");
        return Ok(false);
    }
    let result = TestResult {
        id: Uuid::now_v7(),
        test_session_id: session.id,
        radon_level: read.radon_level,
        source: "lab".to_owned(),
        created_at: attempt.started_at,
    };
    let mut transaction = database.begin().await?;
    if !result.add(&mut transaction).await.map_err(|problem| problem.detail)? {
        transaction.rollback().await?;
        job.skipped(session.id, "duplicate");
        return Ok(false);
    }
    transaction.commit().await?;
    job.processed();
    Ok(true)
}

pub(crate) fn routes() -> Vec<Route> {
    let shape = Schema::object([
        ("model", Schema::text().example("api").about("LAB_INTEGRATION_MODEL; the lab is polled if it is `api`")),
        ("lastRunAt", Schema::instant().or_null().about("when the last poll began")),
        (
            "lastPollTimestamp",
            Schema::instant()
                .or_null()
                .about("when the last poll began that succeeded: the next one asks for what is new since then"),
        ),
    ]);
    vec![
        Route::get("/lab", show)
            .named("getLabPolling", "Shows whether the lab is polled, and how far that has come")
            .answers(200, "The polling", shape),
    ]
}

async fn show(request: Request) -> Result<Answer, Problem> {
    request.no_query()?;
    let state = request.context.state_cell::<JobState>(JOB).get().await?.unwrap_or_default();
    Answer::ok(json!({
        "model": model(&request.context),
        "lastRunAt": state.last_run_at.map(shown),
        "lastPollTimestamp": state.last_poll_timestamp.map(shown),
    }))
}

fn excerpt(text: &str) -> String {
    text.chars().take(EXCERPT).collect()
}

/// An error with everything that led to it.
fn reasons(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        said = format!("{said}: {inner}");
        source = inner.source();
    }
    said
}
