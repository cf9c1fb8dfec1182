//! API keys at the door: once there are any, every request needs one. Where others than this machine can reach the
//! service every request always does: revoking the last key locks everybody out, and lets nobody in.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use punctual_domain::key::{ApiKey, Role};
use punctual_domain::store::{Store, StoreError, TaskFilter};
use punctual_domain::topic::{Topic, TopicPattern};
use tokio::sync::Mutex;

use super::Api;
use super::problem::{Code, Problem};
use crate::dashboard::session::Session;
use crate::keyring;

/// How soon this node notices that another one made the first key.
const FRESH: Duration = Duration::from_secs(1);
/// How long everybody waits for that.
const PATIENCE: Duration = Duration::from_secs(2);

/// Who can reach the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Nobody but this machine.
    Loopback,
    /// Others too.
    Network,
}

impl Reach {
    /// Who can reach a socket that listens on `address`.
    pub(crate) fn of(address: SocketAddr) -> Self {
        if address.ip().is_loopback() { Self::Loopback } else { Self::Network }
    }
}

/// Knows whether a request needs an API key.
pub(crate) struct Keys {
    store: Arc<dyn Store>,
    reach: Reach,
    seen: Mutex<Option<(Instant, bool)>>,
}

impl Keys {
    pub(crate) fn new(store: Arc<dyn Store>, reach: Reach) -> Self {
        Self { store, reach, seen: Mutex::new(None) }
    }

    /// Whether a request needs a key: always where others can send one, else once there are keys.
    pub(crate) async fn are_needed(&self) -> Result<bool, StoreError> {
        match self.reach {
            Reach::Network => Ok(true),
            Reach::Loopback => self.exist().await,
        }
    }

    /// Has the store asked the next time: a key was made or revoked.
    pub(crate) async fn forget(&self) {
        *self.seen.lock().await = None;
    }

    /// Whether any key was made and not revoked. While the store is away, what was last seen holds.
    async fn exist(&self) -> Result<bool, StoreError> {
        let mut seen = self.seen.lock().await;
        if let Some((at, exist)) = *seen
            && at.elapsed() < FRESH
        {
            return Ok(exist);
        }
        let asked = tokio::time::timeout(PATIENCE, self.store.has_valid_key()).await;
        let exist = match (asked, *seen) {
            (Ok(Ok(exist)), _) => exist,
            (_, Some((_, exist))) => exist,
            (Ok(Err(error)), None) => return Err(error),
            (Err(_), None) => return Err(StoreError::Unavailable(format!("no answer within {PATIENCE:?}"))),
        };
        *seen = Some((Instant::now(), exist));
        Ok(exist)
    }
}

/// Who sends a request.
#[derive(Debug, Clone)]
pub(crate) enum Caller {
    /// Somebody on this machine, while none is needed.
    Local,
    /// The bearer of a key.
    Key(Arc<ApiKey>),
}

impl Api {
    /// Whether a caller's key is still there: a stream, or a call that waits, may outlive it.
    pub(crate) async fn still_knows(&self, caller: &Caller) -> bool {
        match caller {
            Caller::Local => true,
            // While the store is away nobody can say otherwise.
            Caller::Key(key) => !matches!(self.store.key_by_hash(&key.hash).await, Ok(None)),
        }
    }

    /// Refuses a caller whose key was revoked since the call came.
    ///
    /// # Errors
    /// As a problem to answer with.
    pub(crate) async fn check_known(&self, caller: &Caller) -> Result<(), Problem> {
        if self.still_knows(caller).await { Ok(()) } else { Err(unknown_key()) }
    }
}

impl Caller {
    /// Whose `Idempotency-Key`s these are.
    pub(crate) fn owner(&self) -> String {
        match self {
            Self::Local => String::new(),
            Self::Key(key) => key.id.to_string(),
        }
    }

    /// Refuses a key that is for some topics only what `is` for all of them.
    ///
    /// # Errors
    /// As a problem to answer with.
    pub(crate) fn check_unlimited(&self, is: &str) -> Result<(), Problem> {
        if self.is_limited() {
            return Err(Problem::new(
                Code::Forbidden,
                format!("the API key is for some topics only, and {is} for all"),
            ));
        }
        Ok(())
    }

    /// Whether the caller's key is for some topics only.
    pub(crate) fn is_limited(&self) -> bool {
        matches!(self, Self::Key(key) if !key.topics.is_empty())
    }

    /// Whether the caller's key has at least this role.
    pub(crate) fn may(&self, role: Role) -> bool {
        self.check_role(role).is_ok()
    }

    /// Refuses a topic that the caller's key is not for.
    pub(crate) fn check_topic(&self, topic: &Topic) -> Result<(), Problem> {
        match self {
            Self::Key(key) if self.is_limited() && !key.topics.iter().any(|pattern| pattern.matches(topic)) => {
                Err(Problem::new(Code::Forbidden, format!("the API key is not for the topic {topic}")))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a pattern that means topics that the caller's key is not for.
    pub(crate) fn check_pattern(&self, pattern: &TopicPattern) -> Result<(), Problem> {
        match self {
            Self::Key(key) if self.is_limited() && !key.topics.iter().any(|own| own.covers(pattern)) => {
                let detail = format!("the API key is not for all topics of {}", pattern.as_str());
                Err(Problem::new(Code::Forbidden, detail))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a filter that could reach topics that the caller's key is not for.
    pub(crate) fn check_filter(&self, filter: &TaskFilter) -> Result<(), Problem> {
        match &filter.topic {
            Some(topic) => self.check_topic(topic),
            None if self.is_limited() => {
                Err(Problem::new(Code::Forbidden, "the API key is for some topics only: name one in filter.topic"))
            }
            None => Ok(()),
        }
    }

    /// Refuses a caller whose key has less than the needed role.
    pub(crate) fn check_role(&self, needed: Role) -> Result<(), Problem> {
        match self {
            Self::Key(key) if key.role < needed => {
                let (needed, has) = (needed.as_str(), key.role.as_str());
                let detail = format!("this needs the role {needed}, and the API key has {has}");
                Err(Problem::new(Code::Forbidden, detail))
            }
            _ => Ok(()),
        }
    }
}

/// Finds out who the caller is; what they may do is checked route by route.
pub(crate) async fn caller(State(api): State<Arc<Api>>, mut request: Request, next: Next) -> Response {
    match identify(&api, &Credentials::of(&request)).await {
        Ok(caller) => {
            if let Caller::Key(key) = &caller
                && let Err(problem) = api.limits.count(key.id, api.time.now())
            {
                return problem.into_response();
            }
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

/// Whether the caller may see more than whether the service is ready; while the store is away, only where
/// no key is needed.
pub(crate) async fn may_see_details(api: &Api, headers: &HeaderMap, store_is_up: bool) -> bool {
    match store_is_up {
        true => identify(api, &Credentials { bearer: bearer(headers), session: None }).await.is_ok(),
        false => matches!(api.keys.are_needed().await, Ok(false)),
    }
}

/// What a request shows to say who sends it.
struct Credentials<'a> {
    bearer: Option<&'a str>,
    /// What a login made of a key.
    session: Option<Session>,
}

impl<'a> Credentials<'a> {
    /// A session opens the dashboard, and of the API what is only read: a program that writes has its key.
    fn of(request: &'a Request) -> Self {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let counts = is_read || !request.uri().path().starts_with("/api/");
        let session = counts.then(|| Session::of(request.headers())).flatten();
        Self { bearer: bearer(request.headers()), session }
    }
}

async fn identify(api: &Api, credentials: &Credentials<'_>) -> Result<Caller, Problem> {
    if !api.keys.are_needed().await? {
        return Ok(Caller::Local);
    }
    let key = match (credentials.bearer, &credentials.session) {
        (Some(secret), _) => known_key(api, secret).await?,
        (None, Some(session)) => key_of(api, session).await?,
        (None, None) => {
            return Err(Problem::new(Code::Unauthenticated, "send an API key as `Authorization: Bearer pk_…`"));
        }
    };
    Ok(Caller::Key(Arc::new(key)))
}

/// The key that somebody logged in with, if that was not revoked since and the session has not ended.
async fn key_of(api: &Api, session: &Session) -> Result<ApiKey, Problem> {
    let found = api.store.key(session.key_id).await?.filter(|key| session.is_of(key, api.time.now()));
    found.ok_or_else(|| Problem::new(Code::Unauthenticated, "the session has ended; log in again"))
}

/// The key, if it is known and was not revoked.
pub(crate) async fn known_key(api: &Api, secret: &str) -> Result<ApiKey, Problem> {
    let hash = keyring::hash(secret);
    // Found by its hash, which tells nothing about the key; compared once more in a time that tells nothing either.
    let found = api.store.key_by_hash(&hash).await?.filter(|key| keyring::is_same(&key.hash, &hash));
    found.ok_or_else(unknown_key)
}

fn unknown_key() -> Problem {
    Problem::new(Code::Unauthenticated, "the API key is unknown or was revoked")
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
