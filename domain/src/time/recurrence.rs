//! When a schedule fires: the search for the next instant.
//!
//! The clocks of a zone *reach* each local time at one instant: when they first show it or first jump
//! past it. Reaching is monotone, so what lies ahead of `after` is exactly what is later than the
//! latest local time reached so far. Only the second pass of a fold goes back behind that mark.

use chrono::{DateTime, NaiveDateTime, TimeDelta, Utc};

use super::cron::Expression;
use super::interval::Interval;
use super::resolve::{DstFold, DstPolicy, GapRule, NEIGHBOURHOOD, Reached, instant, reach};
use super::wall::Wall;
use super::zone::{Span, Zone};

/// When a schedule fires: a cron expression read in a zone, or an interval.
#[derive(Debug, Clone, PartialEq)]
pub enum Recurrence {
    Cron { expression: Expression, zone: Zone, dst: DstPolicy },
    Interval(Interval),
}

/// One instant ahead and how it came about, for previews.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextFire {
    pub at: DateTime<Utc>,
    /// What the zone's clocks show at that instant; UTC for an interval.
    pub local: NaiveDateTime,
    pub offset_seconds: i32,
    pub note: Option<Note>,
}

/// What a clock change did to a fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Note {
    /// The local time asked for is skipped; this is the end of the gap.
    Gap,
    /// The local time comes twice.
    Fold,
}

/// The instants searched lie within these seconds: 9999-01-01 cut to what zone rules cover.
const LAST_INSTANT: i64 = 253_370_764_800;
const FIRST_INSTANT: i64 = -LAST_INSTANT;
/// After so many skipped gaps in a row the schedule is taken to fire in gaps only, that is never.
const MAX_SKIPPED_GAPS: usize = 500;

impl Recurrence {
    /// The first instant strictly after `after`, or none before the year 9999.
    pub fn next_after(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        match self {
            Self::Cron { expression, zone, dst } => {
                Search::new(expression, zone, *dst).next_after(after).map(|found| instant(found.at))
            }
            Self::Interval(interval) => interval.next_after(after),
        }
    }

    /// The instants strictly after `after`, in order.
    pub fn upcoming(&self, after: DateTime<Utc>) -> impl Iterator<Item = NextFire> {
        let mut after = after;
        std::iter::from_fn(move || {
            let next = self.next_fire(after)?;
            after = next.at;
            Some(next)
        })
    }

    fn next_fire(&self, after: DateTime<Utc>) -> Option<NextFire> {
        let (at, offset_seconds, note) = match self {
            Self::Cron { expression, zone, dst } => {
                let found = Search::new(expression, zone, *dst).next_after(after)?;
                let at = instant(found.at);
                (at, zone.offset_seconds_at(at), found.note)
            }
            Self::Interval(interval) => (interval.next_after(after)?, 0, None),
        };
        Some(NextFire {
            at,
            local: at.naive_utc() + TimeDelta::seconds(i64::from(offset_seconds)),
            offset_seconds,
            note,
        })
    }
}

struct Search<'a> {
    expression: &'a Expression,
    zone: &'a Zone,
    gap: GapRule,
    fold: DstFold,
}

struct Found {
    at: i64,
    note: Option<Note>,
}

impl<'a> Search<'a> {
    fn new(expression: &'a Expression, zone: &'a Zone, dst: DstPolicy) -> Self {
        let style = expression.style();
        Self { expression, zone, gap: dst.gap_rule(style), fold: dst.fold_rule(style) }
    }

    fn next_after(&self, after: DateTime<Utc>) -> Option<Found> {
        // A fraction of a second is dropped: matches fall on whole seconds, so the next one after
        // the whole second is also the next one after the fraction.
        let after = after.timestamp().max(FIRST_INSTANT);
        if after >= LAST_INSTANT {
            return None;
        }
        let here = self.zone.span_at(after);
        let mark = self.latest_reached(after, &here);
        let repeated = match self.fold {
            DstFold::Both => self.next_repeated(after, &here, mark),
            DstFold::First => None,
        };
        let ahead = self.next_ahead(mark, &here);
        [repeated, ahead].into_iter().flatten().min_by_key(|found| found.at).filter(|found| found.at <= LAST_INSTANT)
    }

    /// The latest local time that the clocks have shown up to an instant.
    fn latest_reached(&self, at: i64, here: &Span) -> Wall {
        let mut mark = Wall::at(at, here.offset);
        let mut start = here.start;
        while start > at - NEIGHBOURHOOD {
            let earlier = self.zone.span_at(start - 1);
            mark = mark.max(Wall::at(earlier.end - 1, earlier.offset));
            start = earlier.start;
        }
        mark
    }

    /// The first match that the clocks reach after having reached `mark`.
    fn next_ahead(&self, mark: Wall, here: &Span) -> Option<Found> {
        let mut wall = self.expression.next_wall(mark.next_second())?;
        for _ in 0..MAX_SKIPPED_GAPS {
            match reach(self.zone, wall, here) {
                Reached::Unique { at } => return Some(Found { at, note: None }),
                Reached::Fold { first, .. } => {
                    return Some(Found { at: first, note: Some(Note::Fold) });
                }
                Reached::Gap { end, from, until } => {
                    let fires = match self.gap {
                        GapRule::NextValid => true,
                        GapRule::Skip => false,
                        GapRule::KeepDate => self.is_date_lost(wall, from, until),
                    };
                    if fires {
                        return Some(Found { at: end, note: Some(Note::Gap) });
                    }
                    // What is left of this date in the gap shares its fate.
                    wall = self.expression.next_wall(until.min(wall.next_midnight()))?;
                }
            }
        }
        None
    }

    /// Whether no match of a date lies outside the gap `from..until`.
    fn is_date_lost(&self, wall: Wall, from: Wall, until: Wall) -> bool {
        let next_wall = |from| self.expression.next_wall(from);
        let before = next_wall(wall.midnight()).is_some_and(|first| first < from);
        let after = next_wall(until).is_some_and(|first| first < wall.next_midnight());
        !before && !after
    }

    /// The first match after `after` among local times that the clocks show again.
    fn next_repeated(&self, after: i64, here: &Span, mark: Wall) -> Option<Found> {
        let mut span = *here;
        loop {
            let from = Wall::at(span.start.max(after + 1), span.offset);
            if from <= mark {
                let wall = self.expression.next_wall(from)?;
                let at = wall.instant(span.offset);
                if wall <= mark && at < span.end {
                    return Some(Found { at, note: Some(Note::Fold) });
                }
            }
            if span.end > after + NEIGHBOURHOOD {
                return None;
            }
            span = self.zone.span_at(span.end);
        }
    }
}
