//! Schedules with a past: what the Ticker would have done, written straight into the database before the service opens it.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use punctual_domain::clock::{Clock, FakeClock};
use punctual_domain::fire::{DueSchedule, FireRules, decide};
use punctual_domain::schedule::{Definition, OverlapPolicy, Rhythm, Schedule};
use punctual_domain::store::{Lateness, Store};
use punctual_domain::time::ZoneDatabase;
use punctual_store::Options;

use crate::support::Database;

/// A node that ticked before the service was there, and moved its clock as it liked.
pub(crate) struct Bygone {
    store: Arc<dyn Store>,
    clock: FakeClock,
    zones: ZoneDatabase,
}

impl Bygone {
    /// Begins so long ago.
    pub(crate) async fn since(database: &Database, ago: TimeDelta) -> Self {
        let now = Utc::now() - ago;
        let clock = FakeClock::at(now - TimeDelta::nanoseconds(now.timestamp_subsec_nanos().into()));
        let options = Options { clock: Some(Arc::new(clock.clone())), ..Options::default() };
        let store = punctual_store::connect(&database.url, options).await.unwrap();
        Self { store, clock, zones: ZoneDatabase::bundled() }
    }

    pub(crate) fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    /// Writes a schedule whose tasks do not mind each other.
    pub(crate) async fn schedule(&self, name: &str, rhythm: Rhythm, zone: &str) -> Schedule {
        let mut definition = Definition::new(name, rhythm, zone, &"report".parse().unwrap());
        definition.overlap_policy = OverlapPolicy::Allow;
        let schedule = Schedule::new(definition, self.now(), &self.zones).unwrap();
        self.store.create_schedule(&schedule, None).await.unwrap();
        schedule
    }

    /// Edits a schedule, as the API does.
    pub(crate) async fn edit(&self, name: &str, change: impl FnOnce(&mut Schedule)) {
        let mut schedule = self.store.schedule_by_name(name).await.unwrap().unwrap();
        change(&mut schedule);
        schedule.plan(self.now(), &self.zones).unwrap();
        self.store.update_schedule(&schedule, None).await.unwrap();
    }

    /// Decides every instant as it comes, for so long.
    pub(crate) async fn work(&self, length: TimeDelta) {
        let until = self.now() + length;
        while let Some(next) = self.store.next_tick_at().await.unwrap().fire_at.filter(|next| *next <= until) {
            self.clock.advance_to(next);
            self.tick().await;
        }
        self.clock.advance_to(until);
    }

    /// Lets the time pass, and nobody looks.
    pub(crate) fn sleep(&self, length: TimeDelta) {
        self.clock.advance(length);
    }

    pub(crate) async fn tick(&self) {
        let rules = FireRules { zones: self.zones.clone(), misfire_threshold: TimeDelta::seconds(30) };
        let decide = |due: &DueSchedule, now| decide(due, now, &rules).ok();
        self.store.tick(Lateness::Any, 1000, &decide).await.unwrap();
    }

    /// Leaves the database to the service.
    pub(crate) async fn close(self) {
        self.store.close().await.unwrap();
    }
}
