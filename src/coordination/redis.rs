//! The leader holds a key in Redis.
//!
//! Redis decides as long as it answers. The moment it does not, this node does not lead; when it has not answered for one
//! heartbeat, the row in the store decides, until Redis answers again. Whoever leads by Redis holds the row too if it is
//! free, so that a Redis that goes away, for all nodes or for some, leaves the lead where it is.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::coordination::{Coordination, CoordinationError, Standing};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::Terms;
use super::row::InStore;
use crate::redis::Redis;

/// Takes or renews the key, if it is free or ours; 0 if we have it then, else how many milliseconds the other has it for.
const LEAD: &str = "
    local owner = redis.call('GET', KEYS[1])
    if owner == false or owner == ARGV[1] then
        redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
        return 0
    end
    return math.max(redis.call('PTTL', KEYS[1]), 1)";
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
        match self.redis.run(LEAD, &[&self.key], &[&node, &lease]).await {
            Ok(left) => {
                let row_decided = self.answered();
                if row_decided {
                    info!("Redis decides again who leads");
                }
                let leads = left == 0;
                if leads {
                    if let Err(error) = self.row.lead().await {
                        debug!(%error, "the row of the leader was not renewed");
                    }
                } else if row_decided && let Err(error) = self.row.resign().await {
                    debug!(%error, "the row of the leader was not given up");
                }
                Ok(if leads {
                    Standing::Leads(self.terms.lease)
                } else {
                    Standing::Follows(Duration::from_millis(left.unsigned_abs()).min(self.terms.lease))
                })
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
        let (keys, arguments) = ([self.key.as_str()], [node.as_str()]);
        let (key, row) = tokio::join!(self.redis.run(RESIGN, &keys, &arguments), self.row.resign());
        if let Err(error) = key {
            debug!(%error, "the key of the leader was not removed");
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use punctual_domain::id::NodeId;
    use punctual_domain::store::Store;
    use tokio::io::copy_bidirectional;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::watch;

    use super::*;
    use crate::config::Secret;

    /// A Redis that can be taken away: the way to it goes through here.
    struct Way {
        url: String,
        open: watch::Sender<bool>,
    }

    impl Way {
        /// `None` without a server for tests.
        async fn open() -> Option<Self> {
            let Ok(server) = std::env::var("TEST_REDIS_URL") else {
                assert!(std::env::var_os("CI").is_none(), "TEST_REDIS_URL is not set, and CI skips nothing");
                eprintln!("skipped: TEST_REDIS_URL is not set");
                return None;
            };
            let server = server.trim_start_matches("redis://").trim_end_matches('/').to_owned();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("redis://{}/", listener.local_addr().unwrap());
            let (open, is_open) = watch::channel(true);
            tokio::spawn(async move {
                while let Ok((mut near, _)) = listener.accept().await {
                    let (server, mut is_open) = (server.clone(), is_open.clone());
                    tokio::spawn(async move {
                        if *is_open.borrow() {
                            let mut far = TcpStream::connect(server).await.unwrap();
                            tokio::select! {
                                _ = copy_bidirectional(&mut near, &mut far) => {}
                                _ = is_open.wait_for(|is_open| !is_open) => {}
                            }
                        }
                    });
                }
            });
            Some(Self { url, open })
        }

        fn node(&self, store: &Arc<dyn Store>, cluster_id: &str, terms: Terms) -> InRedis {
            let row = InStore { store: Arc::clone(store), node: NodeId::generate(), lease: terms.lease };
            InRedis::new(Redis::new(&Secret::url(self.url.as_str())).unwrap(), cluster_id, row, terms)
        }
    }

    async fn store() -> Arc<dyn Store> {
        punctual_store::connect("sqlite::memory:", punctual_store::Options::default()).await.unwrap()
    }

    /// Asks until the node stands so.
    async fn until(node: &InRedis, will_do: impl Fn(Standing) -> bool) {
        while !node.lead().await.is_ok_and(&will_do) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Checks that it follows, for no longer than another leads.
    async fn follows(node: &InRedis) {
        match node.lead().await {
            Ok(Standing::Follows(left)) => assert!(!left.is_zero() && left <= node.terms.lease, "{left:?}"),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn one_leads_until_it_resigns_or_its_lease_ends() {
        let Some(way) = Way::open().await else { return };
        let store = store().await;
        let cluster_id = store.cluster_id().await.unwrap();
        let long = Terms { lease: Duration::from_secs(60), heartbeat: Duration::from_secs(20) };
        let short = Terms { lease: Duration::from_millis(100), heartbeat: Duration::from_millis(30) };
        let (first, second) = (way.node(&store, &cluster_id, long), way.node(&store, &cluster_id, short));
        for _ in 0..3 {
            assert_eq!(first.lead().await, Ok(Standing::Leads(long.lease)));
            follows(&second).await;
        }
        // Nobody resigns for another.
        second.resign().await.unwrap();
        follows(&second).await;
        first.resign().await.unwrap();
        assert_eq!(second.lead().await, Ok(Standing::Leads(short.lease)));
        // The second is never heard of again.
        until(&first, Standing::leads).await;
        // Another store's nodes have their own leader.
        assert_eq!(way.node(&store, "another", long).lead().await, Ok(Standing::Leads(long.lease)));
    }

    #[tokio::test]
    async fn the_row_decides_while_redis_is_away_and_no_longer() {
        let Some(way) = Way::open().await else { return };
        let store = store().await;
        let cluster_id = store.cluster_id().await.unwrap();
        let terms = Terms { lease: Duration::from_secs(60), heartbeat: Duration::from_millis(1_500) };
        let leads = Standing::Leads(terms.lease);
        let (first, second) = (way.node(&store, &cluster_id, terms), way.node(&store, &cluster_id, terms));
        assert_eq!(first.lead().await, Ok(leads));
        follows(&second).await;

        way.open.send_replace(false);
        // At once nobody leads; after a heartbeat whoever led does again, because it has held the row too.
        assert!(first.lead().await.is_err());
        until(&first, Standing::leads).await;
        until(&second, |standing| !standing.leads()).await;
        // One that starts now is not kept waiting.
        follows(&way.node(&store, &cluster_id, terms)).await;
        first.resign().await.unwrap();
        assert_eq!(second.lead().await, Ok(leads));

        // The key of the first is still there, for as long as its lease: it is the leader by Redis.
        way.open.send_replace(true);
        until(&second, |standing| !standing.leads()).await;
        until(&first, Standing::leads).await;
    }

    #[tokio::test]
    async fn without_redis_from_the_start_the_row_decides() {
        let store = store().await;
        let terms = Terms { lease: Duration::from_secs(60), heartbeat: Duration::from_secs(20) };
        let (open, _) = watch::channel(false);
        let nowhere = Way { url: "redis://127.0.0.1:1/".into(), open };
        let (first, second) = (nowhere.node(&store, "c", terms), nowhere.node(&store, "c", terms));
        assert_eq!(first.lead().await, Ok(Standing::Leads(terms.lease)));
        follows(&second).await;
    }
}
