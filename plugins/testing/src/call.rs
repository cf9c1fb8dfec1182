use std::sync::Arc;

use chrono::{DateTime, Utc};
use punctual_sdk::engine::{self, Call, Engine};
use punctual_sdk::{Answer, AnswerContent, Method, Problem, ProblemKind, Request, Route};
use serde_json::{Value, json};

/// What a call of a route was answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// The body; of a problem `{code, detail, errors}`.
    pub body: Value,
    /// The bytes of a file.
    pub file: Vec<u8>,
}

impl Response {
    /// The text of a field of the body.
    ///
    /// # Panics
    /// When there is none.
    pub fn text(&self, field: &str) -> &str {
        self.body[field].as_str().unwrap_or_else(|| panic!("no text {field} in {self:?}"))
    }

    /// The names of the bad fields.
    pub fn bad_fields(&self) -> Vec<&str> {
        let errors = self.body["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
        errors.iter().filter_map(|error| error["field"].as_str()).collect()
    }
}

/// Calls the route that `path` leads to. It must describe what it answers.
pub(crate) async fn call(
    (plugin, routes): (&'static str, &[Route]),
    engine: &Arc<dyn Engine>,
    now: DateTime<Utc>,
    (method, path, body): (Method, &str, Value),
    key: Option<&str>,
) -> Response {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let found = routes.iter().filter(|route| route.method == method);
    let Some((route, places)) = found.filter_map(|route| Some((route, route.places(path)?))).next() else {
        panic!("the plugin has no route {} {path}", method.as_str());
    };
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let request = Request {
        places: places.into_iter().collect(),
        parameters: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        body: body.clone(),
        now,
        call: key.map(|key| Call {
            owner: String::new(),
            key: key.to_owned(),
            fingerprint: format!("{} {path} {body}", method.as_str()),
        }),
        context: engine::context(plugin, Arc::clone(engine)),
    };
    match route.handler.answer(request).await {
        Ok(answer) => {
            let is_told = route.answers.iter().any(|(status, ..)| *status == answer.status);
            assert!(is_told, "{} {} does not say that it answers {}", method.as_str(), route.path, answer.status);
            response(answer)
        }
        Err(problem) => {
            let may_conflict = route.may_conflict || problem.kind != ProblemKind::Conflict;
            assert!(may_conflict, "{} {} does not say that it may conflict", method.as_str(), route.path);
            refusal(&problem)
        }
    }
}

fn response(Answer { status, content, .. }: Answer) -> Response {
    let (body, file) = match content {
        AnswerContent::Json(text) => (serde_json::from_str(&text).expect("answers are JSON"), Vec::new()),
        AnswerContent::File { bytes, .. } => (Value::Null, bytes),
        AnswerContent::Nothing => (Value::Null, Vec::new()),
    };
    Response { status, body, file }
}

fn refusal(problem: &Problem) -> Response {
    let (status, code) = match problem.kind {
        ProblemKind::Invalid => (400, "INVALID"),
        ProblemKind::NotFound => (404, "NOT_FOUND"),
        ProblemKind::Conflict => (409, "CONFLICT"),
        ProblemKind::Unavailable => (503, "UNAVAILABLE"),
        ProblemKind::Internal => (500, "INTERNAL"),
    };
    let body = json!({"code": code, "detail": problem.detail, "errors": problem.errors});
    Response { status, body, file: Vec::new() }
}
