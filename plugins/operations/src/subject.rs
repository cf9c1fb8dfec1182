//! What notifications are about: an event or a task, with a start and an end.

use std::collections::BTreeSet;

use chrono::{DateTime, NaiveTime, Utc};
use punctual_sdk::{Context, Database, Error, Transaction, on_either, row, shown, sqlx};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub(crate) const KINDS: [&str; 2] = ["start", "end"];

/// The organisation's time zone, where a subject has none.
pub(crate) const ORGANISATION_ZONE: &str = "PUNCTUAL_OPERATIONS_TIMEZONE";

row! {
    /// An event or a task.
    #[derive(Debug, Clone, PartialEq)]
    pub(crate) struct Subject {
        pub(crate) id: Uuid,
        pub(crate) subject_type: String,
        pub(crate) title: String,
        pub(crate) start_at: Option<DateTime<Utc>>,
        pub(crate) end_at: Option<DateTime<Utc>>,
        /// The date of its instants in UTC is what counts then.
        pub(crate) is_all_day: bool,
        pub(crate) timezone: Option<String>,
        /// A [`Person`], as JSON.
        pub(crate) creator: String,
        /// Participants of an event, related users of a task.
        pub(crate) people: String,
        /// The kinds whose rules could not all be written, with blanks in between.
        pub(crate) unplanned: Option<String>,
        pub(crate) created_at: DateTime<Utc>,
        pub(crate) updated_at: DateTime<Utc>,
    }
}

/// Selects subjects, by the names of all columns; the rest of the statement says which.
macro_rules! select_subjects {
    ($which:literal) => {
        concat!(
            "SELECT id, subject_type, title, start_at, end_at, is_all_day, timezone, creator, people, unplanned, \
             created_at, updated_at FROM operations_subjects ",
            $which
        )
    };
}
pub(crate) use select_subjects;

/// Somebody who has to do with a subject; without an address nobody can write to them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Person {
    pub(crate) name: String,
    pub(crate) email: Option<String>,
}

impl Subject {
    pub(crate) async fn find(database: &Database, id: Uuid) -> Result<Option<Self>, sqlx::Error> {
        let one = select_subjects!("WHERE id = $1");
        on_either!(database, |pool| sqlx::query_as(one).bind(id).fetch_optional(pool).await)
    }

    /// The subject, which nobody else changes until the transaction ends.
    pub(crate) async fn lock(transaction: &mut Transaction, id: Uuid) -> Result<Option<Self>, sqlx::Error> {
        let lock = "UPDATE operations_subjects SET updated_at = updated_at WHERE id = $1";
        let one = select_subjects!("WHERE id = $1");
        on_either!(transaction, |connection| {
            sqlx::query(lock).bind(id).execute(&mut *connection).await?;
            sqlx::query_as(one).bind(id).fetch_optional(connection).await
        })
    }

    pub(crate) async fn insert(&self, transaction: &mut Transaction) -> Result<(), sqlx::Error> {
        let insert = "INSERT INTO operations_subjects
            (id, subject_type, created_at, title, start_at, end_at, is_all_day, timezone, creator, people, updated_at)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
        on_either!(transaction, |connection| {
            let bound = sqlx::query(insert).bind(self.id).bind(&self.subject_type).bind(self.created_at);
            let bound = bound.bind(&self.title).bind(self.start_at).bind(self.end_at).bind(self.is_all_day);
            let bound = bound.bind(&self.timezone).bind(&self.creator).bind(&self.people).bind(self.updated_at);
            bound.execute(connection).await.map(drop)
        })
    }

    pub(crate) async fn update(&self, transaction: &mut Transaction) -> Result<(), sqlx::Error> {
        let update = "UPDATE operations_subjects SET title = $2, start_at = $3, end_at = $4, is_all_day = $5,
            timezone = $6, creator = $7, people = $8, updated_at = $9 WHERE id = $1";
        on_either!(transaction, |connection| {
            let bound = sqlx::query(update).bind(self.id).bind(&self.title).bind(self.start_at).bind(self.end_at);
            let bound = bound.bind(self.is_all_day).bind(&self.timezone).bind(&self.creator).bind(&self.people);
            bound.bind(self.updated_at).execute(connection).await.map(drop)
        })
    }

    /// Whether the rules of a kind are behind its date.
    pub(crate) fn is_unplanned(&self, kind: &str) -> bool {
        self.unplanned.as_deref().unwrap_or_default().split(' ').any(|unplanned| unplanned == kind)
    }

    /// The name of its zone: its own, else the organisation's, else UTC.
    pub(crate) fn zone(&self, context: &Context) -> String {
        self.timezone.clone().or_else(|| context.setting(ORGANISATION_ZONE)).unwrap_or_else(|| "UTC".to_owned())
    }

    /// The instant that rules of a kind hang on, if there is one: noon of the date in its zone, if it is all day.
    pub(crate) fn anchor(&self, kind: &str, context: &Context) -> Result<Option<DateTime<Utc>>, Error> {
        let at = if kind == "start" { self.start_at } else { self.end_at };
        let (Some(at), true) = (at, self.is_all_day) else { return Ok(at) };
        let noon = NaiveTime::from_hms_opt(12, 0, 0).unwrap_or_default();
        Ok(Some(context.zone(&self.zone(context))?.instant(at.date_naive().and_time(noon))))
    }

    /// When that is, for people.
    pub(crate) fn when_label(&self, kind: &str, context: &Context) -> Result<String, Error> {
        let at = if kind == "start" { self.start_at } else { self.end_at };
        let Some(at) = at else { return Ok(String::new()) };
        if self.is_all_day {
            return Ok(at.format("%Y-%m-%d").to_string());
        }
        let zone = self.zone(context);
        Ok(format!("{} ({zone})", context.zone(&zone)?.local(at).format("%Y-%m-%d %H:%M")))
    }

    /// Whom to tell: the creator and the people, each address once, however it is written.
    pub(crate) fn recipients(&self) -> Result<Vec<(String, Person)>, Error> {
        let creator: Person = serde_json::from_str(&self.creator)?;
        let people: Vec<Person> = serde_json::from_str(&self.people)?;
        let mut seen = BTreeSet::new();
        let with_address =
            [creator].into_iter().chain(people).filter_map(|person| Some((person.email.clone()?, person)));
        Ok(with_address.filter(|(email, _)| seen.insert(email.to_lowercase())).collect())
    }

    pub(crate) fn view(&self) -> serde_json::Value {
        let said = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap_or_default();
        let (start, end, people) = names(&self.subject_type);
        let mut view = serde_json::json!({
            "id": self.id,
            "title": self.title,
            start: self.start_at.map(shown),
            end: self.end_at.map(shown),
            "timezone": self.timezone,
            "creator": said(&self.creator),
            people: said(&self.people),
            "createdAt": shown(self.created_at),
            "updatedAt": shown(self.updated_at),
        });
        if self.subject_type == "event" {
            view["isAllDay"] = self.is_all_day.into();
        }
        view
    }
}

/// What the start, the end and the people are called, of an event and of a task.
pub(crate) fn names(subject_type: &str) -> (&'static str, &'static str, &'static str) {
    match subject_type {
        "event" => ("startDate", "endDate", "participants"),
        _ => ("startedAt", "finishedAt", "relatedUsers"),
    }
}
