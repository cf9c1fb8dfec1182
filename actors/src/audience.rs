//! Who hears of attempts that begin: the plugins' listeners.
//!
//! On route `event` they are the work: [`Audience::hear`] awaits all of them, and the first that fails fails the attempt. On
//! every other route they are told beside the attempt. There each listener has a line of its own, bounded in arrivals
//! and in bytes, that a task of its own hears one by one: a listener that panics, hangs or is slow keeps nobody waiting
//! but itself. What finds a line full is dropped, counted, and logged once until the line moves again.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use punctual_domain::topic::{Topic, TopicPattern};
use punctual_sdk::engine::{Overstay, watched};
use punctual_sdk::{Arrival, Attempt, Context, Listener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;

use crate::attempt::panic_message;

/// How many arrivals may wait for one listener.
const LINE: usize = 1_024;
/// How much memory they may take: enough for a few of the largest payloads.
const LINE_BYTES: u32 = 16 * 1024 * 1024;
/// How long a listener may take beside an attempt.
const PATIENCE: Duration = Duration::from_secs(30);

/// A listener and the topics it wants to hear of.
#[derive(Clone)]
pub(crate) struct Seat {
    pub(crate) topics: TopicPattern,
    pub(crate) plugin: &'static str,
    pub(crate) listener: Arc<dyn Listener>,
    pub(crate) context: Context,
}

/// All listeners of this node.
pub(crate) struct Audience {
    seats: Vec<(Seat, Line)>,
}

impl Audience {
    /// Gives each listener its line; `None` if there is nobody.
    pub(crate) fn of(seats: Vec<Seat>) -> Option<Arc<Self>> {
        if seats.is_empty() {
            return None;
        }
        let seats = seats.into_iter().map(|seat| (seat.clone(), Line::to(seat))).collect();
        Some(Arc::new(Self { seats }))
    }

    /// Tells of an attempt, and waits for nobody.
    pub(crate) fn tell(&self, topic: &Topic, attempt: &Attempt) {
        let mut arrival: Option<Arrival> = None;
        for (_, line) in self.seats.iter().filter(|(seat, _)| seat.topics.matches(topic)) {
            line.tell(arrival.get_or_insert_with(|| Arrival::of(attempt, Context::default())));
        }
    }

    /// Tells of an attempt, and waits for all.
    ///
    /// # Errors
    /// The first listener's that failed; all were told.
    ///
    /// # Panics
    /// When a listener does, after all were told.
    pub(crate) async fn hear(&self, topic: &Topic, attempt: &Attempt) -> Result<(), String> {
        let arrival = Arrival::of(attempt, Context::default());
        let wanted = self.seats.iter().filter(|(seat, _)| seat.topics.matches(topic));
        let heard = join_all(wanted.map(|(seat, _)| AssertUnwindSafe(seat.hear(arrival.clone())).catch_unwind())).await;
        heard.into_iter().try_for_each(|heard| heard.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
}

impl Seat {
    async fn hear(&self, arrival: Arrival) -> Result<(), String> {
        let (context, overstay) = watched(&self.context);
        // A listener may panic before it has made its future.
        let hearing = async { self.listener.arrived(Arrival { context, ..arrival }).await };
        tokio::select! {
            heard = hearing => heard.map_err(|error| error.to_string()),
            () = overstay.happened() => Err(Overstay::message()),
        }
    }
}

/// The line of arrivals that wait for one listener.
struct Line {
    told: mpsc::Sender<(Arrival, OwnedSemaphorePermit)>,
    room: Arc<Semaphore>,
    /// Whether the last one found it full.
    is_full: AtomicBool,
    plugin: &'static str,
}

impl Line {
    fn to(seat: Seat) -> Self {
        let (told, waiting) = mpsc::channel(LINE);
        let plugin = seat.plugin;
        tokio::spawn(hear_one_by_one(seat, waiting));
        Self { told, room: Arc::new(Semaphore::new(LINE_BYTES as usize)), is_full: AtomicBool::new(false), plugin }
    }

    fn tell(&self, arrival: &Arrival) {
        let room = self.room.clone().try_acquire_many_owned(size(arrival)).ok();
        let told = room.is_some_and(|room| self.told.try_send((arrival.clone(), room)).is_ok());
        if !told {
            metrics::counter!("punctual_arrivals_dropped_total", "plugin" => self.plugin).increment(1);
        }
        let was_full = self.is_full.swap(!told, Ordering::Relaxed);
        if !told && !was_full {
            tracing::warn!(plugin = self.plugin, topic = arrival.topic, "a listener is too slow and misses arrivals");
        }
    }
}

/// About how much memory an arrival takes.
fn size(arrival: &Arrival) -> u32 {
    let metadata: usize = arrival.metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
    u32::try_from(arrival.payload.get().len() + metadata + 512).unwrap_or(u32::MAX)
}

/// Ends when the audience has.
async fn hear_one_by_one(seat: Seat, mut waiting: mpsc::Receiver<(Arrival, OwnedSemaphorePermit)>) {
    while let Some((arrival, _room)) = waiting.recv().await {
        let (task_id, topic) = (arrival.task_id, arrival.topic.clone());
        let heard = timeout(PATIENCE, AssertUnwindSafe(seat.hear(arrival)).catch_unwind()).await;
        let error = match heard {
            Ok(Ok(Ok(()))) => continue,
            Ok(Ok(Err(error))) => error,
            Ok(Err(panic)) => format!("panicked: {}", panic_message(&*panic)),
            Err(_) => format!("did not end within {PATIENCE:?}"),
        };
        tracing::warn!(plugin = seat.plugin, %task_id, topic, error, "listener failed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_sdk::Error;

    fn seat(listener: impl Listener + 'static) -> Seat {
        let topics = TopicPattern::from_stored("mail.*");
        Seat { topics, plugin: "test", listener: Arc::new(listener), context: Context::default() }
    }

    #[tokio::test]
    async fn a_line_is_bounded_in_arrivals_and_in_bytes() {
        let topic: Topic = "mail.send".parse().unwrap();
        let small = Attempt::sample("mail.send", "1");
        let large = Attempt::sample("mail.send", &format!("\"{}\"", "x".repeat(1_000_000)));
        for (attempt, most) in [(small, LINE + 1), (large, 16)] {
            let audience = Audience::of(vec![seat(|_| std::future::pending::<Result<(), Error>>())]).unwrap();
            let (_, line) = &audience.seats[0];
            for _ in 0..2 * LINE {
                audience.tell(&topic, &attempt);
            }
            let waiting = LINE - line.told.capacity();
            assert!(line.is_full.load(Ordering::Relaxed) && waiting <= most, "{waiting}");
        }
    }

    #[tokio::test]
    async fn all_are_told_even_if_the_first_fails() {
        let (heard, mut told) = mpsc::unbounded_channel();
        let tells = move |arrival: Arrival| {
            let heard = heard.clone();
            async move { Ok(heard.send(arrival.attempt)?) }
        };
        let fails = |_| async { Err("on purpose".into()) };
        let audience = Audience::of(vec![seat(fails), seat(tells)]).unwrap();
        let attempt = Attempt::sample("mail.send", "{}");
        let heard = audience.hear(&"mail.send".parse().unwrap(), &attempt).await;
        assert_eq!((heard, told.recv().await), (Err("on purpose".to_owned()), Some(1)));
        // Nobody asked for this one.
        assert_eq!(audience.hear(&"mailbox".parse().unwrap(), &attempt).await, Ok(()));
    }
}
