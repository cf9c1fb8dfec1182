//! `GET /api/v1/events`: what happens, as server-sent events.
//!
//! A stream without `Last-Event-ID` begins with what happens after it was opened. With one it goes on behind that event: from
//! the ring if it is still there, which repeats nothing; else from the database, which repeats what happened shortly before
//! it, and skips nothing.
//!
//! What has happened is shown only once its stream's key was looked at again: a revoked key sees nothing that happens later.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Uri, header};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use futures::stream;
use punctual_domain::event::{Event, EventKind, MissedFire};
use punctual_domain::topic::{Topic, TopicPattern};
use tokio::time::{Instant, timeout};

use super::Api;
use super::auth::Caller;
use super::event_view::{frame, write};
use super::problem::{Problem, Refusals};
use super::query::Parameters;
use crate::feed::{End, Happening, Hearing, Past};

pub(crate) const PATH: &str = "/api/v1/events";

/// How often a stream on which nothing happens shows that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// How often the key of every stream is looked at, whatever happens: frames may wait for a slow reader.
const CHECK: Duration = Duration::from_secs(1);
/// How long to wait until the past is asked for again.
const AFTER_ERROR: Duration = Duration::from_secs(1);

/// Every name that an event can have.
pub(crate) const NAMES: [&str; 5] = [
    EventKind::Arrived.name(),
    EventKind::Completed.name(),
    EventKind::Failed.name(),
    EventKind::Cancelled.name(),
    MissedFire::NAME,
];

/// `GET /api/v1/events`.
pub(crate) async fn follow(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let mut parameters = Parameters::of(&uri)?;
    let (topics, names) = (parameters.topics(), parameters.words("type", &NAMES));
    parameters.finish()?;
    let last = last_event(&headers)?;
    for topic in topics.iter().filter(|topic| !topic.as_str().ends_with('*')) {
        caller.check_topic(&Topic::from_stored(topic.as_str()))?;
    }
    let Some(mut hearing) = api.feed.listen() else {
        return Err(Problem::unavailable("too many streams are open, or the service stops; try again"));
    };
    let (since, past) = match &last {
        Some(last) if hearing.resume_after(&last.id) => (None, None),
        Some(last) => (None, Some(hearing.past_since(last.at))),
        None => (Some(api.store.now().await?), None),
    };
    let wanted = Wanted { caller, topics, names, since };
    let hello = Bytes::from_static(b"retry: 1000\n: Punctual's events\n\n");
    let stream = Stream {
        api,
        hearing,
        past,
        wanted,
        ready: VecDeque::from([hello]),
        checked_at: Instant::now(),
        has_ended: false,
    };
    let body = Body::from_stream(stream::unfold(stream, |mut stream| async move {
        stream.next().await.map(|frame| (Ok::<_, Infallible>(frame), stream))
    }));
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, [("x-accel-buffering", "no")], body).into_response())
}

/// The event that a client saw last.
struct LastEvent {
    id: String,
    at: DateTime<Utc>,
}

fn last_event(headers: &HeaderMap) -> Result<Option<LastEvent>, Problem> {
    const NAME: &str = "Last-Event-ID";
    let Some(value) = headers.get(NAME).filter(|value| !value.is_empty()) else { return Ok(None) };
    let last = value.to_str().ok().and_then(|id| Some(LastEvent { id: id.to_owned(), at: Event::instant_of(id)? }));
    if last.is_none() {
        let mut refusals = Refusals::default();
        refusals.add(NAME, "must be the id of an event of this stream; leave it out to begin now");
        refusals.or(())?;
    }
    Ok(last)
}

/// What a stream is to show.
struct Wanted {
    caller: Caller,
    topics: Vec<TopicPattern>,
    names: Vec<&'static str>,
    /// Nothing that happened before.
    since: Option<DateTime<Utc>>,
}

impl Wanted {
    fn has(&self, happening: &Happening) -> bool {
        let topic = &happening.topic;
        (self.names.is_empty() || self.names.contains(&happening.name()))
            && (self.topics.is_empty() || self.topics.iter().any(|pattern| pattern.matches(topic)))
            && self.since.is_none_or(|since| happening.at >= since)
            && self.caller.check_topic(topic).is_ok()
    }
}

/// One open stream.
struct Stream {
    api: Arc<Api>,
    hearing: Hearing,
    /// What has still to be read of it.
    past: Option<Past>,
    wanted: Wanted,
    /// Frames on their way.
    ready: VecDeque<Bytes>,
    /// When the caller's key was last looked at.
    checked_at: Instant,
    has_ended: bool,
}

impl Stream {
    /// The next frame; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if !self.has_ended && self.checked_at.elapsed() >= CHECK {
                self.is_known().await;
            }
            if let Some(frame) = self.ready.pop_front() {
                return Some(frame);
            }
            if self.has_ended {
                return None;
            }
            match self.past.take() {
                Some(past) => self.read_past(past).await,
                None => self.hear().await,
            }
        }
    }

    async fn read_past(&mut self, mut past: Past) {
        match self.hearing.catch_up(&mut past).await {
            Ok(happenings) if happenings.is_empty() => {
                if self.hearing.is_overtaken() {
                    past.go_back();
                    self.past = Some(past);
                }
            }
            Ok(happenings) => {
                self.show(&happenings).await;
                self.past = Some(past);
            }
            Err(error) => {
                tracing::debug!(%error, "past events not read");
                self.ready.push_back(Bytes::from_static(b": the database does not answer\n\n"));
                tokio::time::sleep(AFTER_ERROR).await;
                self.past = Some(past);
            }
        }
        if self.hearing.is_closed() {
            self.has_ended = true;
        }
    }

    async fn hear(&mut self) {
        match timeout(KEEP_ALIVE, self.hearing.next()).await {
            Ok(Ok(happenings)) => self.show(&happenings).await,
            Ok(Err(End::Closing)) => self.has_ended = true,
            Ok(Err(End::Overtaken)) => self.drop_because("it does not read as fast as things happen"),
            Err(_) => self.ready.push_back(Bytes::from_static(b":\n\n")),
        }
    }

    async fn show(&mut self, happenings: &[Arc<Happening>]) {
        let has_wanted = happenings.iter().any(|happening| self.wanted.has(happening));
        if has_wanted && self.is_known().await {
            let wanted = happenings.iter().filter(|happening| self.wanted.has(happening));
            self.ready.extend(wanted.map(|happening| happening.frame(frame)));
        }
    }

    /// Whether the caller's key was not revoked; ends the stream if it was, with what waits on it.
    async fn is_known(&mut self) -> bool {
        let is_known = self.api.still_knows(&self.wanted.caller).await;
        self.checked_at = Instant::now();
        if !is_known {
            self.ready.clear();
            self.drop_because("its API key was revoked");
        }
        is_known
    }

    /// A last word; the client may come back with its `Last-Event-ID`.
    fn drop_because(&mut self, reason: &str) {
        metrics::counter!("punctual_event_streams_dropped_total").increment(1);
        let data = serde_json::json!({"reason": format!("the stream was dropped: {reason}")});
        self.ready.push_back(write("dropped", None, &data.to_string()));
        self.has_ended = true;
    }
}
