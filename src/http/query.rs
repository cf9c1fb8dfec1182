//! The parameters of a list: filters, limit and cursor; whatever is not known is refused by name.

use axum::extract::Query;
use axum::http::Uri;
use chrono::{DateTime, Utc};
use punctual_domain::fire::FireStatus;
use punctual_domain::store::{FireFilter, Page, ScheduleFilter, Span, TaskFilter};
use punctual_domain::task::TaskStatus;
use punctual_domain::topic::{Topic, TopicError, TopicPattern};
use uuid::Uuid;

use super::fields::shortened;
use super::problem::{Code, Problem, Refusals};
use super::{cursor, instant};

pub(crate) const DEFAULT_LIMIT: u32 = 50;
pub(crate) const MAX_LIMIT: u32 = 1000;
const NO_CURSOR: &str = "is not a cursor; use nextCursor of the page before as it is";

/// The parameters of one request; those without a value count as not given.
pub(crate) struct Parameters {
    given: Vec<(String, String)>,
    refusals: Refusals,
}

/// Where a page of a list by name begins, and how long it is.
pub(crate) struct NamedPage {
    /// The last name of the page before.
    pub(crate) after: Option<String>,
    /// How many items at the most.
    pub(crate) limit: u32,
}

impl Parameters {
    /// Takes the parameters of an address apart.
    pub(crate) fn of(uri: &Uri) -> Result<Self, Problem> {
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|error| Problem::new(Code::Invalid, format!("the query cannot be read: {error}")))?;
        let mut refusals = Refusals::default();
        let mut given: Vec<(String, String)> = Vec::new();
        for (name, value) in pairs {
            if given.iter().any(|(known, _)| *known == name) {
                refusals.add(shortened(&name), "stands twice; say it once");
            } else if value.contains('\0') {
                refusals.add(shortened(&name), "must not contain the character U+0000");
            } else {
                given.push((name, value));
            }
        }
        Ok(Self { given, refusals })
    }

    /// Reads the filter of a list of tasks.
    pub(crate) fn task_filter(&mut self) -> TaskFilter {
        TaskFilter {
            status: self.statuses(),
            topic: self.topic("topic"),
            owner_id: self.take("ownerId"),
            tenant_id: self.take("tenantId"),
            correlation_id: self.take("correlationId"),
            client_request_id: self.take("clientRequestId"),
            schedule_id: self
                .read("scheduleId", |text| text.parse().map_err(|_| "must be the id of a schedule".into())),
            run_at: Span { from: self.instant("from"), to: self.instant("to") },
        }
    }

    /// Reads the filter of a list of schedules.
    pub(crate) fn schedule_filter(&mut self) -> ScheduleFilter {
        let topic = self.topic("topic");
        let job_type = self.topic("jobType");
        if topic.is_some() && job_type.is_some() {
            self.refusals.add("jobType", "cannot stand beside topic, which is the same; give one of them");
        }
        ScheduleFilter {
            enabled: self.read("enabled", |text| match text {
                "true" => Ok(true),
                "false" => Ok(false),
                _ => Err("must be true or false".into()),
            }),
            topic: topic.or(job_type).map(|topic| topic.to_string()),
            name: self.take("name"),
            owner_id: self.take("ownerId"),
        }
    }

    /// Reads the filter of a list of executions.
    pub(crate) fn fire_filter(&mut self) -> FireFilter {
        FireFilter {
            status: self.read("status", fire_statuses).unwrap_or_default(),
            scheduled_at: Span { from: self.instant("from"), to: self.instant("to") },
        }
    }

    /// Reads how many are wanted.
    pub(crate) fn count(&mut self, default: usize, most: usize) -> usize {
        let count = self.read("count", |text| {
            text.parse()
                .ok()
                .filter(|count| (1..=most).contains(count))
                .ok_or_else(|| format!("must be a whole number from 1 to {most}"))
        });
        count.unwrap_or(default)
    }

    /// Reads which page is wanted.
    pub(crate) fn page<Id: From<Uuid>>(&mut self) -> Page<Id> {
        let limit = self.limit();
        let after = self.read("cursor", |text| cursor::read(text).ok_or_else(|| NO_CURSOR.into()));
        Page { after: after.map(Id::from), limit }
    }

    /// The same for a list by name.
    pub(crate) fn named_page(&mut self) -> NamedPage {
        let limit = self.limit();
        let after = self.read("cursor", |text| cursor::read_name(text).ok_or_else(|| NO_CURSOR.into()));
        NamedPage { after, limit }
    }

    fn limit(&mut self) -> u32 {
        let limit = self.read("limit", |text| {
            text.parse()
                .ok()
                .filter(|limit| (1..=MAX_LIMIT).contains(limit))
                .ok_or_else(|| format!("must be a whole number from 1 to {MAX_LIMIT}"))
        });
        limit.unwrap_or(DEFAULT_LIMIT)
    }

    /// A text, if it was given.
    pub(crate) fn text(&mut self, name: &str) -> Option<String> {
        self.take(name)
    }

    /// An instant that has to be given.
    pub(crate) fn needed(&mut self, name: &'static str) -> DateTime<Utc> {
        if !self.given.iter().any(|(known, value)| known == name && !value.is_empty()) {
            self.refusals.add(name, "is missing: give an RFC 3339 instant such as 2026-11-16T14:30:00Z");
        }
        self.instant(name).unwrap_or_default()
    }

    /// All of them, for those who know them better.
    pub(crate) fn into_pairs(self) -> Result<Vec<(String, String)>, Problem> {
        self.refusals.or(self.given)
    }

    /// Refuses what nobody asked for.
    pub(crate) fn finish(mut self) -> Result<(), Problem> {
        for (name, _) in &self.given {
            self.refusals.add(shortened(name), "is not a known parameter; leave it out or mend its name");
        }
        self.refusals.or(())
    }

    /// Topics and prefixes of topics, separated by commas; none means all.
    pub(crate) fn topics(&mut self) -> Vec<TopicPattern> {
        let read = |text: &str| {
            let name = |name: &str| name.trim().parse().map_err(|error: TopicError| error.to_string());
            text.split(',').map(name).collect::<Result<_, _>>()
        };
        self.read("topic", read).unwrap_or_default()
    }

    /// Some of the words `known`, separated by commas; none means all.
    pub(crate) fn words(&mut self, name: &str, known: &[&'static str]) -> Vec<&'static str> {
        let read = |text: &str| {
            let word = |word: &str| {
                let found = known.iter().copied().find(|known| *known == word.trim());
                found.ok_or_else(|| format!("must be of {}, separated by commas", known.join(", ")))
            };
            text.split(',').map(word).collect::<Result<_, _>>()
        };
        self.read(name, read).unwrap_or_default()
    }

    fn statuses(&mut self) -> Vec<TaskStatus> {
        self.read("status", statuses).unwrap_or_default()
    }

    fn topic(&mut self, name: &str) -> Option<Topic> {
        self.read(name, |text| text.parse().map_err(|error: TopicError| error.to_string()))
    }

    pub(crate) fn instant(&mut self, name: &str) -> Option<DateTime<Utc>> {
        // A plus sign that was not escaped arrives as a blank, and RFC 3339 has no other.
        self.read(name, |text| instant::read(&text.replace(' ', "+")))
    }

    pub(crate) fn read<T>(&mut self, name: &str, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        parse(&self.take(name)?).map_err(|message| self.refusals.add(name, message)).ok()
    }

    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        let position = self.given.iter().position(|(known, _)| known == name)?;
        Some(self.given.swap_remove(position).1).filter(|value| !value.is_empty())
    }
}

/// One status or more, separated by commas; `active` is another name for `running`.
///
/// # Errors
/// A sentence that says what to change.
pub(crate) fn statuses(text: &str) -> Result<Vec<TaskStatus>, String> {
    let known = TaskStatus::ALL.map(TaskStatus::as_str).join(", ");
    let read = |name: &str| match name.trim() {
        "active" => Ok(TaskStatus::Running),
        name => TaskStatus::from_name(name).ok_or_else(|| format!("must be of {known}, separated by commas")),
    };
    text.split(',').map(read).collect()
}

/// One status of executions or more, separated by commas: those of tasks, `skipped`, and `dispatched`.
fn fire_statuses(text: &str) -> Result<Vec<FireStatus>, String> {
    let read = |name: &str| match name.trim() {
        "skipped" => Ok(FireStatus::Skipped),
        "dispatched" => Ok(FireStatus::Dispatched),
        "active" => Ok(FireStatus::Task(TaskStatus::Running)),
        name => TaskStatus::from_name(name).map(FireStatus::Task).ok_or_else(|| {
            let known = TaskStatus::ALL.map(TaskStatus::as_str).join(", ");
            format!("must be of {known}, skipped, dispatched, separated by commas")
        }),
    };
    text.split(',').map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_domain::id::TaskId;

    fn list(query: &str) -> Result<(TaskFilter, Page<TaskId>), Problem> {
        let mut parameters = Parameters::of(&format!("/api/v1/tasks?{query}").parse().unwrap())?;
        let answer = (parameters.task_filter(), parameters.page());
        parameters.finish().map(|()| answer)
    }

    #[test]
    fn every_filter_is_read() {
        let (filter, page) = list(
            "status=pending,active&topic=a.b&ownerId=o&tenantId=t&correlationId=c&clientRequestId=r\
             &scheduleId=018f0000-0000-7000-8000-000000000000&from=2026-01-01T00:00:00%2B01:00\
             &to=2026-01-01T00:00:00+02:00&limit=1000",
        )
        .unwrap();
        assert_eq!(filter.status, [TaskStatus::Pending, TaskStatus::Running]);
        assert_eq!(filter.topic.unwrap().as_str(), "a.b");
        assert_eq!(filter.run_at.from, Some(instant::read("2025-12-31T23:00:00Z").unwrap()));
        assert_eq!(filter.run_at.to, Some(instant::read("2025-12-31T22:00:00Z").unwrap()));
        assert!(filter.schedule_id.is_some() && filter.owner_id.is_some() && filter.client_request_id.is_some());
        assert_eq!(page.limit, 1000);
    }

    #[test]
    fn nothing_given_is_the_first_fifty_and_empty_values_are_nothing() {
        for query in ["", "status=&topic=&cursor=&limit="] {
            assert_eq!(list(query).unwrap(), (TaskFilter::default(), Page::first(50)), "{query}");
        }
    }

    #[test]
    fn what_is_wrong_or_unknown_is_refused_by_name() {
        let problem = list("status=done&limit=0&cursor=x&from=yesterday&colour=red&topic=a%20b&scheduleId=1&to=&to=")
            .unwrap_err();
        let mut fields: Vec<_> = problem.errors.iter().map(|error| error.field.as_str()).collect();
        fields.sort_unstable();
        assert_eq!(fields, ["colour", "cursor", "from", "limit", "scheduleId", "status", "to", "topic"]);
    }

    #[test]
    fn a_cursor_names_the_item_before() {
        let id = TaskId::generate();
        assert_eq!(list(&format!("cursor={}", cursor::after(id.0))).unwrap().1.after, Some(id));
    }
}
