//! The numbers of the rows that claimed tasks stand in.
//!
//! Known from the claim, they spare the settle the way through the index of ids. They are a hint: SQLite gives the number
//! of a removed row to another one, so whoever uses them compares the id too, and whoever misses one goes by the id.

use std::collections::HashMap;
use std::sync::Mutex;

use punctual_domain::id::TaskId;

/// More than this many are forgotten all at once: tasks that end in other ways leave theirs behind.
const MOST: usize = 100_000;

#[derive(Default)]
pub(super) struct Lines(Mutex<HashMap<TaskId, i64>>);

impl Lines {
    pub(super) fn remember(&self, claimed: impl IntoIterator<Item = (TaskId, i64)>) {
        let mut lines = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        lines.extend(claimed);
        if lines.len() > MOST {
            lines.clear();
        }
    }

    /// The numbers of all of these, which are then forgotten; none if one is not known or stands there twice.
    pub(super) fn take(&self, ids: impl IntoIterator<Item = TaskId>) -> Option<Vec<i64>> {
        let mut lines = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        ids.into_iter().map(|id| lines.remove(&id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_taken_once_and_only_with_all_the_others() {
        let [first, second, unknown] = [TaskId::generate(), TaskId::generate(), TaskId::generate()];
        let lines = Lines::default();
        lines.remember([(first, 1), (second, 2)]);
        assert_eq!(lines.take([second, first]), Some(vec![2, 1]));
        assert_eq!(lines.take([first]), None);

        lines.remember([(first, 1), (second, 2)]);
        assert_eq!(lines.take([first, unknown]), None);
        assert_eq!(lines.take([second, second]), None);
    }

    #[test]
    fn what_was_left_behind_does_not_pile_up() {
        let lines = Lines::default();
        for line in 0..=MOST as i64 {
            lines.remember([(TaskId::generate(), line)]);
        }
        assert!(lines.0.lock().unwrap().is_empty());
    }
}
