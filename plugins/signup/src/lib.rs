//! Sign-ups: whoever begins one and does not finish is reminded after an hour and after a day, and the sales hear of it at
//! once. See `README.md` for the flow.

mod emails;
mod session;

use punctual_sdk::{Handler, Migration, Plugin, Route, Template};

/// Registers the topics `signup.alert.internal`, `signup.reminder.early` and `signup.reminder.late`, and the routes of
/// sessions.
pub struct Signup;

impl Plugin for Signup {
    fn name(&self) -> &'static str {
        "signup"
    }

    fn handlers(&self) -> Vec<(&'static str, Box<dyn Handler>)> {
        vec![
            (emails::ALERT_TOPIC, Box::new(emails::alert)),
            (emails::EARLY_TOPIC, Box::new(emails::remind_early)),
            (emails::LATE_TOPIC, Box::new(emails::remind_late)),
        ]
    }

    fn routes(&self) -> Vec<Route> {
        session::routes()
    }

    fn templates(&self) -> Vec<Template> {
        emails::templates()
    }

    fn migrations(&self) -> Vec<Migration> {
        vec![Migration {
            name: "0001_sessions",
            sqlite: include_str!("../migrations/sqlite/0001_sessions.sql"),
            postgres: include_str!("../migrations/postgres/0001_sessions.sql"),
        }]
    }
}
