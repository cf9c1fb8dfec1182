//! The courier: takes a signed call to a URL that somebody else chose, and to nowhere that it must not go.
//!
//! Every URL is checked as it is written, whatever address it spells; a name is looked up here and nowhere else, all
//! addresses it stands for are checked, and the connection goes to one of those: nobody can answer differently in between.
//! Redirects are not followed, and proxies are not used. At most so many calls go to one host at a time; whoever waits too
//! long for a place is told so, and has called nobody.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use punctual_domain::clock::Clock;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Client, Response, StatusCode, Url};
use tokio::sync::Semaphore;

use super::{address, signature};
use crate::config::Network;
use crate::retry_after::retry_after;

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a connection is kept that nobody uses.
const IDLE: Duration = Duration::from_secs(30);
/// How many calls go to one host at a time, whatever topics they are for.
const PER_HOST: usize = 32;
/// How much of an answer is kept, and how long its body may take: what counts is known before.
const KEPT: usize = 16 * 1024;
const BODY: Duration = Duration::from_secs(10);

/// Makes signed calls.
#[derive(Clone)]
pub(crate) struct Courier {
    client: Client,
    allowed: Arc<[Network]>,
    clock: Arc<dyn Clock>,
    /// The places at each host that somebody is calling.
    hosts: Arc<Mutex<HashMap<String, Weak<Semaphore>>>>,
}

/// A call.
pub(crate) struct Parcel<'a> {
    pub(crate) url: &'a str,
    pub(crate) secrets: &'a [String],
    /// The same on every try.
    pub(crate) id: String,
    pub(crate) body: String,
    pub(crate) headers: HeaderMap,
}

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// There was no place at the host in time: nobody was called.
    Busy,
    /// A sentence that says why.
    Failed(String),
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => write!(f, "{PER_HOST} other calls are under way to that host"),
            Self::Failed(error) => f.write_str(error),
        }
    }
}

/// What was answered.
pub(crate) struct Answered {
    pub(crate) status: StatusCode,
    /// When to call again, if it was said.
    pub(crate) retry_after: Option<Duration>,
    /// The beginning of the body, as text.
    pub(crate) body: String,
    /// There was more of it.
    pub(crate) is_cut: bool,
}

/// Looks up the addresses of a name.
type LookUp = Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync>;

impl Courier {
    /// One that may go to the open internet, and to these networks.
    ///
    /// # Errors
    /// When there can be no HTTP client.
    pub(crate) fn new(allowed: &[Network], clock: Arc<dyn Clock>) -> Result<Self, String> {
        Self::looking_up(allowed, clock, Arc::new(|name| look_up(name).boxed()))
    }

    fn looking_up(allowed: &[Network], clock: Arc<dyn Clock>, look_up: LookUp) -> Result<Self, String> {
        let allowed: Arc<[Network]> = allowed.into();
        crate::tls::provide();
        let client = Client::builder()
            .dns_resolver(Arc::new(Guard { allowed: allowed.clone(), look_up }))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT)
            .pool_idle_timeout(IDLE)
            .user_agent(concat!("punctual/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { client, allowed, clock, hosts: Arc::default() })
    }

    /// Makes a call, and answers what came of it. It waits so long for a place at the host; the call then takes as long as
    /// the other side does, but for the body of the answer.
    ///
    /// # Errors
    /// Why there is no answer.
    pub(crate) async fn take(&self, parcel: Parcel<'_>, patience: Duration) -> Result<Answered, Unanswered> {
        // Also what was fine when it was written: the configuration may have changed.
        let url = address::check_url(parcel.url, &self.allowed);
        let url = url.map_err(|error| Unanswered::Failed(format!("the URL {error}")))?;
        let places = self.places(&url);
        let Ok(Ok(_place)) = tokio::time::timeout(patience, places.acquire()).await else {
            return Err(Unanswered::Busy);
        };
        let now = self.clock.now();
        let signature = signature::sign(parcel.secrets, &parcel.id, now.timestamp(), &parcel.body);
        let response = self
            .client
            .post(url)
            .headers(parcel.headers)
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", parcel.id)
            .header("webhook-timestamp", now.timestamp())
            .header("webhook-signature", signature)
            .body(parcel.body)
            .send()
            .await
            // The URL may carry what nobody else should know.
            .map_err(|error| Unanswered::Failed(reasons(&error.without_url())))?;
        let (status, retry_after) = (response.status(), retry_after(response.headers(), self.clock.now()));
        let (body, is_cut) = beginning(response).await;
        Ok(Answered { status, retry_after, body, is_cut })
    }

    /// The places at the host of a URL, shared by all who call there now.
    fn places(&self, url: &Url) -> Arc<Semaphore> {
        let host =
            format!("{}:{}", url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or_default());
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(places) = hosts.get(&host).and_then(Weak::upgrade) {
            return places;
        }
        hosts.retain(|_, places| places.strong_count() > 0);
        let places = Arc::new(Semaphore::new(PER_HOST));
        hosts.insert(host, Arc::downgrade(&places));
        places
    }
}

/// Looks names up, and lets none through that leads astray.
struct Guard {
    allowed: Arc<[Network]>,
    look_up: LookUp,
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let (allowed, looking_up) = (self.allowed.clone(), (self.look_up)(name.as_str().to_owned()));
        Box::pin(async move {
            let addresses = looking_up.await?;
            for address in &addresses {
                // One bad address among good ones is reason enough: whoever says so decides which is taken.
                address::check_address(*address, &allowed).map_err(|error| format!("{} {error}", name.as_str()))?;
            }
            let addresses: Addrs = Box::new(addresses.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(addresses)
        })
    }
}

async fn look_up(name: String) -> io::Result<Vec<IpAddr>> {
    Ok(tokio::net::lookup_host((name, 0)).await?.map(|address| address.ip()).collect())
}

/// The beginning of a body, and whether there was more. What does not come in time is not waited for.
async fn beginning(mut response: Response) -> (String, bool) {
    let mut bytes = Vec::new();
    let reading = async {
        while bytes.len() <= KEPT
            && let Ok(Some(chunk)) = response.chunk().await
        {
            bytes.extend_from_slice(&chunk);
        }
    };
    let is_late = tokio::time::timeout(BODY, reading).await.is_err();
    let is_cut = is_late || bytes.len() > KEPT;
    bytes.truncate(KEPT);
    // Both databases can hold it, and it does not grow much as JSON.
    let is_odd = |letter: char| letter.is_control() && !matches!(letter, '\n' | '\r' | '\t');
    (String::from_utf8_lossy(&bytes).replace(is_odd, "\u{fffd}"), is_cut)
}

/// What went wrong, and why: the client's own errors name only the first part.
pub(crate) fn reasons(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    std::iter::once(error.to_string()).chain(causes.map(ToString::to_string)).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
#[path = "courier_tests.rs"]
mod tests;
