//! Why a schedule did not fire, and why a fire made no task.

use chrono::{DateTime, TimeDelta, Utc};

use super::{Cause, NodeFacts, Reason, from_now, instant};
use crate::fire::{Fire, FireKind, SkipReason};
use crate::node::Leadership;
use crate::schedule::{MisfirePolicy, Schedule};

/// What is known about a schedule.
#[derive(Debug, Clone)]
pub struct ScheduleFacts<'a> {
    /// The schedule; `None` if it was deleted.
    pub schedule: Option<&'a Schedule>,
    /// When it was deleted.
    pub deleted_at: Option<DateTime<Utc>>,
    /// Why its definition cannot be understood with today's zone data.
    pub not_understood: Option<String>,
    /// Its last fire of its own.
    pub last_fire: Option<&'a Fire>,
    /// Its last fires of every kind, newest first.
    pub recent_fires: &'a [Fire],
    /// Who decides what is due, as far as the store knows; `None` where that is not kept in the store.
    pub leadership: Option<Leadership>,
    /// Whether several nodes can share the store, so that one has to lead.
    pub needs_leader: bool,
    /// The nodes that were heard of lately.
    pub nodes: &'a [NodeFacts],
    /// How long an instant may stay undecided.
    pub misfire_threshold: TimeDelta,
    /// The store's present instant.
    pub now: DateTime<Utc>,
}

/// Why a schedule does not fire, or when it does, the reason that counts most first.
pub fn why_schedule(facts: &ScheduleFacts<'_>) -> Vec<Reason> {
    let Some(schedule) = facts.schedule else {
        let when = facts.deleted_at.map(instant).unwrap_or_default();
        return vec![Reason::new(Cause::Deleted, format!("it was deleted at {when}; its fires stay until retention"))];
    };
    let mut reasons = Vec::new();
    if let Some(reason) = &facts.not_understood {
        let message = format!("its definition cannot be understood: {reason}; edit it");
        reasons.push(Reason::new(Cause::NotUnderstood, message));
    }
    if !schedule.enabled {
        reasons.push(paused(schedule, facts.now));
    } else {
        match schedule.next_fire_at {
            None => reasons.push(done(schedule)),
            Some(at) if at > facts.now => {
                reasons.extend(paused_nodes(facts.nodes));
                let message = format!("its next instant is {}", from_now(at, facts.now));
                reasons.push(Reason::new(Cause::NotDue, message));
            }
            Some(at) => reasons.extend(overdue(at, facts)),
        }
    }
    reasons.extend(facts.last_fire.map(|fire| last(fire, schedule, facts.now)));
    reasons.extend(skipped_lately(facts, schedule));
    reasons
}

/// What else was skipped lately, by why it was, the newest first.
fn skipped_lately(facts: &ScheduleFacts<'_>, schedule: &Schedule) -> Vec<Reason> {
    let told = facts.last_fire.map(|fire| fire.id);
    let mut groups: Vec<Vec<&Fire>> = Vec::new();
    for fire in facts.recent_fires.iter().filter(|fire| fire.reason.is_some() && Some(fire.id) != told) {
        match groups.iter_mut().find(|group| group[0].reason == fire.reason) {
            Some(group) => group.push(fire),
            None => groups.push(vec![fire]),
        }
    }
    let tell = |group: Vec<&Fire>| {
        let (code, why) = cause(&group, Some(schedule))?;
        let count: u64 = group.iter().map(|fire| fire.count).sum();
        let first = group.iter().map(|fire| fire.scheduled_at).min()?;
        let last = group.iter().map(|fire| fire.until.unwrap_or(fire.scheduled_at)).max()?;
        let what = match count {
            1 => format!("the instant {} was skipped", from_now(first, facts.now)),
            _ => format!("{count} instants between {} and {} were skipped", instant(first), from_now(last, facts.now)),
        };
        Some(Reason::new(code, format!("lately {what}: {why}")))
    };
    groups.into_iter().filter_map(tell).collect()
}

/// Why a fire made no task; `None` if it made one.
pub fn why_fire(fire: &Fire, schedule: Option<&Schedule>) -> Option<Reason> {
    let (code, why) = cause(&[fire], schedule)?;
    let what = match (fire.count, fire.until) {
        (2.., Some(until)) => format!(
            "the {} instants from {} to {} were skipped",
            fire.count,
            instant(fire.scheduled_at),
            instant(until)
        ),
        _ => format!("the instant {} was skipped", instant(fire.scheduled_at)),
    };
    Some(Reason::new(code, format!("{what} at {}: {why}", instant(fire.fired_at))))
}

/// The cause for which fires were skipped, all for the same reason, and the same in words.
fn cause(fires: &[&Fire], schedule: Option<&Schedule>) -> Option<(Cause, String)> {
    let reason = fires.first()?.reason?;
    let found = found(fires)?;
    Some(match reason {
        SkipReason::Overlap => {
            let is_late = fires.iter().any(|fire| fire.fired_at - fire.scheduled_at > SURELY_LATE);
            let earlier = match is_late {
                true => format!("{found}, and a task of an earlier fire, perhaps one that was found with it,"),
                false => "a task of an earlier fire".to_owned(),
            };
            (Cause::Overlap, format!("{earlier} had not ended, and its overlapPolicy is skip"))
        }
        SkipReason::Coalesced => (
            Cause::Coalesced,
            format!("{found}, and its misfirePolicy is fire_once: a later one fired for all of them"),
        ),
        SkipReason::Misfire => (Cause::Misfire, format!("{found}, and its misfirePolicy is {}", MisfireName(schedule))),
        SkipReason::Window => (
            Cause::Window,
            format!(
                "{found}, which is more than its misfireWindowSeconds{}",
                schedule.map_or_else(String::new, |schedule| {
                    format!(" ({})", schedule.definition.misfire_window_seconds)
                })
            ),
        ),
        SkipReason::Calendar => (
            Cause::Calendar,
            match schedule.map(|schedule| schedule.definition.exclude_calendars.join(", ")) {
                Some(names) if !names.is_empty() => format!("a calendar excludes its day ({names})"),
                _ => "a calendar excluded its day".to_owned(),
            },
        ),
    })
}

/// What is decided later than this was not decided in the course of things.
const SURELY_LATE: TimeDelta = TimeDelta::seconds(2);

/// How late the instants of fires were found.
fn found(fires: &[&Fire]) -> Option<String> {
    let least = fires.iter().map(|fire| fire.fired_at - fire.until.unwrap_or(fire.scheduled_at)).min()?;
    let most = fires.iter().map(|fire| fire.fired_at - fire.scheduled_at).max()?;
    let (least, most) = (super::duration(least), super::duration(most));
    let found = if fires.iter().map(|fire| fire.count).sum::<u64>() > 1 { "they were found" } else { "it was found" };
    Some(if least == most { format!("{found} {most} late") } else { format!("{found} {least} to {most} late") })
}

/// The policy as it is now, or as it must have been.
struct MisfireName<'a>(Option<&'a Schedule>);

impl std::fmt::Display for MisfireName<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.map(|schedule| schedule.definition.misfire_policy) {
            Some(MisfirePolicy::Skip) | None => f.write_str("skip"),
            Some(_) => f.write_str("another one now, and was skip then"),
        }
    }
}

fn paused(schedule: &Schedule, now: DateTime<Utc>) -> Reason {
    let note = schedule.pause_note.as_deref().map_or_else(String::new, |note| format!(" ({note})"));
    let until = match schedule.paused_until {
        Some(until) if until <= now => {
            let message =
                format!("its pause{note} ended {}, and no node that works has taken it up again", from_now(until, now));
            return Reason::new(Cause::Paused, message);
        }
        Some(until) => format!("until {}", from_now(until, now)),
        None => "until somebody resumes it".to_owned(),
    };
    let name = &schedule.definition.name;
    let message = format!("it is paused{note} {until}; resume it by `punctual schedule resume '{name}'`");
    Reason::new(Cause::Paused, message)
}

fn done(schedule: &Schedule) -> Reason {
    let definition = &schedule.definition;
    let why = match (definition.max_fires, definition.end_at) {
        (Some(most), _) if schedule.fires_made >= most => format!("it made all of its {most} fires (maxFires)"),
        (_, Some(end_at)) => format!("it has no instant before its endAt, {}", instant(end_at)),
        _ => "its rhythm has no instant left".to_owned(),
    };
    Reason::new(Cause::Done, why)
}

fn overdue(at: DateTime<Utc>, facts: &ScheduleFacts<'_>) -> Vec<Reason> {
    let now = facts.now;
    let paused_nodes = paused_nodes(facts.nodes);
    if now - at <= facts.misfire_threshold && !facts.nodes.is_empty() && paused_nodes.is_none() {
        let message = format!("its instant {} is being decided", from_now(at, now));
        return vec![Reason::new(Cause::Due, message)];
    }
    let mut reasons = vec![Reason::new(
        Cause::Overdue,
        format!(
            "its instant {} is past and nobody decided it; when somebody does, its misfirePolicy says what becomes of it",
            from_now(at, now)
        ),
    )];
    let leader = facts.leadership.filter(|leadership| leadership.expires_at > now);
    if facts.nodes.is_empty() {
        reasons.push(Reason::new(Cause::NoNode, "no node was heard of lately: start one by `punctual serve`"));
    } else if let Some(reason) = paused_nodes {
        reasons.push(reason);
    } else if facts.needs_leader && leader.is_none() {
        let message = "no node leads as far as the database knows (a lease in Redis is not seen here); `punctual doctor` and the log say more";
        reasons.push(Reason::new(Cause::NoLeader, message));
    }
    reasons
}

/// That nobody decides anything, if every node is paused.
fn paused_nodes(nodes: &[NodeFacts]) -> Option<Reason> {
    let is_so = !nodes.is_empty() && nodes.iter().all(|node| node.is_paused);
    is_so.then(|| Reason::new(Cause::NodePaused, "every node is paused; resume one by `punctual resume`"))
}

/// What became of the last instant.
fn last(fire: &Fire, schedule: &Schedule, now: DateTime<Utc>) -> Reason {
    if let Some(reason) = why_fire(fire, Some(schedule)) {
        return Reason { message: format!("last time {}", reason.message), ..reason };
    }
    let when = from_now(fire.scheduled_at, now);
    let how = match fire.kind {
        FireKind::Schedule => "it last fired for",
        FireKind::Manual => "it was last triggered at",
        FireKind::Backfill => "it was last filled in for",
    };
    let task = fire.task.as_ref();
    let status = task.and_then(|task| task.status).map_or("removed by now", |status| status.as_str());
    let id = task.map(|task| task.id.to_string()).unwrap_or_default();
    Reason::new(Cause::Fired, format!("{how} {when}; its task {id} is {status}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fire::TaskOfFire;
    use crate::id::{Epoch, FireId, NodeId, TaskId};
    use crate::schedule::{Definition, Rhythm};
    use crate::task::TaskStatus;
    use crate::time::ZoneDatabase;

    fn now() -> DateTime<Utc> {
        "2026-11-16T12:00:10Z".parse().unwrap()
    }

    fn nightly(change: impl FnOnce(&mut Schedule)) -> Schedule {
        let rhythm = Rhythm::Cron("0 * * * *".into());
        let definition = Definition::new("nightly", rhythm, "UTC", &"report".parse().unwrap());
        let mut schedule = Schedule::new(definition, now(), &ZoneDatabase::bundled()).unwrap();
        change(&mut schedule);
        schedule
    }

    fn fire(schedule: &Schedule, reason: Option<SkipReason>) -> Fire {
        let scheduled_at = now() - TimeDelta::minutes(2);
        let task = TaskOfFire {
            is_handed_over: false,
            id: TaskId::generate(),
            status: Some(TaskStatus::Failed),
            attempt: 1,
            started_at: None,
            completed_at: None,
            error: None,
        };
        Fire {
            id: FireId::generate(),
            schedule_id: schedule.id,
            kind: FireKind::Schedule,
            scheduled_at,
            fired_at: now(),
            reason,
            until: reason.map(|_| scheduled_at),
            count: 1,
            tz_version: "2026e".into(),
            task: reason.is_none().then_some(task),
        }
    }

    fn facts<'a>(schedule: &'a Schedule, nodes: &'a [NodeFacts]) -> ScheduleFacts<'a> {
        ScheduleFacts {
            schedule: Some(schedule),
            deleted_at: None,
            not_understood: None,
            last_fire: None,
            recent_fires: &[],
            leadership: None,
            needs_leader: false,
            nodes,
            misfire_threshold: TimeDelta::seconds(30),
            now: now(),
        }
    }

    fn causes(facts: &ScheduleFacts<'_>) -> Vec<Cause> {
        why_schedule(facts).into_iter().map(|reason| reason.code).collect()
    }

    #[test]
    fn a_schedule_says_what_it_waits_for() {
        let node = NodeFacts { id: NodeId::generate(), handles: Vec::new(), has_redis: false, is_paused: false };
        let paused_node = NodeFacts { is_paused: true, ..node.clone() };
        let nodes = [node.clone()];
        let at = |seconds| Some(now() - TimeDelta::seconds(seconds));
        let overdue = nightly(|schedule| schedule.next_fire_at = at(60));
        let fresh = nightly(|schedule| schedule.next_fire_at = at(5));
        let done = nightly(|schedule| schedule.next_fire_at = None);
        let paused = nightly(|schedule| {
            schedule.enabled = false;
            schedule.next_fire_at = None;
        });
        let waits = nightly(|_| {});
        let leads = |seconds| {
            let expires_at = now() + TimeDelta::seconds(seconds);
            Some(Leadership { owner: node.id, epoch: Epoch(1), expires_at, left: Default::default() })
        };
        let led = |leadership| ScheduleFacts { needs_leader: true, leadership, ..facts(&overdue, &nodes) };
        for (what, facts, expected) in [
            ("waits", facts(&waits, &nodes), vec![Cause::NotDue]),
            ("paused", facts(&paused, &nodes), vec![Cause::Paused]),
            ("done", facts(&done, &nodes), vec![Cause::Done]),
            ("fresh", facts(&fresh, &nodes), vec![Cause::Due]),
            ("overdue", facts(&overdue, &nodes), vec![Cause::Overdue]),
            ("no node", facts(&fresh, &[]), vec![Cause::Overdue, Cause::NoNode]),
            (
                "paused nodes",
                facts(&overdue, std::slice::from_ref(&paused_node)),
                vec![Cause::Overdue, Cause::NodePaused],
            ),
            (
                "paused nodes, and nothing due",
                facts(&waits, std::slice::from_ref(&paused_node)),
                vec![Cause::NodePaused, Cause::NotDue],
            ),
            ("no leader", led(None), vec![Cause::Overdue, Cause::NoLeader]),
            ("a leader of long ago", led(leads(-1)), vec![Cause::Overdue, Cause::NoLeader]),
            ("a leader", led(leads(5)), vec![Cause::Overdue]),
            (
                "deleted",
                ScheduleFacts { schedule: None, deleted_at: Some(now()), ..facts(&waits, &nodes) },
                vec![Cause::Deleted],
            ),
            (
                "not understood",
                ScheduleFacts { not_understood: Some("unknown time zone".into()), ..facts(&waits, &nodes) },
                vec![Cause::NotUnderstood, Cause::NotDue],
            ),
        ] {
            assert_eq!(causes(&facts), expected, "{what}");
        }
    }

    #[test]
    fn a_pause_that_is_over_is_no_pause() {
        for (ends, part) in
            [(60, "it is paused until"), (-60, "its pause ended 2026-11-16T11:59:10Z (1 min 0 s ago), and no node")]
        {
            let schedule = nightly(|schedule| {
                schedule.enabled = false;
                schedule.paused_until = Some(now() + TimeDelta::seconds(ends));
            });
            let reasons = why_schedule(&facts(&schedule, &[]));
            assert!(reasons[0].message.starts_with(part), "{}", reasons[0].message);
        }
    }

    #[test]
    fn a_fire_says_why_it_was_skipped() {
        let schedule = nightly(|schedule| schedule.definition.exclude_calendars = vec!["holidays".into()]);
        for (reason, code, part) in [
            (
                SkipReason::Overlap,
                Cause::Overlap,
                "it was found 2 min 0 s late, and a task of an earlier fire, perhaps one that was found with it, had not ended",
            ),
            (SkipReason::Coalesced, Cause::Coalesced, "2 min 0 s late"),
            (SkipReason::Misfire, Cause::Misfire, "was skip then"),
            (SkipReason::Window, Cause::Window, "misfireWindowSeconds (86400)"),
            (SkipReason::Calendar, Cause::Calendar, "(holidays)"),
        ] {
            let told = why_fire(&fire(&schedule, Some(reason)), Some(&schedule)).unwrap();
            assert!(told.code == code && told.message.contains(part), "{}", told.message);
        }
        let fresh = Fire { scheduled_at: now(), fired_at: now(), ..fire(&schedule, Some(SkipReason::Overlap)) };
        let told = why_fire(&fresh, Some(&schedule)).unwrap().message;
        assert!(told.contains(": a task of an earlier fire had not ended"), "{told}");
        let until = Some(now() - TimeDelta::seconds(10));
        let run = Fire { count: 3, until, ..fire(&schedule, Some(SkipReason::Misfire)) };
        let told = why_fire(&run, None).unwrap().message;
        assert!(told.starts_with("the 3 instants from 2026-11-16T11:58:10Z to"), "{told}");
        assert!(told.contains(": they were found 10 s to 2 min 0 s late, and"), "{told}");
        assert_eq!(why_fire(&fire(&schedule, None), None), None);
    }

    #[test]
    fn what_became_of_the_last_instant_is_told_too() {
        let schedule = nightly(|_| {});
        for (reason, expected, part) in [
            (None, Cause::Fired, "is failed"),
            (Some(SkipReason::Overlap), Cause::Overlap, "last time the instant 2026-11-16T11:58:10Z was skipped"),
        ] {
            let fire = fire(&schedule, reason);
            let facts = ScheduleFacts { last_fire: Some(&fire), ..facts(&schedule, &[]) };
            let reasons = why_schedule(&facts);
            assert!(reasons[1].code == expected && reasons[1].message.contains(part), "{reasons:?}");
        }
    }

    #[test]
    fn what_was_skipped_lately_is_told_by_its_causes() {
        let schedule = nightly(|_| {});
        let skipped = |reason, minutes: i64, count: i64| {
            let scheduled_at = now() - TimeDelta::minutes(minutes);
            let until = scheduled_at + TimeDelta::minutes(count - 1);
            let fire = fire(&schedule, Some(reason));
            Fire { scheduled_at, until: Some(until), count: count as u64, ..fire }
        };
        let recent = [
            fire(&schedule, None),
            skipped(SkipReason::Overlap, 3, 1),
            skipped(SkipReason::Coalesced, 30, 20),
            skipped(SkipReason::Overlap, 33, 1),
        ];
        let told = |last_fire: &Fire| {
            let facts = ScheduleFacts { last_fire: Some(last_fire), recent_fires: &recent, ..facts(&schedule, &[]) };
            why_schedule(&facts).into_iter().skip(2).map(|Reason { code, message }| (code, message)).collect::<Vec<_>>()
        };
        let found = told(&recent[0]);
        assert_eq!(found.iter().map(|(code, _)| *code).collect::<Vec<_>>(), [Cause::Overlap, Cause::Coalesced]);
        assert!(found[0].1.starts_with("lately 2 instants between 2026-11-16T11:27:10Z and 2026-11-16T11:57:10Z"));
        assert!(found[0].1.ends_with("its overlapPolicy is skip"), "{found:?}");
        assert!(found[1].1.starts_with("lately 20 instants between"), "{found:?}");
        let found = told(&recent[1]);
        assert!(found[1].1.starts_with("lately the instant 2026-11-16T11:27:10Z (33 min 0 s ago) was"), "{found:?}");
    }

    #[test]
    fn how_late_many_instants_were_found_is_true_of_all_of_them() {
        let schedule = nightly(|_| {});
        let found = |scheduled: i64, late: i64| {
            let scheduled_at = now() - TimeDelta::seconds(scheduled);
            let fired_at = scheduled_at + TimeDelta::seconds(late);
            Fire { scheduled_at, until: Some(scheduled_at), fired_at, ..fire(&schedule, Some(SkipReason::Misfire)) }
        };
        for (recent, expected) in [
            (vec![found(60, 40)], ": it was found 40 s late, and"),
            (vec![found(60, 40), found(3_600, 3_000)], ": they were found 40 s to 50 min 0 s late, and"),
            (vec![found(60, 40), found(3_600, 40)], ": they were found 40 s late, and"),
        ] {
            let told = why_schedule(&ScheduleFacts { recent_fires: &recent, ..facts(&schedule, &[]) });
            let last = told.last().unwrap();
            assert!(last.code == Cause::Misfire && last.message.contains(expected), "{told:?}");
        }
    }
}
