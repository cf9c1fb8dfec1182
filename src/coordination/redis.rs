//! The leader holds a key in Redis.
//!
//! Redis decides as long as it answers. The moment it does not, this node does not lead; when it has not answered for one
//! heartbeat, the row in the store decides, until Redis answers again. Whoever leads by Redis holds the row too if it is
//! free, so that a Redis that goes away, for all nodes or for some, leaves the lead where it is.

use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use punctual_domain::coordination::{Coordination, CoordinationError, Standing};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::Terms;
use super::row::InStore;
use crate::redis::Redis;

/// Takes or renews the key, if it is free or ours; 1 if we have it then.
const LEAD: &str = "
    local owner = redis.call('GET', KEYS[1])
    if owner == false or owner == ARGV[1] then
        redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
        return 1
    end
    return 0";
/// Removes the key, if it is ours.
const RESIGN: &str = "
    if redis.call('GET', KEYS[1]) == ARGV[1] then
        return redis.call('DEL', KEYS[1])
    end
    return 0";

pub(super) struct InRedis {
    redis: Redis,
    /// Several stores may share a Redis.
    key: String,
    row: InStore,
    terms: Terms,
    heard: Mutex<Heard>,
}

/// What was heard of Redis.
struct Heard {
    /// When it last answered; `None` if it never has.
    answered_at: Option<Instant>,
    /// Whether the row decides meanwhile.
    row_decides: bool,
}

impl InRedis {
    pub(super) fn new(redis: Redis, cluster_id: &str, row: InStore, terms: Terms) -> Self {
        let heard = Mutex::new(Heard { answered_at: None, row_decides: false });
        Self { redis, key: format!("punctual:leader:{cluster_id}"), row, terms, heard }
    }

    /// Notes an answer; whether the row had decided before.
    fn answered(&self) -> bool {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.answered_at = Some(Instant::now());
        std::mem::take(&mut heard.row_decides)
    }

    /// Notes silence; whether the row decides now, and whether that is new.
    fn silent(&self) -> (bool, bool) {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let decides = heard.answered_at.is_none_or(|at| at.elapsed() >= self.terms.heartbeat);
        let is_new = decides && !std::mem::replace(&mut heard.row_decides, decides);
        (decides, is_new)
    }
}

#[async_trait]
impl Coordination for InRedis {
    async fn lead(&self) -> Result<Standing, CoordinationError> {
        let (node, lease) = (self.row.node.to_string(), self.terms.lease.as_millis().to_string());
        match self.redis.run(LEAD, &self.key, &[&node, &lease]).await {
            Ok(has_key) => {
                let row_decided = self.answered();
                if row_decided {
                    info!("Redis decides again who leads");
                }
                let leads = has_key == 1;
                if leads {
                    if let Err(error) = self.row.lead().await {
                        debug!(%error, "the row of the leader was not renewed");
                    }
                } else if row_decided && let Err(error) = self.row.resign().await {
                    debug!(%error, "the row of the leader was not given up");
                }
                Ok(if leads { Standing::Leads(self.terms.lease) } else { Standing::Follows })
            }
            Err(error) => {
                let (row_decides, is_new) = self.silent();
                if is_new {
                    warn!(%error, "Redis does not answer: the database decides who leads");
                }
                if row_decides {
                    self.row.lead().await
                } else {
                    Err(CoordinationError(format!("Redis does not answer: {error}")))
                }
            }
        }
    }

    async fn resign(&self) -> Result<(), CoordinationError> {
        let node = self.row.node.to_string();
        let arguments = [node.as_str()];
        let (key, row) = tokio::join!(self.redis.run(RESIGN, &self.key, &arguments), self.row.resign());
        if let Err(error) = key {
            debug!(%error, "the key of the leader was not removed");
        }
        row
    }
}
