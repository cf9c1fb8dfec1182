//! Time: cron expressions, intervals, time zones, and the next instant at which a schedule fires.
//!
//! - [`Expression`] is read strictly and searched in local time, as if clocks never changed.
//! - [`ZoneDatabase`] is the newest release of the tz database at hand; a [`Zone`] is one entry of it.
//! - [`Resolution`] names what a local time is in a zone: unique, in a gap, or in a fold.
//! - [`Recurrence`] puts them together and applies the rule for clock changes ([`DstPolicy`]).
//!
//! Answers are strictly after the instant asked about and strictly increasing. The search is pure;
//! only [`ZoneDatabase::from_folder`] and the zones it hands out read files.

mod cron;
mod field;
mod interval;
mod recurrence;
mod resolve;
mod suggestion;
mod wall;
mod zone;
mod zone_database;
mod zone_diff;

pub use cron::{Expression, ExpressionError, Style};
pub use interval::{Interval, IntervalError};
pub use recurrence::{NextFire, Note, Recurrence};
pub use resolve::{DstFold, DstGap, DstPolicy, Resolution};
pub use zone::{ClockChange, Zone};
pub use zone_database::{ZoneDatabase, ZoneDatabaseError, ZoneError, ZoneSource, ZoneVersion, ZoneVersionError};
pub use zone_diff::{Moved, Pair, ZoneDiff};
