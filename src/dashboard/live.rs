//! `GET /live`: says that something happened, so that an open page fetches itself again.
//!
//! Pages do not follow the events themselves. In a busy hour there are tens of thousands of them a second, all read from the
//! database that the engine works on, and a page needs to know no more than whether there were any. That is one cheap
//! question a second for all pages together, and none while no page is open.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, TimeDelta, Utc};
use futures::stream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep};

use super::lately::{Lately, within};
use crate::http::Api;
use crate::http::auth::Caller;
use crate::http::problem::Problem;

/// How often it is looked.
const BEAT: Duration = Duration::from_secs(1);
/// What was seen so recently is not looked at again: by another page, a moment ago.
const FRESH: Duration = Duration::from_millis(900);
/// How long a look may take before the pages do without it.
const PATIENCE: Duration = Duration::from_secs(5);
/// How far each look reaches back before the last one: what is being written then is seen a little later.
const LOOK_BACK: TimeDelta = TimeDelta::seconds(1);
/// How often a stream on which nothing happens shows that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// How often the key of every stream is looked at, also if nothing happens.
const CHECK: Duration = Duration::from_secs(5);
/// How many pages are open at the most.
const MOST: usize = 256;

/// What all open pages share.
pub(crate) struct Live {
    seen: Lately<Seen>,
    places: Arc<Semaphore>,
}

impl Default for Live {
    fn default() -> Self {
        Self { seen: Lately::default(), places: Arc::new(Semaphore::new(MOST)) }
    }
}

/// What the last look found.
#[derive(Clone, Copy)]
struct Seen {
    at: DateTime<Utc>,
    /// How many looks found that something had happened.
    changes: u64,
}

/// `GET /live`.
pub(super) async fn follow(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Problem> {
    let Ok(place) = Arc::clone(&api.glances.live.places).try_acquire_owned() else {
        return Err(Problem::unavailable("too many pages are open; close some, or reload this one by hand"));
    };
    let now = Instant::now();
    let page = Page { api, caller, _place: place, changes: None, told_at: now, checked_at: now, hello: true };
    let body = Body::from_stream(stream::unfold(page, |mut page| async move {
        page.next().await.map(|frame| (Ok::<_, Infallible>(Bytes::from_static(frame)), page))
    }));
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, [("x-accel-buffering", "no")], body).into_response())
}

/// One open page.
struct Page {
    api: Arc<Api>,
    caller: Caller,
    _place: OwnedSemaphorePermit,
    /// As it was last told of them.
    changes: Option<u64>,
    /// When it last heard anything.
    told_at: Instant,
    /// When its key was last looked at.
    checked_at: Instant,
    /// Nothing was said yet.
    hello: bool,
}

impl Page {
    /// What it is told next; `None` at the end.
    async fn next(&mut self) -> Option<&'static [u8]> {
        if std::mem::take(&mut self.hello) {
            return Some(b"retry: 1000\n\n");
        }
        loop {
            let seen = look(&self.api).await;
            let changes = seen.map(|seen| seen.changes);
            let has_changed = self.changes.is_some() && changes.is_some() && changes != self.changes;
            self.changes = changes.or(self.changes);
            if has_changed || self.checked_at.elapsed() >= CHECK {
                self.checked_at = Instant::now();
                if !self.api.still_knows(&self.caller).await {
                    return None;
                }
            }
            if has_changed {
                self.told_at = Instant::now();
                return Some(b"event: changed\ndata:\n\n");
            }
            if self.told_at.elapsed() >= KEEP_ALIVE {
                self.told_at = Instant::now();
                return Some(b":\n\n");
            }
            tokio::select! {
                () = sleep(BEAT) => {}
                () = self.api.feed.closed() => return None,
            }
        }
    }
}

/// What was seen last, by whichever page looked.
async fn look(api: &Arc<Api>) -> Option<Seen> {
    let asking = Arc::clone(api);
    let look = move |before: Option<Arc<Seen>>| async move {
        let at = asking.time.now();
        let Some(before) = before else { return Ok(Seen { at, changes: 0 }) };
        let since = asking.store.has_happened_since(before.at - LOOK_BACK);
        let happened = within(PATIENCE, "whether anything happened", since).await?;
        Ok(Seen { at, changes: before.changes + u64::from(happened) })
    };
    api.glances.live.seen.get(FRESH, PATIENCE, look).await.as_deref().copied()
}
