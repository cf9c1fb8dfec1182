//! From local time to instants: gaps and folds named, and what to do about them.
//!
//! A clock change forward leaves a *gap*, local times that never were; one backward leaves a *fold*,
//! local times that come twice. [`resolve`] only says which it is. What fires is decided by the
//! policy of the schedule, or by the style of its expression where the policy is silent:
//!
//! | | gap | fold |
//! |---|---|---|
//! | cadence | skipped, unless a whole date would be lost | both |
//! | point | at the first instant after the gap | first |

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::cron::Style;
use super::wall::Wall;
use super::zone::{Span, Zone};

/// Which instants a local time stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// It comes once.
    Unique { at: DateTime<Utc> },
    /// It is skipped; `end` is the first instant after the gap.
    Gap { end: DateTime<Utc> },
    /// It comes twice.
    Fold { first: DateTime<Utc>, second: DateTime<Utc> },
}

/// What becomes of a local time that a clock change skips.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DstGap {
    /// It fires once, at the first instant after the gap.
    NextValid,
    /// It does not fire.
    Skip,
}

/// What becomes of a local time that a clock change repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DstFold {
    /// It fires the first time only.
    First,
    /// It fires both times.
    Both,
}

/// A schedule's own wishes about clock changes; `None` leaves it to the expression's style.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DstPolicy {
    pub gap: Option<DstGap>,
    pub fold: Option<DstFold>,
}

/// What to do with the times inside a gap, once style and policy are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GapRule {
    NextValid,
    Skip,
    /// Fires after the gap only for a date that would otherwise be lost.
    KeepDate,
}

impl DstPolicy {
    pub(super) fn gap_rule(self, style: Style) -> GapRule {
        match (self.gap, style) {
            (Some(DstGap::NextValid), _) | (None, Style::Point) => GapRule::NextValid,
            (Some(DstGap::Skip), _) => GapRule::Skip,
            (None, Style::Cadence) => GapRule::KeepDate,
        }
    }

    pub(super) fn fold_rule(self, style: Style) -> DstFold {
        self.fold.unwrap_or(match style {
            Style::Cadence => DstFold::Both,
            Style::Point => DstFold::First,
        })
    }
}

/// Farther than this from a clock change, nothing in local time is odd: offsets stay within a
/// little more than a day, so two of them differ by less.
pub(super) const NEIGHBOURHOOD: i64 = 52 * 3_600;

/// The first thing that happens to a local time as the clocks run.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reached {
    Unique { at: i64 },
    Gap { end: i64, until: Wall, from: Wall },
    Fold { first: i64, second: i64 },
}

/// Follows the clocks of a zone until they reach or jump over a local time.
///
/// Reaching is monotone: a later local time is never reached earlier, whatever the clocks do.
pub(super) fn reach(zone: &Zone, wall: Wall, known: &Span) -> Reached {
    let middle = wall.instant(known.offset);
    if known.start <= middle - NEIGHBOURHOOD && middle + NEIGHBOURHOOD < known.end {
        return Reached::Unique { at: middle };
    }
    let mut span = zone.span_at(wall.instant(0) - NEIGHBOURHOOD / 2);
    loop {
        let at = wall.instant(span.offset);
        if at < span.end {
            return match second_pass(zone, wall, &span) {
                Some(second) => Reached::Fold { first: at, second },
                None => Reached::Unique { at },
            };
        }
        let next = zone.span_at(span.end);
        let until = Wall::at(next.start, next.offset);
        if wall < until {
            return Reached::Gap { end: next.start, from: Wall::at(span.end, span.offset), until };
        }
        span = next;
    }
}

/// Finds a later instant at which the clocks show a local time again.
fn second_pass(zone: &Zone, wall: Wall, first: &Span) -> Option<i64> {
    let at = wall.instant(first.offset);
    let mut span = *first;
    while span.end < at + NEIGHBOURHOOD {
        span = zone.span_at(span.end);
        let again = wall.instant(span.offset);
        if (span.start..span.end).contains(&again) {
            return Some(again);
        }
    }
    None
}

pub(super) fn resolve(zone: &Zone, wall: Wall) -> Resolution {
    let known = zone.span_at(wall.instant(0));
    match reach(zone, wall, &known) {
        Reached::Unique { at } => Resolution::Unique { at: instant(at) },
        Reached::Gap { end, .. } => Resolution::Gap { end: instant(end) },
        Reached::Fold { first, second } => Resolution::Fold { first: instant(first), second: instant(second) },
    }
}

/// An instant from its seconds; those of a wall clock reading always fit.
pub(super) fn instant(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(seconds, 0).unwrap_or(DateTime::<Utc>::MAX_UTC)
}
