//! The telegraph: what nodes tell each other through Redis, beside the database's own notifications or in their place where a
//! pooler swallows those. Hints, all of it: what gets lost is found by the next look.
//!
//! A message is a byte that names the version, and then [`postcard`]. What a later release says is not understood here, and
//! taken for the hint to look at everything.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use punctual_actors::Hints;
use punctual_domain::id::{NodeId, TaskId};
use punctual_domain::news::News;
use punctual_domain::store::{Store, StoreError};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, info};
use uuid::Uuid;

use crate::redis::Redis;
use crate::wake::pass_on;

const VERSION: u8 = 1;
/// The most cancelled tasks that one message names.
const MOST_CANCELLED: usize = 1_000;
/// The pause between two messages: all that happens meanwhile shares the next one.
const BETWEEN_MESSAGES: Duration = Duration::from_millis(10);
/// How long silence may last before the connection is made anew: a dead one is silent too.
const SILENCE: Duration = Duration::from_secs(30);
/// How long to wait after Redis did not answer.
const AFTER_ERROR: Duration = Duration::from_secs(1);

/// What is to be told, until somebody does.
#[derive(Clone, Default)]
pub(crate) struct Slip(Arc<(Mutex<News>, Notify)>);

impl Slip {
    /// Takes news down; whoever writes does not wait for anything.
    pub(crate) fn take_down(&self, news: &News) {
        let (waiting, asked) = &*self.0;
        waiting.lock().unwrap_or_else(PoisonError::into_inner).merge(news.clone());
        asked.notify_one();
    }

    async fn next(&self) -> News {
        let (waiting, asked) = &*self.0;
        asked.notified().await;
        std::mem::take(&mut *waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Sends what was taken down until it is dropped, and hears what others send.
pub(crate) struct Telegraph {
    redis: Redis,
    channel: String,
    node: NodeId,
    _sending: AbortOnDropHandle<()>,
}

impl Telegraph {
    /// Begins to send.
    ///
    /// # Errors
    /// When the store does not say which nodes belong together.
    pub(crate) async fn start(redis: Redis, slip: Slip, store: &dyn Store, node: NodeId) -> Result<Self, StoreError> {
        let channel = format!("punctual:news:{}", store.cluster_id().await?);
        let sending = tokio::spawn(send(redis.clone(), channel.clone(), slip, node));
        Ok(Self { redis, channel, node, _sending: AbortOnDropHandle::new(sending) })
    }

    /// Passes on what other nodes send, until the answer is dropped.
    pub(crate) fn hear(&self, hints: Hints) -> AbortOnDropHandle<()> {
        let (redis, channel, node) = (self.redis.clone(), self.channel.clone(), self.node);
        AbortOnDropHandle::new(tokio::spawn(async move {
            let mut hears = true;
            loop {
                match listen(&redis, &channel, node, &hints, &mut hears).await {
                    Ok(()) => {}
                    Err(error) => {
                        if std::mem::take(&mut hears) {
                            info!(%error, "other nodes are not heard through Redis");
                        }
                        sleep(AFTER_ERROR).await;
                    }
                }
            }
        }))
    }
}

async fn send(redis: Redis, channel: String, slip: Slip, node: NodeId) {
    loop {
        let mut news = slip.next().await;
        while !news.is_empty() {
            let rest = news.cancelled.split_off(news.cancelled.len().min(MOST_CANCELLED));
            let mut command = redis::cmd("PUBLISH");
            command.arg(&channel).arg(encode(node, &news));
            if let Err(error) = redis.ask::<i64>(&command).await {
                debug!(%error, "other nodes not told through Redis");
                break;
            }
            news = News::of_cancelled(rest);
        }
        sleep(BETWEEN_MESSAGES).await;
    }
}

/// Listens until nothing was heard for a while.
async fn listen(redis: &Redis, channel: &str, node: NodeId, hints: &Hints, hears: &mut bool) -> redis::RedisResult<()> {
    let mut messages = redis.subscribe(channel).await?;
    if !std::mem::replace(hears, true) {
        info!("other nodes are heard through Redis again");
        pass_on(&News::unheard(), hints);
    }
    while let Ok(heard) = timeout(SILENCE, messages.next()).await {
        let Some(message) = heard else { return Err((redis::ErrorKind::Io, "the connection was lost").into()) };
        match decode(message.get_payload_bytes()) {
            Heard::From(who, _) if who == node => {}
            Heard::From(_, news) => pass_on(&news, hints),
            Heard::Unknown => pass_on(&News::unheard(), hints),
        }
    }
    Ok(())
}

/// A message as it is sent.
#[derive(Serialize, Deserialize)]
struct Message {
    node: [u8; 16],
    tasks: bool,
    schedules: bool,
    topics: bool,
    leadership: bool,
    messages: bool,
    cancelled: Vec<[u8; 16]>,
}

#[derive(Debug, PartialEq)]
enum Heard {
    From(NodeId, News),
    /// Of another version, or not a message at all.
    Unknown,
}

fn encode(node: NodeId, news: &News) -> Vec<u8> {
    let message = Message {
        node: *node.0.as_bytes(),
        tasks: news.tasks,
        schedules: news.schedules,
        topics: news.topics,
        leadership: news.leadership,
        messages: news.messages,
        cancelled: news.cancelled.iter().map(|id| *id.0.as_bytes()).collect(),
    };
    // It fits into memory, so it can be written.
    postcard::to_extend(&message, vec![VERSION]).unwrap_or_default()
}

fn decode(bytes: &[u8]) -> Heard {
    let Some((&VERSION, rest)) = bytes.split_first() else { return Heard::Unknown };
    let Ok(message) = postcard::from_bytes::<Message>(rest) else { return Heard::Unknown };
    let Message { node, tasks, schedules, topics, leadership, messages, cancelled } = message;
    let cancelled = cancelled.into_iter().map(|id| TaskId(Uuid::from_bytes(id))).collect();
    Heard::From(NodeId(Uuid::from_bytes(node)), News { tasks, schedules, topics, leadership, messages, cancelled })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_survive_being_sent() {
        let node = NodeId::generate();
        let cancelled = vec![TaskId::generate(), TaskId::generate()];
        for news in [News::of_tasks(), News::of_topics(), News { cancelled, ..News::unheard() }, News::default()] {
            assert_eq!(decode(&encode(node, &news)), Heard::From(node, news));
        }
    }

    #[test]
    fn what_is_not_understood_is_a_hint_to_look() {
        let mut later = encode(NodeId::generate(), &News::of_tasks());
        later[0] = VERSION + 1;
        let mut short = encode(NodeId::generate(), &News::of_tasks());
        short.truncate(9);
        for bytes in [&b""[..], b"\x01", b"tasks", &later, &short] {
            assert_eq!(decode(bytes), Heard::Unknown, "{bytes:?}");
        }
    }

    #[tokio::test]
    async fn what_is_taken_down_is_heard_by_who_belongs_together() {
        let Ok(url) = std::env::var("TEST_REDIS_URL") else {
            assert!(std::env::var_os("CI").is_none(), "TEST_REDIS_URL is not set, and CI skips nothing");
            return eprintln!("skipped: TEST_REDIS_URL is not set");
        };
        let redis = Redis::new(&crate::config::Secret::url(url.as_str())).unwrap();
        let store = punctual_store::connect("sqlite::memory:", punctual_store::Options::default()).await.unwrap();
        let (slip, node) = (Slip::default(), NodeId::generate());
        let telegraph = Telegraph::start(redis.clone(), slip.clone(), &*store, node).await.unwrap();
        let mut messages = redis.subscribe(&telegraph.channel).await.unwrap();
        slip.take_down(&News::of_tasks());
        slip.take_down(&News::of_topics());
        let mut heard = News::default();
        while heard != (News { topics: true, ..News::of_tasks() }) {
            match decode(messages.next().await.unwrap().get_payload_bytes()) {
                Heard::From(who, news) if who == node => heard.merge(news),
                other => panic!("{other:?}"),
            }
        }
    }
}
