//! Why has it not run? For a task, a fire or a schedule, whichever the id or name means.

use std::time::Duration;

use chrono::{DateTime, Utc};
use punctual_domain::fire::{Fire, FireKind};
use punctual_domain::id::{FireId, ScheduleId, TaskId};
use punctual_domain::node::Node;
use punctual_domain::store::{FireFilter, Page, WhichHandOvers};
use punctual_domain::task::Task;
use punctual_domain::topic::TopicDefinition;
use punctual_domain::why::{Cause, NodeFacts, Reason, ScheduleFacts, TaskFacts, why_fire, why_schedule, why_task};
use serde::{Deserialize, Serialize};

use super::{InspectError, Inspector, Moment, shortened};
use crate::coordination::LEADERSHIP;

/// A node that was not heard of for longer counts as gone.
const LATELY: Duration = Duration::from_secs(60);
/// How many fires are looked at to find the last one of the schedule's own, and those that were skipped lately.
const LAST_FIRES: u32 = 100;

/// Why.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) id: String,
    /// What it is: `task`, `execution` or `schedule`.
    pub(crate) kind: String,
    /// The topic of a task, the name of a schedule.
    pub(crate) name: String,
    /// Where it stands: a status, or `enabled`, `paused`, `deleted`.
    pub(crate) status: String,
    pub(crate) now: Moment,
    /// The one that counts most first.
    pub(crate) reasons: Vec<Reason>,
}

impl Inspector {
    /// Says why, for a task's, a fire's or a schedule's id, or a schedule's name.
    pub(crate) async fn why(&self, id: &str) -> Result<Report, InspectError> {
        let now = self.store.now().await?;
        if let Ok(uuid) = id.parse::<uuid::Uuid>() {
            if let Some(found) = self.store.task(TaskId(uuid)).await? {
                return self.of_task(&found.task, now).await;
            }
            if let Some(fire) = self.store.fire(FireId(uuid)).await? {
                return self.of_fire(&fire, now).await;
            }
        }
        match self.find_schedule(id).await {
            Ok(schedule) => self.of_schedule(schedule, now).await,
            Err(InspectError::NotFound(_)) => {
                Err(InspectError::NotFound(format!("task, execution or schedule {:?}", shortened(id))))
            }
            Err(error) => Err(error),
        }
    }

    async fn of_task(&self, task: &Task, now: DateTime<Utc>) -> Result<Report, InspectError> {
        let definitions = self.store.topics().await?;
        let nodes = self.nodes().await?;
        let hand_over = self.store.hand_overs(&WhichHandOvers::OfTask(task.id), 1).await?.pop();
        let reasons = why_task(&TaskFacts {
            task,
            hand_over: hand_over.as_ref(),
            standing: self.store.standing(task.id).await?.unwrap_or_default(),
            definition: TopicDefinition::for_topic(&definitions, &task.topic),
            nodes: &nodes,
            now,
        });
        Ok(Report {
            id: task.id.to_string(),
            kind: "task".into(),
            name: task.topic.to_string(),
            status: task.status.as_str().into(),
            now: Moment(now),
            reasons,
        })
    }

    async fn of_fire(&self, fire: &Fire, now: DateTime<Utc>) -> Result<Report, InspectError> {
        let schedule = self.store.schedule(fire.schedule_id).await?;
        let name = match &schedule {
            Some(schedule) => schedule.definition.name.clone(),
            None => self.former_name(fire.schedule_id).await?,
        };
        let (status, reasons) = match (why_fire(fire, schedule.as_ref()), &fire.task) {
            (Some(reason), _) => ("skipped".to_owned(), vec![reason]),
            (None, Some(made)) => match self.store.task(made.id).await? {
                Some(found) => {
                    let of_task = self.of_task(&found.task, now).await?;
                    let fired = fired(fire, &format!("made the task {}", made.id));
                    (of_task.status, [vec![fired], of_task.reasons].concat())
                }
                None => ("pruned".to_owned(), vec![fired(fire, "made a task that retention has removed")]),
            },
            (None, None) => ("pruned".to_owned(), vec![fired(fire, "made a task")]),
        };
        Ok(Report { id: fire.id.to_string(), kind: "execution".into(), name, status, now: Moment(now), reasons })
    }

    async fn of_schedule(&self, id: ScheduleId, now: DateTime<Utc>) -> Result<Report, InspectError> {
        let schedule = self.store.schedule(id).await?;
        let history = self.store.schedule_history(id).await?;
        let last_fires = self.store.fires(id, &FireFilter::default(), Page::first(LAST_FIRES)).await?;
        let last_fire = last_fires.iter().find(|fire| fire.kind == FireKind::Schedule).or(last_fires.first());
        let not_understood = schedule
            .as_ref()
            .and_then(|schedule| schedule.definition.recurrence(&self.zones, schedule.created_at).err())
            .map(|error| error.to_string());
        let nodes = self.nodes().await?;
        let reasons = why_schedule(&ScheduleFacts {
            schedule: schedule.as_ref(),
            deleted_at: history.first().filter(|(_, was)| was.is_none()).map(|(at, _)| *at),
            not_understood,
            last_fire,
            recent_fires: &last_fires,
            leadership: self.store.leadership(LEADERSHIP).await?,
            needs_leader: self.store.has_other_nodes(),
            nodes: &nodes,
            misfire_threshold: self.misfire_threshold,
            now,
        });
        let status = match &schedule {
            None => "deleted",
            Some(schedule) if schedule.enabled => "enabled",
            Some(_) => "paused",
        };
        let name = match &schedule {
            Some(schedule) => schedule.definition.name.clone(),
            None => self.former_name(id).await?,
        };
        let (kind, status) = ("schedule".into(), status.into());
        Ok(Report { id: id.to_string(), kind, name, status, now: Moment(now), reasons })
    }

    async fn former_name(&self, id: ScheduleId) -> Result<String, InspectError> {
        let history = self.store.schedule_history(id).await?;
        let last = history.into_iter().find_map(|(_, schedule)| schedule);
        Ok(last.map_or_else(|| id.to_string(), |schedule| schedule.definition.name))
    }

    async fn nodes(&self) -> Result<Vec<NodeFacts>, InspectError> {
        Ok(self.store.nodes(LATELY).await?.iter().map(node_facts).collect())
    }
}

fn fired(fire: &Fire, what: &str) -> Reason {
    let at = fire.scheduled_at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
    let lag = punctual_domain::why::duration(fire.fired_at - fire.scheduled_at);
    let message = match fire.kind {
        FireKind::Schedule => format!("the instant {at} fired {lag} after its time, and {what}"),
        FireKind::Manual => format!("somebody triggered it at {at}, which {what}"),
        FireKind::Backfill => format!("somebody filled in the instant {at}, which {what}"),
    };
    Reason { code: Cause::Fired, message }
}

fn node_facts(node: &Node) -> NodeFacts {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct About {
        topics: Vec<String>,
        redis: Option<bool>,
        paused: bool,
    }
    let about: About = serde_json::from_str(node.about.as_str()).unwrap_or_default();
    NodeFacts {
        id: node.id,
        handles: about.topics.iter().filter_map(|name| name.parse().ok()).collect(),
        // One of another release may not say.
        has_redis: about.redis.unwrap_or(true),
        is_paused: about.paused,
    }
}
