//! The latest events, as many as there is room for.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use axum::body::Bytes;
use chrono::{DateTime, Utc};
use punctual_domain::event::{Event, MissedFire};
use punctual_domain::topic::Topic;

/// How many events wait for streams.
const MOST: usize = 10_000;
/// How much memory they may take.
const MOST_BYTES: usize = 32 * 1024 * 1024;
/// How many, and how much, a stream takes at a time.
const AT_A_TIME: usize = 100;
const BYTES_AT_A_TIME: usize = 256 * 1024;

/// One event, shared by all streams.
pub(crate) struct Happening {
    pub(crate) id: String,
    pub(crate) at: DateTime<Utc>,
    pub(crate) topic: Topic,
    pub(crate) what: What,
    /// As streams send it; written by the first that does.
    frame: OnceLock<Bytes>,
}

/// What happened.
pub(crate) enum What {
    /// To a task.
    Task(Box<Event>),
    /// To a schedule: it did not fire in time.
    Missed(MissedFire),
}

impl Happening {
    pub(crate) fn of_event(event: Event) -> Self {
        let (id, at, topic) = (event.id(), event.at, event.task.topic.clone());
        Self { id, at, topic, what: What::Task(Box::new(event)), frame: OnceLock::new() }
    }

    pub(crate) fn of_missed(missed: MissedFire) -> Self {
        let (id, at, topic) = (missed.id(), missed.noted_at, Topic::from_stored(missed.topic.as_str()));
        Self { id, at, topic, what: What::Missed(missed), frame: OnceLock::new() }
    }

    /// Its name in every stream.
    pub(crate) fn name(&self) -> &'static str {
        match &self.what {
            What::Task(event) => event.kind.name(),
            What::Missed(_) => MissedFire::NAME,
        }
    }

    /// The event as `write` writes it, which is asked once.
    pub(crate) fn frame(&self, write: impl FnOnce(&Self) -> Bytes) -> Bytes {
        self.frame.get_or_init(|| write(self)).clone()
    }

    /// About how much memory it takes, written and unwritten.
    pub(super) fn bytes(&self) -> usize {
        let What::Task(event) = &self.what else { return 2048 };
        let metadata: usize = event.task.metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
        let result = event.task.result.as_ref().map_or(0, |result| result.as_str().len());
        let error = event.task.error.as_ref().map_or(0, String::len);
        2 * (event.task.payload.as_str().len() + metadata + result + error) + 1024
    }
}

/// The latest events, each with a number that only grows.
#[derive(Default)]
pub(super) struct Ring {
    happenings: VecDeque<Arc<Happening>>,
    bytes: usize,
    /// The number of the first.
    begin: u64,
}

impl Ring {
    pub(super) fn push(&mut self, happening: Happening) {
        self.bytes += happening.bytes();
        self.happenings.push_back(Arc::new(happening));
        // The newest stays, however large it is.
        while self.happenings.len() > 1 && (self.happenings.len() > MOST || self.bytes > MOST_BYTES) {
            if let Some(oldest) = self.happenings.pop_front() {
                self.bytes -= oldest.bytes();
                self.begin += 1;
            }
        }
    }

    /// The number of the next one to come.
    pub(super) fn end(&self) -> u64 {
        self.begin + self.happenings.len() as u64
    }

    /// Some of those from number `next` on; `None` if that one is gone.
    pub(super) fn from(&self, next: u64) -> Option<Vec<Arc<Happening>>> {
        let mut room = BYTES_AT_A_TIME;
        let fits = |happening: &&Arc<Happening>| {
            let had_room = room > 0;
            room = room.saturating_sub(happening.bytes());
            had_room
        };
        Some(self.after(next)?.take(AT_A_TIME).take_while(fits).cloned().collect())
    }

    /// Whether who has come to number `next` will soon be overtaken.
    pub(super) fn is_about_to_overtake(&self, next: u64) -> bool {
        let Some(waiting) = self.after(next) else { return false };
        let (count, bytes) = waiting.fold((0, 0), |(count, bytes), happening| (count + 1, bytes + happening.bytes()));
        count > MOST / 2 || bytes > MOST_BYTES / 2
    }

    fn after(&self, next: u64) -> Option<impl Iterator<Item = &Arc<Happening>>> {
        let skip = usize::try_from(next.checked_sub(self.begin)?).ok()?;
        Some(self.happenings.range(skip.min(self.happenings.len())..))
    }

    /// The number of an event that is still there.
    pub(super) fn place_of(&self, id: &str) -> Option<u64> {
        let place = self.happenings.iter().rposition(|happening| happening.id == id)?;
        Some(self.begin + place as u64)
    }

    /// Forgets all; numbers go on.
    pub(super) fn clear(&mut self) {
        (self.begin, self.bytes) = (self.end(), 0);
        self.happenings.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_domain::event::EventKind;
    use punctual_domain::json::Json;
    use punctual_domain::task::NewTask;

    fn happening(payload_bytes: usize) -> Happening {
        let now: DateTime<Utc> = "2026-11-16T12:00:00Z".parse().unwrap();
        let mut new = NewTask::new("mail".parse().unwrap());
        new.payload = Json::from_stored(format!("\"{}\"", "x".repeat(payload_bytes)));
        let task = new.into_task(now, now);
        Happening::of_event(Event { kind: EventKind::Arrived, at: now, attempt: 1, task })
    }

    #[test]
    fn it_is_bounded_in_events_and_in_bytes() {
        for (payload_bytes, most) in [(0, MOST), (1_000_000, 16)] {
            let mut ring = Ring::default();
            for _ in 0..most + 5 {
                ring.push(happening(payload_bytes));
            }
            let held = ring.happenings.len();
            assert!(held <= most && held > most / 2, "{held} of {payload_bytes} bytes");
            assert!(ring.bytes <= MOST_BYTES);
            assert_eq!(ring.end(), most as u64 + 5);
            assert!(ring.from(0).is_none(), "the first is gone");
            assert_eq!(ring.from(ring.end()).unwrap().len(), 0);
        }
    }

    #[test]
    fn who_reads_from_a_place_gets_what_follows() {
        let mut ring = Ring::default();
        let ids: Vec<_> = (0..5).map(|_| happening(0)).map(|one| (one.id.clone(), ring.push(one)).0).collect();
        assert_eq!(ring.place_of(&ids[2]), Some(2));
        let following: Vec<_> = ring.from(3).unwrap().iter().map(|happening| happening.id.clone()).collect();
        assert_eq!(following, ids[3..]);
        ring.clear();
        assert_eq!((ring.end(), ring.place_of(&ids[2])), (5, None));
        assert!(ring.from(2).is_none(), "what is forgotten is not skipped in silence");
        assert_eq!(ring.from(5).unwrap().len(), 0);
    }
}
