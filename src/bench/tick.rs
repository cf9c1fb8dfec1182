use anyhow::{Result, ensure};
use chrono::{DateTime, SubsecRound, TimeDelta, Utc};
use punctual_domain::fire::{DueSchedule, FireRules, decide};
use punctual_domain::store::{Lateness, Ticked};
use punctual_domain::time::ZoneDatabase;
use tokio::time::Instant;

use super::{Bench, Figures, Site, Value, waits};

/// How many schedules one transaction decides at the most.
const MOST: u32 = 1_000;
/// How late an instant may be found and still just fire.
const MISFIRE_THRESHOLD: TimeDelta = TimeDelta::seconds(30);
/// How far into a second its schedules are decided.
const AFTER: TimeDelta = TimeDelta::milliseconds(5);

/// What it costs to decide what is due in one second, beside schedules that are not due.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tick {
    pub(crate) schedules: u64,
    pub(crate) due: u64,
    pub(crate) seconds: u64,
}

impl Tick {
    pub(crate) async fn run(self, bench: &Bench) -> Result<Figures> {
        ensure!(self.schedules.is_multiple_of(self.due), "--schedules must be a multiple of --due");
        let values = bench.each_run(async |site| self.measure(site).await).await?;
        let config = format!("{} due={} seconds={}", bench.config(), self.due, self.seconds);
        Ok(Figures { workload: "tick", n: self.schedules, values, unit: "ms", config })
    }

    /// Ticks as a leader does, second by second, and measures each round.
    async fn measure(self, site: &Site<'_>) -> Result<Value> {
        let groups = self.schedules / self.due;
        let begin = site.store.now().await?.trunc_subsecs(0);
        let start_at = |i: u64| Some(begin - TimeDelta::seconds((i / self.due) as i64));
        site.write_schedules(self.schedules, groups * 1_000, start_at).await?;
        site.scratch.come_to_rest().await?;
        let rules = FireRules { zones: ZoneDatabase::current(None)?, misfire_threshold: MISFIRE_THRESHOLD };
        let decide = |due: &DueSchedule, now: DateTime<Utc>| decide(due, now, &rules).ok();
        // What became due while they were written.
        while site.store.tick(Lateness::Any, MOST, &decide).await?.schedules > 0 {}

        let mut rounds = Vec::new();
        site.bench.progress.begin(self.seconds);
        let mut second = site.store.now().await?.trunc_subsecs(0);
        for _ in 0..self.seconds {
            second += TimeDelta::seconds(1);
            let rest = second + AFTER - site.store.now().await?;
            tokio::time::sleep(rest.to_std().unwrap_or_default()).await;
            let begun_at = Instant::now();
            let Ticked { schedules, .. } = site.store.tick(Lateness::AtMost(MISFIRE_THRESHOLD), MOST, &decide).await?;
            site.store.next_tick_at().await?;
            rounds.push(begun_at.elapsed());
            site.bench.progress.reached(rounds.len() as u64);
            ensure!(schedules == self.due, "{schedules} schedules were due in one second");
        }
        Ok(waits(rounds))
    }
}
