//! `/topics`: what serves which tasks, how much waits, and for how long.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Path;
use axum::http::Method;
use axum::response::Response;
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use punctual_domain::key::Role;
use punctual_domain::store::Load;
use punctual_domain::topic::{Route, Topic, TopicDefinition};
use serde_json::json;

use super::form::encoded;
use super::lately::within;
use super::layout::Place;
use super::overview::{DEADLINE, FRESH};
use super::parts::{self, Tone, badge};
use super::visitor::Visitor;
use crate::http::Api;
use crate::http::problem::Problem;
use crate::http::query::Parameters;

const PATH: &str = "/topics";
/// How long the page waits for the first look at very many tasks; later ones show what was seen before.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many topics of a definition are named.
const NAMED: usize = 5;

/// What the topics had to do when it was looked.
pub(crate) struct Loads {
    pub(crate) at: DateTime<Utc>,
    pub(crate) topics: Vec<Load>,
}

/// A definition with what it has to do; none for the topics that nobody defined.
struct Row<'a> {
    definition: Option<&'a TopicDefinition>,
    loads: Vec<&'a Load>,
}

/// `GET /topics`.
pub(crate) async fn list(visitor: Visitor) -> Result<Response, Problem> {
    Parameters::of(&visitor.uri)?.finish()?;
    let definitions = visitor.api.store.topics().await?;
    let loads = loads(&visitor.api, PATIENCE).await;
    let rows = rows(&definitions, loads.as_ref().map_or(&[], |loads| &loads.topics));
    let counted_at = loads.as_ref().map(|loads| loads.at);
    let shown: Vec<_> = rows.iter().map(|row| cells(&visitor, row, counted_at)).collect();
    let heads = ["Topic", "Route", "Due", "Running", "Rate", "Lag", "State", ""];
    let body = html! {
        section #topics.sheet data-live {
            div.head {
                h1 { "Topics" }
                span.hint {
                    @if loads.is_some() { (sentence(&rows)) }
                    @else { "There is much to count: what waits and runs appears here once it is." }
                }
            }
            @if shown.is_empty() {
                (parts::empty("Topics that somebody defined would be here, and those with tasks to do. Tasks of other topics are only announced."))
            } @else {
                (parts::table("Topics with what they have to do", &heads, &shown))
            }
        }
        p.hint {
            "Due are pending tasks whose time has come and that nobody has begun; the lag is how long the oldest of them waits. A name that ends in "
            code { ".*" } " stands for all topics that begin so and have no closer definition."
        }
    };
    Ok(visitor.page(Place::Topics, "Topics", &body))
}

/// What the topics have to do, as it was seen a moment ago.
pub(crate) async fn loads(api: &Api, patience: Duration) -> Option<Arc<Loads>> {
    let (store, at) = (Arc::clone(&api.store), api.time.now());
    let look = move |_| async move {
        Ok(Loads { at, topics: within(DEADLINE, "what the topics have to do", store.loads()).await? })
    };
    api.glances.loads.get(FRESH, patience, look).await
}

/// `POST /topics/{name}/pause`.
pub(crate) async fn pause(visitor: Visitor, Path(name): Path<String>) -> Result<Response, Problem> {
    act(&visitor, &name, "pause", &format!("{name} is paused: its tasks wait.")).await
}

/// `POST /topics/{name}/resume`.
pub(crate) async fn resume(visitor: Visitor, Path(name): Path<String>) -> Result<Response, Problem> {
    act(&visitor, &name, "resume", &format!("{name} works again.")).await
}

async fn act(visitor: &Visitor, name: &str, what: &str, done: &str) -> Result<Response, Problem> {
    match visitor.act(Method::POST, &["topics", name, what], Some(&json!({}))).await {
        Ok(_) => Ok(visitor.done(PATH, done)),
        Err(problem) => visitor.refused(PATH, problem),
    }
}

/// Every definition with the topics it applies to, and at the end those without one.
fn rows<'a>(definitions: &'a [TopicDefinition], loads: &'a [Load]) -> Vec<Row<'a>> {
    let mut rows: Vec<_> =
        definitions.iter().map(|definition| Row { definition: Some(definition), loads: Vec::new() }).collect();
    rows.push(Row { definition: None, loads: Vec::new() });
    for load in loads {
        let topic = Topic::from_stored(load.topic.as_str());
        let applies = TopicDefinition::for_topic(definitions, &topic).map(|definition| &definition.name);
        let row = rows.iter_mut().find(|row| row.definition.map(|definition| &definition.name) == applies);
        row.into_iter().for_each(|row| row.loads.push(load));
    }
    rows.retain(|row| row.definition.is_some() || !row.loads.is_empty());
    rows
}

impl Row<'_> {
    fn due(&self) -> u64 {
        self.loads.iter().map(|load| load.due).sum()
    }

    fn running(&self) -> u64 {
        self.loads.iter().map(|load| load.running).sum()
    }

    /// The topics that have another name than the definition, those with the most to do first, and how many more there are.
    fn busiest(&self) -> (Vec<&Load>, usize) {
        let name = self.definition.map(|definition| definition.name.as_str());
        let mut others: Vec<_> = self.loads.iter().copied().filter(|load| Some(load.topic.as_str()) != name).collect();
        others.sort_by(|one, other| (other.due, other.running, &one.topic).cmp(&(one.due, one.running, &other.topic)));
        let more = others.len().saturating_sub(NAMED);
        others.truncate(NAMED);
        (others, more)
    }
}

fn sentence(rows: &[Row<'_>]) -> String {
    let (due, running): (u64, u64) = (rows.iter().map(Row::due).sum(), rows.iter().map(Row::running).sum());
    let tasks = if due == 1 { "task waits" } else { "tasks wait" };
    format!(
        "{} {tasks}, {} running",
        parts::number(due),
        if running == 1 { "1 is".into() } else { format!("{} are", parts::number(running)) }
    )
}

/// `counted_at`: when it was looked what there is to do, if that is known.
fn cells(visitor: &Visitor, row: &Row<'_>, counted_at: Option<DateTime<Utc>>) -> Vec<Markup> {
    let name = row.definition.map_or("all others", |definition| definition.name.as_str());
    let (busiest, more) = row.busiest();
    let due_since = row.loads.iter().filter_map(|load| load.due_since).min();
    let is_paused = row.definition.is_some_and(|definition| definition.paused);
    let count = |count: u64| html! { @if counted_at.is_some() { (parts::number(count)) } @else { span.dim { "?" } } };
    vec![
        html! {
            @if name.contains('*') || row.definition.is_none() { span.mono { (name) } }
            @else { a.mono href={ "/tasks?topic=" (encoded(name)) } { (name) } }
            @for load in busiest {
                span.sub {
                    a.mono href={ "/tasks?topic=" (encoded(&load.topic)) } { (load.topic) }
                    " " (parts::number(load.due)) " due, " (parts::number(load.running)) " running"
                }
            }
            @if more > 0 { span.sub { "and " (more) " more" } }
        },
        route(visitor, row.definition),
        count(row.due()),
        html! {
            (count(row.running()))
            @if let Some(definition) = row.definition { span.dim { " of " (definition.concurrency) (limit(definition)) } }
        },
        html! {
            @match row.definition.and_then(|definition| definition.rate_per_second) {
                Some(rate) => { (rate) " /s" }
                None => { span.dim { "no limit" } }
            }
        },
        html! {
            @match (counted_at, due_since) {
                (Some(at), Some(since)) => { (parts::span(at - since)) }
                (None, _) => { span.dim { "?" } }
                (_, None) => { span.dim { "none" } }
            }
        },
        match is_paused {
            true => badge(Tone::Waiting, "paused"),
            false => badge(Tone::Good, "works"),
        },
        html! {
            @if row.definition.is_some_and(|definition| visitor.may(Role::Operate) && visitor.caller.check_pattern(&definition.name).is_ok()) {
                div.actions {
                    @let action = |what: &str| format!("{PATH}/{}/{what}", encoded(name));
                    @if is_paused { (parts::act(&action("resume"), "Resume", "")) }
                    @else { (parts::act(&action("pause"), "Pause", "")) }
                }
            }
        },
    ]
}

/// What a topic's concurrency counts.
fn limit(definition: &TopicDefinition) -> &'static str {
    match (&definition.route, definition.name.as_str().ends_with('*')) {
        (Route::Pull, _) => " in all",
        (_, true) => " per topic and node",
        (_, false) => " per node",
    }
}

fn route(visitor: &Visitor, definition: Option<&TopicDefinition>) -> Markup {
    let unserved = definition.and_then(|definition| visitor.api.topics.unserved(&definition.route));
    html! {
        @match definition.map(|definition| &definition.route) {
            Some(Route::Handler) => { "handler" }
            Some(Route::Pull) => { "pull" span.sub { "workers claim them" } }
            Some(Route::Webhook { url, .. }) => { "webhook" span.sub { code { (url) } } }
            Some(Route::Bullmq { queue, .. }) => { "bullmq" span.sub { "queue " code { (queue) } } }
            Some(Route::Event) | None => { "event" span.sub { "only announced" } }
        }
        @if let Some(unserved) = unserved { span.sub.wrong { (unserved) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_topic_counts_with_the_definition_that_applies() {
        let definitions: Vec<_> =
            ["mail", "shop.*"].map(|name| TopicDefinition::new(name.parse().unwrap(), Route::Event)).into();
        let load = |topic: &str, due| Load { topic: topic.into(), due, due_since: None, running: 1 };
        let loads = [load("mail", 1), load("mail.late", 2), load("shop.a", 4), load("shop.b", 8)];
        let rows = rows(&definitions, &loads);
        let found: Vec<_> =
            rows.iter().map(|row| (row.definition.map(|one| one.name.as_str()), row.due(), row.running())).collect();
        assert_eq!(found, [(Some("mail"), 1, 1), (Some("shop.*"), 12, 2), (None, 2, 1)]);
        assert_eq!(sentence(&rows), "15 tasks wait, 4 are running");
    }

    #[test]
    fn of_many_topics_those_are_named_that_have_the_most_to_do() {
        let definition = TopicDefinition::new("shop.*".parse().unwrap(), Route::Event);
        for (dues, named, more) in [
            (&[1_u64, 2, 3, 4, 5][..], "54321", 0),
            (&[1, 2, 3, 4, 5, 6], "65432", 1),
            (&[3, 1, 2, 9, 4, 8, 7], "98743", 2),
        ] {
            let load = |due: &u64| Load { topic: format!("shop.{due}"), due: *due, due_since: None, running: 0 };
            let loads: Vec<_> = dues.iter().map(load).collect();
            let row = Row { definition: Some(&definition), loads: loads.iter().collect() };
            let (busiest, rest) = row.busiest();
            let found: String = busiest.iter().map(|load| load.due.to_string()).collect();
            assert_eq!((&*found, rest), (named, more), "{dues:?}");
        }
    }

    #[test]
    fn topics_that_nobody_defined_show_only_if_they_have_something_to_do() {
        assert!(rows(&[], &[]).is_empty());
        assert_eq!(sentence(&[]), "0 tasks wait, 0 are running");
    }
}
