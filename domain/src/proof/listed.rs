//! Instants that are listed one by one, up to a bound, and counted beyond it.

use chrono::{DateTime, TimeDelta, Utc};

/// How many instants are kept; the rest are counted.
const MOST: usize = 20_000;

/// Instants in order: the first ones, and how many there are in all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listed {
    /// How many there are.
    pub count: u64,
    /// The first of them.
    pub first: Vec<DateTime<Utc>>,
}

impl Listed {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn add(&mut self, at: DateTime<Utc>) {
        self.count += 1;
        if self.first.len() < MOST {
            self.first.push(at);
        }
    }

    pub(super) fn append(&mut self, other: &mut Self) {
        let room = MOST - self.first.len();
        self.first.extend(other.first.drain(..).take(room));
        self.count += std::mem::take(&mut other.count);
    }

    /// Takes out of both what lies within `reach` of each other, in order.
    pub(super) fn take_pairs(&mut self, other: &mut Self, reach: TimeDelta) -> Vec<(DateTime<Utc>, DateTime<Utc>)> {
        let mut pairs = Vec::new();
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        let (mut left, mut right) = (self.first.drain(..).peekable(), other.first.drain(..).peekable());
        while let (Some(a), Some(b)) = (left.peek().copied(), right.peek().copied()) {
            if (a - b).abs() <= reach {
                pairs.push((a, b));
                left.next();
                right.next();
            } else if a < b {
                ours.extend(left.next());
            } else {
                theirs.extend(right.next());
            }
        }
        ours.extend(left);
        theirs.extend(right);
        (self.first, other.first) = (ours, theirs);
        self.count -= pairs.len() as u64;
        other.count -= pairs.len() as u64;
        pairs
    }
}
