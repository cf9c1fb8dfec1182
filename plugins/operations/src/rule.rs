//! Notification rules: when somebody is told about a subject, and whether that is scheduled.
//!
//! A rule is `pending` from when it is saved until its task is written (`synced`), or that failed (`failed`). One that is not
//! needed any more is soft-deleted: it stays readable, and never tells anybody again. Only one that was dropped because its
//! instant was past comes back, when its date moves to the future.

use chrono::{DateTime, TimeDelta, Utc};
use punctual_sdk::{Context, Database, Error, Fields, Transaction, on_either, row, shown, sqlx};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::subject::{KINDS, Subject};

/// The ways a notification can take.
pub(crate) const CHANNELS: [&str; 3] = ["email", "webhook", "queue"];

/// How far a relative rule may be from its anchor.
const LONGEST_OFFSET: TimeDelta = TimeDelta::days(366);

row! {
    #[derive(Debug, Clone)]
    pub(crate) struct Rule {
        pub(crate) id: Uuid,
        pub(crate) subject_type: String,
        pub(crate) subject_id: Uuid,
        /// Which date it hangs on: `start` or `end`.
        pub(crate) kind: String,
        /// What it says, as JSON.
        pub(crate) rule: String,
        /// The same for rules that say the same.
        pub(crate) rule_key: String,
        /// The task that tells.
        pub(crate) schedule_id: Option<Uuid>,
        pub(crate) sync_status: String,
        pub(crate) sync_error: Option<String>,
        pub(crate) channels: String,
        pub(crate) active: bool,
        pub(crate) deleted_at: Option<DateTime<Utc>>,
        /// Whether it was active until it was dropped; `None` if it was not.
        pub(crate) active_when_dropped: Option<bool>,
        pub(crate) last_sent_at: Option<DateTime<Utc>>,
        /// Grows whenever it is planned anew.
        pub(crate) version: i64,
        pub(crate) created_at: DateTime<Utc>,
        pub(crate) updated_at: DateTime<Utc>,
    }
}

/// Selects rules, by the names of all columns; the rest of the statement says which.
macro_rules! select_rules {
    ($which:literal) => {
        concat!(
            "SELECT id, subject_type, subject_id, kind, rule, rule_key, schedule_id, sync_status, sync_error, \
             channels, active, deleted_at, active_when_dropped, last_sent_at, version, created_at, updated_at \
             FROM operations_notification_rules ",
            $which
        )
    };
}
pub(crate) use select_rules;

impl Rule {
    /// A rule that nobody has scheduled yet.
    pub(crate) fn new(subject: &Subject, says: &Says, channels: &[&str], now: DateTime<Utc>) -> Self {
        Self {
            id: Uuid::now_v7(),
            subject_type: subject.subject_type.clone(),
            subject_id: subject.id,
            kind: says.anchor.to_owned(),
            rule: says.view().to_string(),
            rule_key: says.key(),
            schedule_id: None,
            sync_status: "pending".to_owned(),
            sync_error: None,
            channels: json!(channels).to_string(),
            active: true,
            deleted_at: None,
            active_when_dropped: None,
            last_sent_at: None,
            version: 0,
            created_at: now,
            updated_at: now,
        }
    }

    /// The rule, also if it is deleted.
    pub(crate) async fn find(database: &Database, id: Uuid) -> Result<Option<Self>, sqlx::Error> {
        let one = select_rules!("WHERE id = $1");
        on_either!(database, |pool| sqlx::query_as(one).bind(id).fetch_optional(pool).await)
    }

    /// The same, as a transaction sees it.
    pub(crate) async fn read(transaction: &mut Transaction, id: Uuid) -> Result<Option<Self>, sqlx::Error> {
        let one = select_rules!("WHERE id = $1");
        on_either!(transaction, |connection| sqlx::query_as(one).bind(id).fetch_optional(connection).await)
    }

    /// The rule, unless it is deleted; nobody else changes it until the transaction ends.
    pub(crate) async fn lock(transaction: &mut Transaction, id: Uuid) -> Result<Option<Self>, sqlx::Error> {
        let lock = "UPDATE operations_notification_rules SET version = version WHERE id = $1";
        let one = select_rules!("WHERE id = $1 AND deleted_at IS NULL");
        on_either!(transaction, |connection| {
            sqlx::query(lock).bind(id).execute(&mut *connection).await?;
            sqlx::query_as(one).bind(id).fetch_optional(connection).await
        })
    }

    /// From now on nobody else changes the rules of a subject until the transaction ends.
    pub(crate) async fn lock_all(transaction: &mut Transaction, subject: Uuid) -> Result<(), sqlx::Error> {
        let lock = "UPDATE operations_notification_rules SET version = version WHERE subject_id = $1";
        on_either!(transaction, |connection| sqlx::query(lock).bind(subject).execute(connection).await.map(drop))
    }

    /// The rules of a subject that live or were dropped.
    pub(crate) async fn read_all(transaction: &mut Transaction, subject: Uuid) -> Result<Vec<Self>, sqlx::Error> {
        let all = select_rules!(
            "WHERE subject_id = $1 AND (deleted_at IS NULL OR active_when_dropped IS NOT NULL) ORDER BY id"
        );
        on_either!(transaction, |connection| sqlx::query_as(all).bind(subject).fetch_all(connection).await)
    }

    pub(crate) async fn insert(&self, transaction: &mut Transaction) -> Result<(), sqlx::Error> {
        let insert = "INSERT INTO operations_notification_rules (id, subject_type, subject_id, kind, rule, rule_key,
            sync_status, channels, active, version, created_at, updated_at)
            VALUES ($1, $2, $3, $4, $5, $6, 'pending', $7, $8, 0, $9, $9)";
        on_either!(transaction, |connection| {
            let bound = sqlx::query(insert).bind(self.id).bind(&self.subject_type).bind(self.subject_id);
            let bound = bound.bind(&self.kind).bind(&self.rule).bind(&self.rule_key).bind(&self.channels);
            bound.bind(self.active).bind(self.created_at).execute(connection).await.map(drop)
        })
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.active_when_dropped.is_some()
    }

    /// What it says.
    pub(crate) fn says(&self) -> Result<Says, Error> {
        Says::read(serde_json::from_str(&self.rule)?).map_err(Error::from)
    }

    /// When its task is due, if its subject has that date.
    pub(crate) fn run_at(&self, subject: &Subject, context: &Context) -> Result<Option<DateTime<Utc>>, Error> {
        let offset = self.says()?.offset;
        Ok(subject.anchor(&self.kind, context)?.map(|anchor| anchor + offset))
    }

    pub(crate) fn channels(&self) -> Result<Vec<String>, Error> {
        Ok(serde_json::from_str(&self.channels)?)
    }

    pub(crate) fn topic(&self) -> String {
        format!("operations.{}.{}", self.subject_type, self.kind)
    }

    pub(crate) fn view(&self) -> Value {
        let said = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
        json!({
            "id": self.id,
            "subjectType": self.subject_type,
            "subjectId": self.subject_id,
            "kind": self.kind,
            "rule": said(&self.rule),
            "scheduleId": self.schedule_id,
            "syncStatus": self.sync_status,
            "syncError": self.sync_error,
            "channels": said(&self.channels),
            "active": self.active,
            "deletedAt": self.deleted_at.map(shown),
            "lastSentAt": self.last_sent_at.map(shown),
            "createdAt": shown(self.created_at),
            "updatedAt": shown(self.updated_at),
        })
    }
}

/// What a rule says: at a date of its subject, or so long before or after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Says {
    pub(crate) anchor: &'static str,
    /// As it was written; `None` at the date itself.
    written: Option<String>,
    offset: TimeDelta,
}

impl Says {
    /// At a date itself.
    pub(crate) fn at_subject_date(anchor: &'static str) -> Self {
        Self { anchor, written: None, offset: TimeDelta::zero() }
    }

    /// Reads the fields of a rule.
    pub(crate) fn of(fields: &mut Fields) -> Option<Self> {
        let kind = fields.needs("type", |fields, name| fields.word(name, &["at_subject_date", "relative"]));
        let anchor = fields.needs("anchor", |fields, name| fields.word(name, &KINDS));
        if kind != "relative" {
            return (kind == "at_subject_date" && !anchor.is_empty()).then(|| Self::at_subject_date(anchor));
        }
        let (written, offset) = fields.needs("offset", |fields, name| {
            let read = |value: Value| {
                let text = value.as_str().unwrap_or_default().to_owned();
                let offset = duration(&text).filter(|offset| offset.abs() <= LONGEST_OFFSET);
                let expected = "must be an ISO 8601 duration of at most 366 days, such as -PT24H";
                offset.map(|offset| Some((text, offset))).ok_or_else(|| expected.to_owned())
            };
            fields.check(name, read)
        })?;
        (!anchor.is_empty()).then_some(Self { anchor, written: Some(written), offset })
    }

    fn read(value: Value) -> Result<Self, String> {
        let mut fields = Fields::of(value);
        let says = Self::of(&mut fields);
        fields.finish().map_err(|problem| problem.detail)?;
        says.ok_or_else(|| "a rule says nothing".to_owned())
    }

    fn view(&self) -> Value {
        match &self.written {
            Some(offset) => json!({"type": "relative", "anchor": self.anchor, "offset": offset}),
            None => json!({"type": "at_subject_date", "anchor": self.anchor}),
        }
    }

    fn key(&self) -> String {
        match self.written {
            Some(_) => format!("relative:{}:{}", self.anchor, self.offset.num_seconds()),
            None => format!("at_subject_date:{}", self.anchor),
        }
    }
}

/// An ISO 8601 duration of weeks, days, hours, minutes and seconds, with a sign; a day has 24 hours.
fn duration(text: &str) -> Option<TimeDelta> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let rest = rest.strip_prefix('P')?;
    let (date, time) = match rest.split_once('T') {
        Some((_, "")) => return None,
        Some((date, time)) => (date, time),
        None => (rest, ""),
    };
    if date.is_empty() && time.is_empty() {
        return None;
    }
    let seconds = parts(date, &[('W', 604_800), ('D', 86_400)])?
        .checked_add(parts(time, &[('H', 3600), ('M', 60), ('S', 1)])?)?;
    TimeDelta::try_seconds(sign * seconds)
}

/// The seconds of parts such as `2H30M`, each unit once and in order.
fn parts(text: &str, units: &[(char, i64)]) -> Option<i64> {
    let (mut rest, mut seconds) = (text, 0_i64);
    for (unit, each) in units {
        if let Some((number, after)) = rest.split_once(*unit) {
            let is_number = !number.is_empty() && number.len() <= 9 && number.bytes().all(|byte| byte.is_ascii_digit());
            let number: i64 = is_number.then(|| number.parse().ok())??;
            seconds = seconds.checked_add(number.checked_mul(*each)?)?;
            rest = after;
        }
    }
    rest.is_empty().then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_sign() {
        for (text, seconds) in [
            ("-PT24H", Some(-86_400)),
            ("PT15M", Some(900)),
            ("+P1DT2H3M4S", Some(86_400 + 7384)),
            ("-P2W", Some(-1_209_600)),
            ("PT0S", Some(0)),
            ("P", None),
            ("PT", None),
            ("P1DT", None),
            ("PT1M2H", None),
            ("P1H", None),
            ("P1M", None),
            ("PT1.5H", None),
            ("24h", None),
            ("PT99999999999999999999H", None),
            ("", None),
        ] {
            assert_eq!(duration(text).map(|delta| delta.num_seconds()), seconds, "{text:?}");
        }
    }

    #[test]
    fn rules_that_say_the_same_have_one_key() {
        let says = |offset: &str| Says::read(json!({"type": "relative", "anchor": "start", "offset": offset})).unwrap();
        assert_eq!(says("-PT24H").key(), says("-P1D").key());
        assert_ne!(says("-PT24H").view(), says("-P1D").view());
        assert_ne!(says("PT0S").key(), Says::at_subject_date("start").key());
    }

    #[test]
    fn what_a_rule_cannot_say_is_refused_by_field() {
        for (rule, field) in [
            (json!({"type": "sometimes", "anchor": "start"}), "type"),
            (json!({"type": "at_subject_date", "anchor": "middle"}), "anchor"),
            (json!({"type": "relative", "anchor": "end"}), "offset"),
            (json!({"type": "relative", "anchor": "end", "offset": "P400D"}), "offset"),
            (json!({"type": "at_subject_date", "anchor": "end", "offset": "PT1H"}), "offset"),
        ] {
            let refused = Says::read(rule.clone()).unwrap_err();
            assert!(refused.starts_with(field), "{rule}: {refused}");
        }
    }
}
