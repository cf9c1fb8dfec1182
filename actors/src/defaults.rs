//! What plugins bring: definitions of topics, and schedules. Each is made once; from then on it is the operator's.

use chrono::{DateTime, Utc};
use punctual_domain::retry::{Backoff, RetryPolicy};
use punctual_domain::schedule::{Definition, Rhythm, Schedule};
use punctual_domain::store::{Store, StoreError};
use punctual_domain::time::ZoneDatabase;
use punctual_domain::topic::{Route, Topic, TopicDefinition, TopicPattern};
use punctual_sdk::{DefaultSchedule, DefaultTopic, Plugin};
use tracing::{info, warn};

/// Writes the definitions of topics that a plugin brings and nobody has written before. To be called before its handlers are
/// registered: that writes one too.
///
/// # Errors
/// When the store does not do it.
pub async fn add_topics(store: &dyn Store, plugin: &dyn Plugin) -> Result<(), StoreError> {
    for topic in plugin.topics() {
        store.add_topic(&definition(&topic)).await?;
    }
    Ok(())
}

/// Writes the schedules that a plugin brings and nobody has written, or removed, before. Safe when several nodes start at once.
///
/// # Errors
/// When the store does not do it.
pub async fn add_schedules(
    store: &dyn Store,
    zones: &ZoneDatabase,
    now: DateTime<Utc>,
    plugin: &dyn Plugin,
) -> Result<(), StoreError> {
    for default in plugin.schedules() {
        let (plugin, name) = (plugin.name(), default.name);
        let schedule = match schedule(plugin, &default, now, zones) {
            Ok(schedule) => schedule,
            Err(error) => {
                warn!(plugin, name, %error, "a plugin's schedule cannot be made");
                continue;
            }
        };
        match store.create_schedule(&schedule, None).await {
            Ok(_) => info!(plugin, name, schedule_id = %schedule.id, "a plugin's schedule made"),
            // It was made before, and is, or was, the operator's.
            Err(StoreError::ClientRequestIdInUse(_)) => {}
            Err(StoreError::NameTaken(_)) => warn!(plugin, name, "a plugin's schedule not made, its name is taken"),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn definition(default: &DefaultTopic) -> TopicDefinition {
    let delay = u64::try_from(default.backoff.as_millis()).unwrap_or(u64::MAX);
    let backoff = Backoff { delay, ..Backoff::default() };
    TopicDefinition {
        retry: Some(RetryPolicy { attempts: default.attempts, backoff }),
        ..TopicDefinition::new(TopicPattern::from_stored(default.topic), Route::Handler)
    }
}

fn schedule(
    plugin: &str,
    default: &DefaultSchedule,
    now: DateTime<Utc>,
    zones: &ZoneDatabase,
) -> Result<Schedule, String> {
    let topic: Topic = default.topic.parse().map_err(|error| format!("{error}"))?;
    let rhythm = Rhythm::Cron(default.cron.to_owned());
    let mut definition = Definition::new(default.name, rhythm, default.timezone, &topic);
    definition.description = Some(default.description.to_owned());
    definition.max_retries = Some(default.attempts);
    let schedule = Schedule::new(definition, now, zones).map_err(|error| error.to_string())?;
    // The id is never used twice, also after the schedule was deleted.
    let once = format!("plugin:{plugin}:{}", default.name);
    Ok(Schedule { client_request_id: Some(once), ..schedule })
}
