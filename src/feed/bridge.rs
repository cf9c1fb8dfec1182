//! The bridge: what happens goes on to the Redis stream `punctual:events`, so that listeners on other machines and in other
//! languages hear of it without asking Punctual.
//!
//! One node tells, the one that holds the bridge's leadership. Up to where it has told is kept in the database: after a
//! restart, or when Redis is back, it goes on from a little before. An event may so be told again, with the same id, and is never skipped.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use punctual_domain::id::NodeId;
use punctual_domain::store::Store;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, info};

use super::{End, Feed, Happening};
use crate::http::event_data;
use crate::redis::{NotNow, Redis};

/// Where events go to.
const STREAM: &str = "punctual:events";
/// How many it holds, about.
const MOST: usize = 10_000;
/// What the bridge's leadership and its place are called.
const NAME: &str = "events";
const PLACE: &str = "events_told_until";
/// How long to wait after Redis or the database did not answer.
const AFTER_ERROR: Duration = Duration::from_secs(1);
/// How often the place is written down.
const NOTE_EVERY: Duration = Duration::from_secs(1);

/// What a bridge stands on.
pub(crate) struct Bridge {
    pub(crate) feed: Feed,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) redis: Redis,
    pub(crate) node: NodeId,
    /// How long leadership lasts unless it is renewed.
    pub(crate) lease: Duration,
}

impl Bridge {
    /// Tells until the answer is dropped.
    pub(crate) fn start(self) -> AbortOnDropHandle<()> {
        AbortOnDropHandle::new(tokio::spawn(async move {
            let mut is_well = true;
            loop {
                let told = self.lead_and_tell().await;
                match &told {
                    Ok(()) if !is_well => info!("events go to Redis again"),
                    Err(error) if is_well => info!(%error, "events do not go to Redis"),
                    Err(error) => debug!(%error, "events still do not go to Redis"),
                    Ok(()) => {}
                }
                is_well = told.is_ok();
                sleep(if is_well { self.lease / 3 } else { AFTER_ERROR }).await;
            }
        }))
    }

    /// Lets another node tell at once.
    pub(crate) async fn resign(store: &dyn Store, node: NodeId) {
        // Whoever does not hear of it waits for the lease to end.
        let _ = store.resign(NAME, node).await;
    }

    async fn leads(&self) -> Result<bool, NotNow> {
        Ok(self.store.lead(NAME, self.node, self.lease).await?.owner == self.node)
    }

    /// Tells for as long as this node leads.
    async fn lead_and_tell(&self) -> Result<(), NotNow> {
        // Nothing is read for a Redis that is away.
        self.redis.ping().await?;
        if !self.leads().await? {
            return Ok(());
        }
        let mut renewed_at = Instant::now();
        let place = self.store.fact(PLACE).await?;
        let place = place.and_then(|micros| DateTime::from_timestamp_micros(micros.parse().ok()?));
        let Some(mut hearing) = self.feed.listen() else { return Ok(()) };
        let mut past = place.map(|place| hearing.past_since(place));
        let mut place = match place {
            Some(place) => place,
            None => self.store.now().await?,
        };
        let mut noted_at = None;
        loop {
            if renewed_at.elapsed() >= self.lease / 3 {
                if !self.leads().await? {
                    return Ok(());
                }
                renewed_at = Instant::now();
            }
            let happenings = match past.take() {
                Some(mut reading) => {
                    let page = hearing.catch_up(&mut reading).await?;
                    if !page.is_empty() {
                        past = Some(reading);
                    } else if hearing.is_overtaken() {
                        reading.go_back();
                        past = Some(reading);
                    }
                    page
                }
                None => match timeout(self.lease / 3, hearing.next()).await {
                    Ok(Ok(happenings)) => happenings,
                    // It goes on from its place.
                    Ok(Err(End::Overtaken | End::Closing)) => return Ok(()),
                    Err(_) => Vec::new(),
                },
            };
            self.tell(&happenings).await?;
            let latest = happenings.iter().map(|happening| happening.at).max();
            place = latest.map_or(place, |latest| latest.max(place));
            if noted_at.is_none_or(|at: Instant| at.elapsed() >= NOTE_EVERY) && (latest.is_some() || noted_at.is_none())
            {
                self.note(place).await?;
                noted_at = Some(Instant::now());
            }
        }
    }

    async fn tell(&self, happenings: &[Arc<Happening>]) -> Result<(), NotNow> {
        if happenings.is_empty() {
            return Ok(());
        }
        let mut pipeline = redis::pipe();
        for happening in happenings {
            pipeline.cmd("XADD").arg(STREAM).arg("MAXLEN").arg("~").arg(MOST).arg("*");
            pipeline.arg("event").arg(happening.name()).arg("id").arg(&happening.id);
            pipeline.arg("data").arg(event_data(happening)).ignore();
        }
        Ok(self.redis.ask_all::<()>(&pipeline).await?)
    }

    async fn note(&self, place: DateTime<Utc>) -> Result<(), NotNow> {
        Ok(self.store.note_fact(PLACE, &place.timestamp_micros().to_string()).await?)
    }
}
