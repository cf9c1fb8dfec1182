//! Operations: events and tasks with dates, and notifications that follow those. See `README.md` for the flow.
//!
//! A `subject` is an event or a task. Its `rule`s say when somebody is told; each that is synced has one live task of
//! Punctual's. `scheduler` keeps the two together when subjects change, `reconciler` mends what did not work out, and
//! `arrival` tells people when the task is due.

mod arrival;
mod reconciler;
mod rule;
mod rule_routes;
mod scheduler;
mod subject;
mod subject_routes;

use std::time::Duration;

use punctual_sdk::{DefaultSchedule, DefaultTopic, Handler, Migration, Plugin, Route, Template};

/// Registers the topics `operations.*`, a schedule that reconciles rules, and the routes of events, tasks and rules.
pub struct Operations;

impl Plugin for Operations {
    fn name(&self) -> &'static str {
        "operations"
    }

    fn handlers(&self) -> Vec<(&'static str, Box<dyn Handler>)> {
        vec![("operations.*", Box::new(arrival::notify)), (reconciler::TOPIC, Box::new(reconciler::reconcile))]
    }

    fn topics(&self) -> Vec<DefaultTopic> {
        vec![DefaultTopic { topic: "operations.*", attempts: 5, backoff: Duration::from_secs(5) }]
    }

    fn schedules(&self) -> Vec<DefaultSchedule> {
        vec![DefaultSchedule {
            name: "operationsReconcile",
            topic: reconciler::TOPIC,
            cron: "*/5 * * * *",
            timezone: "UTC",
            description: "Tries again to schedule notification rules that are pending or failed",
            attempts: 1,
        }]
    }

    fn routes(&self) -> Vec<Route> {
        [subject_routes::routes(), rule_routes::routes()].concat()
    }

    fn templates(&self) -> Vec<Template> {
        arrival::templates()
    }

    fn migrations(&self) -> Vec<Migration> {
        vec![
            Migration {
                name: "0001_subjects_and_rules",
                sqlite: include_str!("../migrations/sqlite/0001_subjects_and_rules.sql"),
                postgres: include_str!("../migrations/postgres/0001_subjects_and_rules.sql"),
            },
            Migration {
                name: "0002_dropped_rules",
                sqlite: include_str!("../migrations/sqlite/0002_dropped_rules.sql"),
                postgres: include_str!("../migrations/postgres/0002_dropped_rules.sql"),
            },
            Migration {
                name: "0003_unplanned_subjects",
                sqlite: include_str!("../migrations/sqlite/0003_unplanned_subjects.sql"),
                postgres: include_str!("../migrations/postgres/0003_unplanned_subjects.sql"),
            },
        ]
    }
}
