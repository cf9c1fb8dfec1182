use std::fmt;
use std::sync::Arc;

use chrono::{DateTime, NaiveDate, NaiveDateTime, Utc};

use crate::engine::ZoneRules;

/// A time zone, with the rules that the service itself goes by. [`Context::zone`](crate::Context::zone) finds it.
#[derive(Clone)]
pub struct Zone(pub(crate) Arc<dyn ZoneRules>);

impl Zone {
    /// What clocks there show at an instant.
    pub fn local(&self, at: DateTime<Utc>) -> NaiveDateTime {
        self.0.local(at)
    }

    /// The date there at an instant.
    pub fn date(&self, at: DateTime<Utc>) -> NaiveDate {
        self.local(at).date()
    }

    /// The instant at which clocks there show this: the first of two, and the first after a gap.
    pub fn instant(&self, local: NaiveDateTime) -> DateTime<Utc> {
        self.0.instant(local)
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Zone")
    }
}
