//! A receiver of HTTP calls, inside the test.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use standardwebhooks::Webhook;
use tokio::sync::mpsc;

/// What came in.
#[derive(Debug, Clone)]
pub(crate) struct Delivery {
    pub(crate) path: String,
    pub(crate) query: Option<String>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Delivery {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Whether the reference library takes it for ours.
    pub(crate) fn is_signed_with(&self, secret: &str) -> bool {
        Webhook::new(secret).unwrap().verify(&self.body, &self.headers).is_ok()
    }
}

/// Takes calls, and answers as it is told; when it was told nothing more, with 204.
pub(crate) struct Receiver {
    pub(crate) url: String,
    calls: mpsc::UnboundedReceiver<Delivery>,
    answers: Answers,
}

/// No status: the caller waits in vain.
const NEVER: u16 = 0;

type Answers = Arc<Mutex<VecDeque<(u16, Vec<(&'static str, String)>, String)>>>;

impl Receiver {
    pub(crate) async fn start() -> Self {
        let (told, calls) = mpsc::unbounded_channel();
        let answers = Answers::default();
        let router = Router::new().fallback(receive).with_state((told, answers.clone()));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(axum::serve(listener, router).into_future());
        Self { url, calls, answers }
    }

    /// Answers the next call, after those that were told before, so.
    pub(crate) fn answer(&self, status: u16, headers: &[(&'static str, &str)], body: &str) {
        let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        self.answers.lock().unwrap().push_back((status, headers, body.to_owned()));
    }

    /// Leaves the next call, after those that were told before, without an answer.
    pub(crate) fn never_answer(&self) {
        self.answer(NEVER, &[], "");
    }

    /// The next call.
    pub(crate) async fn next(&mut self) -> Delivery {
        self.calls.recv().await.unwrap()
    }

    /// How many calls came that nobody asked for.
    pub(crate) fn unasked(&mut self) -> usize {
        std::iter::from_fn(|| self.calls.try_recv().ok()).count()
    }
}

async fn receive(
    State((told, answers)): State<(mpsc::UnboundedSender<Delivery>, Answers)>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let answer = answers.lock().unwrap().pop_front();
    let query = uri.query().map(str::to_owned);
    let _ = told.send(Delivery { path: uri.path().to_owned(), query, headers, body });
    let Some((status, headers, body)) = answer else { return StatusCode::NO_CONTENT.into_response() };
    if status == NEVER {
        return std::future::pending().await;
    }
    let mut response = (StatusCode::from_u16(status).unwrap(), body).into_response();
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::try_from(value).unwrap());
    }
    response
}
