//! The table of proofs: what a schedule was, what its ledger says, and what follows from both.

use super::*;
use crate::fire::{Disposition, DueSchedule, FireRules, Tick, decide, decide_before_deletion};
use crate::schedule::{Definition, MisfirePolicy, OverlapPolicy, Rhythm};

const THRESHOLD: TimeDelta = TimeDelta::seconds(30);

fn at(text: &str) -> DateTime<Utc> {
    let text = if text.contains('T') { text.to_owned() } else { format!("2026-11-16T{text}Z") };
    text.parse().unwrap()
}

/// A schedule with a past, a ledger, and a question about them.
struct World {
    zones: ZoneDatabase,
    now: DateTime<Utc>,
    schedule: Option<Schedule>,
    history: Vec<(DateTime<Utc>, Option<Schedule>)>,
    ledger: Vec<LedgerRow>,
    pruned_before: Option<DateTime<Utc>>,
    several_tasks: Vec<(DateTime<Utc>, u64)>,
}

impl World {
    fn new(created_at: &str, rhythm: Rhythm, zone: &str, change: impl FnOnce(&mut Definition)) -> Self {
        let zones = ZoneDatabase::bundled();
        let mut definition = Definition::new("nightly", rhythm, zone, &"report".parse().unwrap());
        definition.overlap_policy = OverlapPolicy::Allow;
        change(&mut definition);
        let now = at(created_at);
        let schedule = Schedule::new(definition, now, &zones).unwrap();
        let history = vec![(now, Some(schedule.clone()))];
        let (ledger, several_tasks) = (Vec::new(), Vec::new());
        Self { zones, now, schedule: Some(schedule), history, ledger, pruned_before: None, several_tasks }
    }

    /// Every minute, made at 11:59:30.
    fn every_minute() -> Self {
        Self::new("11:59:30", Rhythm::Cron("* * * * *".into()), "UTC", |_| {})
    }

    /// Lets the time pass until `until` while the Ticker is at work, and decides each instant as it comes.
    fn work(mut self, until: &str) -> Self {
        let until = at(until);
        let due_at = |schedule: &Schedule| if schedule.enabled { schedule.next_fire_at } else { schedule.paused_until };
        while let Some(next) = self.schedule.as_ref().and_then(due_at).filter(|next| *next <= until) {
            self.now = self.now.max(next);
            self.tick();
        }
        self.now = until;
        self
    }

    /// Lets the time pass without anybody at work.
    fn sleep(mut self, until: &str) -> Self {
        self.now = at(until);
        self
    }

    /// What the Ticker does when it looks.
    fn tick(&mut self) {
        self.tick_by(decide);
    }

    fn tick_by(&mut self, decide: fn(&DueSchedule, DateTime<Utc>, &FireRules) -> Result<Tick, ScheduleError>) {
        let Some(schedule) = &mut self.schedule else { return };
        let rules = FireRules { zones: self.zones.clone(), misfire_threshold: THRESHOLD };
        let due = DueSchedule { schedule: schedule.clone(), live_tasks: 0, calendars: Vec::new(), topic: None };
        let tick = decide(&due, self.now, &rules).unwrap();
        for fire in tick.fires {
            let (reason, until, count) = match fire.disposition {
                Disposition::Fired(_) => {
                    schedule.fires_made += 1;
                    (None, None, 1)
                }
                Disposition::Skipped { reason, until, count } => (Some(reason), Some(until), count),
            };
            let (scheduled_at, fired_at, tz_version) = (fire.scheduled_at, self.now, tick.tz_version.clone());
            let kind = FireKind::Schedule;
            self.ledger.push(LedgerRow { kind, scheduled_at, fired_at, reason, until, count, tz_version });
        }
        schedule.next_fire_at = tick.next_fire_at;
        schedule.fired_through = Some(tick.fired_through);
        if tick.resumes {
            (schedule.enabled, schedule.paused_until) = (true, None);
            schedule.version += 1;
            self.history.push((self.now, self.schedule.clone()));
        }
    }

    /// Edits the schedule, as the API does it: planned a moment before it is written.
    fn edit(mut self, change: impl FnOnce(&mut Schedule)) -> Self {
        let schedule = self.schedule.as_mut().unwrap();
        change(schedule);
        schedule.plan(self.now, &self.zones).unwrap();
        schedule.version += 1;
        self.now += TimeDelta::milliseconds(3);
        self.history.push((self.now, self.schedule.clone()));
        self
    }

    fn pause(self) -> Self {
        self.edit(|schedule| schedule.enabled = false)
    }

    fn resume(self) -> Self {
        self.edit(|schedule| schedule.enabled = true)
    }

    /// Deletes the schedule, as the API does it: what is due is decided first.
    fn delete(mut self) -> Self {
        while self.schedule.as_ref().is_some_and(|schedule| schedule.is_due(self.now)) {
            self.tick_by(decide_before_deletion);
        }
        self.vanish()
    }

    /// Deletes the schedule, whatever is due.
    fn vanish(mut self) -> Self {
        self.schedule = None;
        self.history.push((self.now, None));
        self
    }

    /// Removes the rows of these instants.
    fn lose(mut self, instants: &[&str]) -> Self {
        let lost: Vec<_> = instants.iter().map(|text| at(text)).collect();
        self.ledger.retain(|row| !lost.contains(&row.scheduled_at));
        self
    }

    fn add(mut self, kind: FireKind, scheduled_at: &str) -> Self {
        let (scheduled_at, fired_at, tz_version) = (at(scheduled_at), self.now, self.zones.version().to_owned());
        let (reason, until, count) = (None, None, 1);
        self.ledger.push(LedgerRow { kind, scheduled_at, fired_at, reason, until, count, tz_version });
        self.ledger.sort_by_key(|row| row.scheduled_at);
        self
    }

    fn prove(&self, from: &str, to: &str) -> Proof {
        let question = Question {
            history: &self.history,
            current: self.schedule.as_ref(),
            from: at(from),
            to: at(to).min(self.now),
            now: self.now,
            pruned_before: self.pruned_before,
            misfire_threshold: THRESHOLD,
            zones: &self.zones,
            several_tasks: &self.several_tasks,
        };
        let mut prover = Prover::new(question).unwrap();
        let mut rows: Vec<_> = self.ledger.iter().filter(|row| row.scheduled_at < question.to).collect();
        // As the store hands them out: from the last row before what is asked about.
        let first = rows.iter().rposition(|row| row.scheduled_at < question.from).unwrap_or(0);
        rows.drain(..first).for_each(drop);
        for row in rows {
            while !prover.walk(Some(row.scheduled_at), 3) {}
            prover.observe(row.clone());
        }
        while !prover.walk(None, 3) {}
        let proof = prover.finish();
        let accounted_for = proof.fired
            + proof.skipped_in_all()
            + proof.filled
            + proof.missing.count
            + proof.pending
            + proof.overtaken
            + proof.moved.len() as u64
            + proof.pruned;
        assert_eq!(proof.expected, accounted_for, "{proof:?}");
        proof
    }
}

/// What a proof says, in one line.
fn says(proof: &Proof) -> String {
    let clock = |listed: &Listed| listed.first.iter().map(|at| at.format("%H:%M:%S").to_string()).collect::<Vec<_>>();
    let mut parts = vec![format!("expected {} fired {}", proof.expected, proof.fired)];
    parts.extend(proof.skipped.iter().map(|(reason, count)| format!("{reason} {count}")));
    for (name, count) in [
        ("filled", proof.filled),
        ("late", proof.late),
        ("pending", proof.pending),
        ("overtaken", proof.overtaken),
        ("pruned", proof.pruned),
        ("manual", proof.manual),
        ("backfilled", proof.backfilled),
        ("moved", proof.moved.len() as u64),
    ] {
        if count > 0 {
            parts.push(format!("{name} {count}"));
        }
    }
    for (name, listed) in [
        ("missing", &proof.missing),
        ("double", &proof.double),
        ("unexpected", &proof.unexpected),
        ("miscounted", &proof.miscounted),
    ] {
        if !listed.is_empty() {
            parts.push(format!("{name} {}", clock(listed).join(",")));
        }
    }
    parts.join(" ")
}

fn check(world: &World, from: &str, to: &str, expected: &str) {
    let proof = world.prove(from, to);
    assert_eq!(says(&proof), expected);
    let says_it_fails = ["missing", "double", "unexpected", "miscounted"].iter().any(|word| expected.contains(word));
    assert_eq!(proof.holds(), !says_it_fails);
}

#[test]
fn what_fired_in_time_is_proven() {
    let world = World::every_minute().work("12:10:00");
    check(&world, "12:00:00", "12:10:00", "expected 10 fired 10");
    check(&world, "00:00:00", "23:00:00", "expected 10 fired 10");
    check(&world, "12:02:00", "12:02:01", "expected 1 fired 1");
    check(&world, "12:02:01", "12:03:00", "expected 0 fired 0");
    check(&world, "10:00:00", "11:00:00", "expected 0 fired 0");
}

#[test]
fn a_row_that_is_gone_is_missing_even_if_it_is_fresh() {
    let world = World::every_minute().work("12:10:00").lose(&["12:00:00", "12:05:00", "12:09:00"]).sleep("12:10:05");
    check(&world, "12:00:00", "12:10:05", "expected 11 fired 8 missing 12:00:00,12:05:00,12:09:00");
}

#[test]
fn what_is_due_now_is_pending_and_what_nobody_decides_is_missing() {
    let world = World::every_minute().work("12:04:30").sleep("12:05:20");
    check(&world, "12:00:00", "12:06:00", "expected 6 fired 5 pending 1");
    let world = world.sleep("12:06:20");
    check(&world, "12:00:00", "13:00:00", "expected 7 fired 5 pending 1 missing 12:05:00");
}

#[test]
fn a_late_fire_is_fired_and_late() {
    let mut world = World::every_minute().work("12:01:30").sleep("12:02:02");
    world.tick();
    check(&world, "12:00:00", "12:03:00", "expected 3 fired 3 late 1");
    assert_eq!(world.prove("12:00:00", "12:03:00").max_lag, TimeDelta::seconds(2));
}

#[test]
fn an_outage_ends_in_runs_of_skipped_instants() {
    let mut world = World::every_minute().work("12:01:30").sleep("12:10:40");
    world.tick();
    assert_eq!(world.ledger.len(), 4, "a run is one row: {:?}", world.ledger);
    check(&world, "12:00:00", "12:10:40", "expected 11 fired 3 coalesced 8 late 1");
    // A run that begins before what is asked about covers what lies in it.
    check(&world, "12:05:00", "12:07:00", "expected 2 fired 0 coalesced 2");
    check(&world, "12:09:00", "12:10:40", "expected 2 fired 1 coalesced 1 late 1");
}

#[test]
fn a_run_that_counts_too_few_is_told() {
    let mut world = World::every_minute().work("12:01:30").sleep("12:10:40");
    world.tick();
    world.ledger[2].count = 7;
    check(&world, "12:00:00", "12:10:40", "expected 11 fired 3 coalesced 8 late 1 miscounted 12:02:00");
}

#[test]
fn policies_of_missed_instants_are_reasons() {
    for (policy, window, expected) in [
        (MisfirePolicy::Skip, 86_400, "expected 11 fired 2 misfire 9"),
        (MisfirePolicy::FireAll, 86_400, "expected 11 fired 11 late 9"),
        (MisfirePolicy::FireOnce, 120, "expected 11 fired 3 coalesced 1 window 7 late 1"),
    ] {
        let mut world = World::new("11:59:30", Rhythm::Cron("* * * * *".into()), "UTC", |definition| {
            definition.misfire_policy = policy;
            definition.misfire_window_seconds = window;
        });
        world = world.work("12:01:30").sleep("12:10:40");
        world.tick();
        check(&world, "12:00:00", "12:10:40", expected);
    }
}

#[test]
fn nothing_is_due_while_it_is_paused() {
    let world = World::every_minute().work("12:02:30").pause().work("12:07:10").resume().work("12:10:00");
    check(&world, "12:00:00", "12:10:00", "expected 5 fired 5");
    let fired_while_paused = world.add(FireKind::Schedule, "12:05:00");
    check(&fired_while_paused, "12:00:00", "12:10:00", "expected 5 fired 5 unexpected 12:05:00");
}

#[test]
fn a_pause_that_ends_by_itself_is_due_again_from_then_on() {
    let until = |schedule: &mut Schedule| {
        schedule.enabled = false;
        schedule.paused_until = Some(at("12:05:00"));
    };
    // The instant of the end itself fires.
    let in_time = World::every_minute().work("12:02:30").edit(until).work("12:10:00");
    check(&in_time, "12:00:00", "12:10:00", "expected 8 fired 8");
    check(&in_time.lose(&["12:05:00"]), "12:00:00", "12:10:00", "expected 8 fired 7 missing 12:05:00");

    // Seen late, what passed meanwhile is decided like anything else that is late.
    let mut seen_late = World::every_minute().work("12:02:30").edit(until).sleep("12:08:20");
    seen_late.tick();
    check(&seen_late.work("12:10:00"), "12:00:00", "12:10:00", "expected 8 fired 6 coalesced 2 late 2");

    // Nobody looked, and somebody resumed it by hand.
    let by_hand = |schedule: &mut Schedule| (schedule.enabled, schedule.paused_until) = (true, None);
    let forgotten = World::every_minute().work("12:02:30").edit(until).sleep("12:08:20").edit(by_hand).work("12:10:00");
    check(&forgotten, "12:00:00", "12:10:00", "expected 8 fired 4 overtaken 1 missing 12:05:00,12:06:00,12:07:00");
}

#[test]
fn an_edit_changes_what_is_due_from_then_on_and_never_before() {
    let rhythm = |text: &str| {
        let rhythm = Rhythm::Cron(text.into());
        move |schedule: &mut Schedule| schedule.definition.rhythm = rhythm
    };
    let world = World::every_minute().work("12:02:30").edit(rhythm("*/2 * * * *")).work("12:10:30");
    check(&world, "12:00:00", "12:10:30", "expected 7 fired 7");
    let world = world.edit(rhythm("* * * * *")).work("12:12:30");
    check(&world, "12:00:00", "12:12:30", "expected 9 fired 9");
    check(
        &world.lose(&["12:08:00", "12:11:00"]),
        "12:00:00",
        "12:12:30",
        "expected 9 fired 7 missing 12:08:00,12:11:00",
    );
}

#[test]
fn an_edit_at_the_instant_itself_leaves_nothing_open() {
    // Decided before the edit; overtaken by it; and kept by it, as one is that leaves the next instant as it is.
    let nothing = |_: &mut Schedule| {};
    let decided = World::every_minute().work("12:02:00").edit(nothing).work("12:04:00");
    check(&decided, "12:00:00", "12:04:00", "expected 4 fired 4");
    let overtaken = World::every_minute().work("12:01:30").sleep("12:02:00").edit(nothing).work("12:04:00");
    check(&overtaken, "12:00:00", "12:04:00", "expected 4 fired 3 overtaken 1");
    let mut kept = World::every_minute().work("12:01:30").sleep("12:02:00");
    kept.now += TimeDelta::milliseconds(3);
    kept.history.push((kept.now, kept.schedule.clone()));
    kept.tick();
    check(&kept.work("12:04:00"), "12:00:00", "12:04:00", "expected 4 fired 4");
    // A minute is no moment any more: somebody's fire was lost by that edit.
    let lost = World::every_minute().work("12:01:30").sleep("12:03:20").edit(nothing).work("12:04:00");
    check(&lost, "12:00:00", "12:04:00", "expected 4 fired 2 overtaken 1 missing 12:02:00");
}

#[test]
fn the_clock_that_planned_may_be_a_little_ahead_or_behind() {
    for shift_ms in [-900, -1, 0, 1, 900] {
        let mut world = World::new("12:00:00.500", Rhythm::Every(1000), "UTC", |_| {});
        world.history[0].0 += TimeDelta::milliseconds(shift_ms);
        check(&world.work("12:00:10"), "12:00:00", "12:00:10", "expected 9 fired 9");
    }
}

#[test]
fn a_deleted_schedule_is_proven_up_to_its_end() {
    let world = World::every_minute().work("12:03:30").delete().sleep("12:10:00");
    check(&world, "12:00:00", "12:10:00", "expected 4 fired 4");
    check(&world.lose(&["12:02:00"]), "12:00:00", "12:10:00", "expected 4 fired 3 missing 12:02:00");
    let due = World::every_minute().work("12:03:30").sleep("12:04:01").delete();
    check(&due, "12:00:00", "12:10:00", "expected 5 fired 5");
    let behind = World::every_minute().work("12:03:30").sleep("12:10:40").delete();
    check(&behind, "12:00:00", "12:20:00", "expected 11 fired 5 coalesced 6 late 1");
    let behind = |policy| {
        let world = World::new("11:59:30", Rhythm::Cron("* * * * *".into()), "UTC", |definition| {
            definition.misfire_policy = policy;
        });
        world.work("12:03:30").sleep("12:10:40").delete().sleep("12:30:00")
    };
    for policy in [MisfirePolicy::Skip, MisfirePolicy::FireAll] {
        check(&behind(policy), "12:00:00", "12:20:00", "expected 11 fired 4 misfire 7");
    }
    let lost = behind(MisfirePolicy::FireAll).lose(&["12:04:00"]);
    assert_eq!(lost.prove("12:00:00", "12:20:00").missing.count, 7);
}

#[test]
fn what_a_deletion_passed_over_is_missing_unless_it_had_just_come() {
    let overtaken = World::every_minute().work("12:03:30").sleep("12:04:01").vanish();
    check(&overtaken, "12:00:00", "12:10:00", "expected 5 fired 4 overtaken 1");
    let passed_over = World::every_minute().work("12:03:30").sleep("12:05:01").vanish();
    check(&passed_over, "12:00:00", "12:10:00", "expected 6 fired 4 overtaken 1 missing 12:04:00");
}

#[test]
fn beginning_end_and_number_of_fires_bound_what_is_due() {
    let bounded = |change: fn(&mut Definition)| {
        World::new("11:59:30", Rhythm::Cron("* * * * *".into()), "UTC", change).work("12:30:00")
    };
    let world = bounded(|definition| {
        definition.start_at = Some(at("12:05:00"));
        definition.end_at = Some(at("12:10:00"));
    });
    check(&world, "12:00:00", "12:30:00", "expected 5 fired 5");
    let world = bounded(|definition| definition.max_fires = Some(3));
    check(&world, "12:00:00", "12:30:00", "expected 3 fired 3");
    check(&world.lose(&["12:01:00"]), "12:00:00", "12:30:00", "expected 3 fired 2 missing 12:01:00");
    let deleted = bounded(|definition| definition.max_fires = Some(3)).delete();
    assert_eq!(deleted.prove("12:00:00", "12:30:00").missing.count, 0);
}

#[test]
fn what_was_pruned_cannot_be_proven() {
    let mut world = World::every_minute().work("12:10:00").lose(&["12:00:00", "12:01:00", "12:02:00", "12:06:00"]);
    world.pruned_before = Some(at("12:03:00"));
    check(&world, "12:00:00", "12:10:00", "expected 10 fired 6 pruned 3 missing 12:06:00");
}

#[test]
fn what_somebody_triggers_or_fills_in_is_counted_apart() {
    let world = World::every_minute().work("12:02:30").pause().sleep("12:05:30").resume().work("12:08:00");
    let world = world.add(FireKind::Manual, "12:03:17").add(FireKind::Backfill, "12:04:00");
    check(&world, "12:00:00", "12:08:00", "expected 5 fired 5 manual 1 backfilled 1");
    let filled = world.lose(&["12:07:00"]).add(FireKind::Backfill, "12:07:00");
    check(&filled, "12:00:00", "12:08:00", "expected 5 fired 4 filled 1 manual 1 backfilled 2");
    let triggered_at_the_instant = World::every_minute().work("12:03:00").add(FireKind::Manual, "12:02:00");
    check(&triggered_at_the_instant, "12:00:00", "12:03:00", "expected 3 fired 3 manual 1");
}

#[test]
fn skipped_instants_may_be_filled_in() {
    let mut world = World::every_minute().work("12:01:30").sleep("12:10:40");
    world.tick();
    let world = world.add(FireKind::Backfill, "12:02:00").add(FireKind::Backfill, "12:05:00");
    check(&world, "12:00:00", "12:10:40", "expected 11 fired 3 coalesced 8 late 1 backfilled 2");
}

#[test]
fn two_tasks_of_one_instant_are_double() {
    let world = World::every_minute().work("12:05:00").add(FireKind::Backfill, "12:02:00");
    check(&world, "12:00:00", "12:05:00", "expected 5 fired 5 backfilled 1 double 12:02:00");

    let mut world = World::every_minute().work("12:05:00").add(FireKind::Manual, "12:01:00");
    world.several_tasks = vec![(at("12:01:00"), 2), (at("12:03:00"), 2), (at("12:03:30"), 2), (at("13:00:00"), 2)];
    check(&world, "12:00:00", "12:05:00", "expected 5 fired 5 manual 1 double 12:03:00,12:03:30");
}

#[test]
fn an_instant_that_was_skipped_and_fired_is_double() {
    let mut world = World::every_minute().work("12:01:30").sleep("12:10:40");
    world.tick();
    let world = world.add(FireKind::Schedule, "12:04:00");
    assert_eq!(world.prove("12:00:00", "12:10:40").double.first, [at("12:04:00")]);
}

#[test]
fn clock_changes_are_part_of_what_is_due() {
    // New York: 02:30 does not exist on 8 March, 01:30 comes twice on 1 November.
    for (expression, from, to, expected) in [
        ("30 2 * * *", "2026-03-07T00:00:00Z", "2026-03-10T00:00:00Z", "expected 3 fired 3"),
        ("30 1 * * *", "2026-10-31T00:00:00Z", "2026-11-03T00:00:00Z", "expected 3 fired 3"),
        ("*/30 1 * * *", "2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z", "expected 4 fired 4"),
        ("*/30 2 * * *", "2026-03-08T00:00:00Z", "2026-03-09T00:00:00Z", "expected 1 fired 1"),
    ] {
        let world = World::new(from, Rhythm::Cron(expression.into()), "America/New_York", |_| {}).work(to);
        check(&world, from, to, expected);
    }
}

#[test]
fn jitter_moves_tasks_and_not_instants() {
    let rhythm = Rhythm::Cron("* * * * *".into());
    let world = World::new("11:59:30", rhythm, "UTC", |definition| definition.jitter_seconds = 50).work("12:05:00");
    check(&world, "12:00:00", "12:05:00", "expected 5 fired 5");
}

#[test]
fn instants_of_other_zone_data_were_moved_and_are_not_missing() {
    let rhythm = Rhythm::Cron("30 8 * * *".into());
    let from = "2026-11-10T00:00:00Z";
    let mut world = World::new(from, rhythm, "America/Edmonton", |_| {}).work("2026-11-15T00:00:00Z");
    for row in &mut world.ledger[..3] {
        row.tz_version = "2025b".into();
        row.scheduled_at += TimeDelta::hours(1);
    }
    let proof = world.prove(from, "2026-11-15T00:00:00Z");
    assert_eq!(says(&proof), "expected 5 fired 2 moved 3");
    assert_eq!(proof.moved[0], (at("2026-11-10T14:30:00Z"), at("2026-11-10T15:30:00Z")));
    assert!(proof.holds());
    // Of the same zone data it would be a fire that should not have been.
    for row in &mut world.ledger[..3] {
        row.tz_version = world.zones.version().into();
    }
    let proof = world.prove(from, "2026-11-15T00:00:00Z");
    assert_eq!((proof.missing.count, proof.unexpected.count, proof.holds()), (3, 3, false));
}

#[test]
fn very_many_missing_instants_are_counted_and_the_first_are_listed() {
    let world = World::new("2026-11-16T00:00:00Z", Rhythm::Every(1000), "UTC", |_| {}).sleep("12:00:00");
    let proof = world.prove("00:00:00", "12:00:00");
    assert_eq!((proof.missing.count, proof.missing.first.len(), proof.pending), (43_169, 20_000, 30));
    assert_eq!(proof.missing.first[0], at("00:00:01"));
}
