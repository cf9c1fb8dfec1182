//! Memory that requests share: whoever finds too little of it left is told to come back.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What memory is counted in.
const UNIT_BYTES: usize = 1024;

/// A bounded amount of memory.
#[derive(Clone)]
pub(crate) struct Memory(Arc<Semaphore>);

/// A part of it; given back when it is dropped.
pub(crate) struct Held(OwnedSemaphorePermit);

impl Memory {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes / UNIT_BYTES)))
    }

    /// Takes a part, if enough is left.
    pub(crate) fn take(&self, bytes: usize) -> Option<Held> {
        Arc::clone(&self.0).try_acquire_many_owned(units(bytes)).ok().map(Held)
    }

    /// Takes a part as soon as enough is left, unless that takes too long.
    pub(crate) async fn wait_for(&self, bytes: usize, patience: Duration) -> Option<Held> {
        let taking = Arc::clone(&self.0).acquire_many_owned(units(bytes));
        tokio::time::timeout(patience, taking).await.ok()?.ok().map(Held)
    }
}

impl Held {
    /// Gives back all but `bytes`.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        let excess = self.0.num_permits().saturating_sub(units(bytes) as usize);
        drop(self.0.split(excess));
    }

    /// Adds a part of the same memory.
    pub(crate) fn add(&mut self, more: Self) {
        self.0.merge(more.0);
    }

    /// A text that holds its memory until the last of it was sent.
    pub(crate) fn with(mut self, text: Vec<u8>) -> Bytes {
        struct Text(Vec<u8>, #[expect(dead_code, reason = "given back when dropped")] Held);

        impl AsRef<[u8]> for Text {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }

        self.shrink_to(text.len());
        Bytes::from_owner(Text(text, self))
    }
}

fn units(bytes: usize) -> u32 {
    bytes.div_ceil(UNIT_BYTES).max(1).try_into().unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_held_is_given_back_bit_by_bit() {
        let memory = Memory::new(10 * UNIT_BYTES);
        let mut held = memory.take(10 * UNIT_BYTES).unwrap();
        assert!(memory.take(1).is_none());
        assert!(memory.wait_for(1, Duration::from_millis(1)).await.is_none());
        held.shrink_to(4 * UNIT_BYTES);
        held.add(memory.take(5 * UNIT_BYTES).unwrap());
        assert!(memory.take(UNIT_BYTES + 1).is_none());
        let text = held.with(vec![b'x'; 3 * UNIT_BYTES]);
        let copy = text.clone();
        drop(text);
        assert!(memory.take(8 * UNIT_BYTES).is_none(), "a copy still holds it");
        drop(memory.take(7 * UNIT_BYTES).unwrap());
        drop(copy);
        assert!(memory.take(10 * UNIT_BYTES).is_some());
    }
}
