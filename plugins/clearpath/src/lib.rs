//! The scheduled jobs of a company that tests homes for radon. See `README.md` for the flow.
//!
//! A `session` is a test that somebody does at home; its `email`s go out by and by, its result makes a `certificate`. The five
//! jobs stand in `email_queue`, `expiry`, `cnrpp` and `lab`.

mod certificate;
mod cnrpp;
mod contractor;
mod email;
mod email_queue;
mod expiry;
mod lab;
mod pdf;
mod record;
mod session;

use std::time::Duration;

use chrono::{DateTime, NaiveDate, Utc};
use punctual_sdk::{Attempt, DefaultSchedule, Error, Handler, HealthCheck, Migration, Plugin, Route, Template};

/// Where the company's days begin and end.
pub(crate) const ZONE: &str = "America/Edmonton";

/// Registers five schedules with their topics, and the routes of sessions, certificates, contractors, e-mails and the lab.
#[derive(Debug, Clone, Copy)]
pub struct Clearpath {
    /// How long the lab may take to answer: half a minute by default.
    pub lab_patience: Duration,
}

impl Default for Clearpath {
    fn default() -> Self {
        Self { lab_patience: Duration::from_secs(30) }
    }
}

impl Plugin for Clearpath {
    fn name(&self) -> &'static str {
        "clearpath"
    }

    fn handlers(&self) -> Vec<(&'static str, Box<dyn Handler>)> {
        let lab_patience = self.lab_patience;
        vec![
            ("clearpath.emailQueue", Box::new(email_queue::run)),
            ("clearpath.sessionExpiry", Box::new(expiry::expire_sessions)),
            ("clearpath.certificateExpiry", Box::new(expiry::expire_certificates)),
            ("clearpath.cnrppAlert", Box::new(cnrpp::run)),
            ("clearpath.labResultPoll", Box::new(move |attempt| lab::run(attempt, lab_patience))),
            (certificate::TOPIC, Box::new(certificate::generate)),
        ]
    }

    fn schedules(&self) -> Vec<DefaultSchedule> {
        let schedule = |name, topic, cron, description| DefaultSchedule {
            name,
            topic,
            cron,
            timezone: ZONE,
            description,
            // What a run leaves undone, the next one does.
            attempts: 1,
        };
        vec![
            schedule("emailQueue", "clearpath.emailQueue", "*/15 * * * *", "Sends the e-mails that are due"),
            schedule("sessionExpiry", "clearpath.sessionExpiry", "0 2 * * *", "Expires tests that were abandoned"),
            schedule("certificateExpiry", "clearpath.certificateExpiry", "0 2 * * *", "Expires certificates"),
            schedule("cnrppAlert", "clearpath.cnrppAlert", "0 2 * * *", "Tells of certifications that expire"),
            schedule("labResultPoll", "clearpath.labResultPoll", "0 6 * * *", "Asks the lab for results"),
        ]
    }

    fn routes(&self) -> Vec<Route> {
        [session::routes(), certificate::routes(), contractor::routes(), email::routes(), lab::routes()].concat()
    }

    fn templates(&self) -> Vec<Template> {
        [email::templates(), cnrpp::templates()].concat()
    }

    fn health_checks(&self) -> Vec<(&'static str, Box<dyn HealthCheck>)> {
        vec![("email_log_stuck", Box::new(email_queue::look_for_stuck))]
    }

    fn migrations(&self) -> Vec<Migration> {
        vec![Migration {
            name: "0001_tables",
            sqlite: include_str!("../migrations/sqlite/0001_tables.sql"),
            postgres: include_str!("../migrations/postgres/0001_tables.sql"),
        }]
    }
}

/// The instant of a run: that of the fire it belongs to, however late it comes.
pub(crate) fn fired_at(attempt: &Attempt) -> DateTime<Utc> {
    attempt.scheduled_at.unwrap_or(attempt.started_at)
}

/// The day of a run.
pub(crate) fn today(attempt: &Attempt) -> Result<NaiveDate, Error> {
    Ok(attempt.context.zone(ZONE)?.date(fired_at(attempt)))
}
