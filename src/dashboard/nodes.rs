//! `/nodes`: who shares the database, who leads, and what the actors of this node are doing.

use axum::response::Response;
use chrono::TimeDelta;
use maud::{Markup, html};
use punctual_actors::ActorStatus;

use super::layout::Place;
use super::parts::{self, Tone, badge};
use super::visitor::Visitor;
use crate::http::nodes::{KnownNode, known};
use crate::http::problem::Problem;
use crate::http::query::Parameters;

/// Of more Dispatchers than that, only those with something to say are shown.
const SHOWN: usize = 100;

/// `GET /nodes`.
pub(crate) async fn show(visitor: Visitor) -> Result<Response, Problem> {
    Parameters::of(&visitor.uri)?.finish()?;
    let (nodes, actors) = tokio::join!(known(&visitor.api), visitor.api.wake.actors());
    let nodes = nodes?;
    let rows: Vec<_> = nodes.iter().map(|node| cells(&visitor, node)).collect();
    let heads = ["Node", "State", "Seen", "Running for", "Listens on", "Plugins", "Version"];
    let body = html! {
        section #nodes.sheet data-live {
            div.head {
                h1 { "Nodes" }
                span.hint { (sentence(&nodes)) }
            }
            (parts::table("Nodes that share the database", &heads, &rows))
        }
        section #actors.sheet data-live {
            div.head {
                h2 { "Actors of this node" }
                span.hint { "Each was asked just now how many messages wait for it." }
            }
            @match actors.split_first() {
                Some((supervisor, others)) => { (tree(supervisor, others)) }
                None => { (parts::empty("The supervisor and the actors below it would be here. This node is paused, or too busy to answer.")) }
            }
        }
    };
    Ok(visitor.page(Place::Nodes, "Nodes", &body))
}

fn sentence(nodes: &[KnownNode]) -> String {
    let silent = nodes.iter().filter(|node| node.is_silent).count();
    let all = nodes.len();
    let leads = if nodes.iter().any(|node| node.leads && !node.is_silent) { "one leads" } else { "nobody leads" };
    match (all, silent) {
        (1, 0) => format!("1 node is well, {leads}"),
        (_, 0) => format!("All {all} nodes are well, {leads}"),
        (_, 1) => format!("1 of {all} nodes is silent, {leads}"),
        _ => format!("{silent} of {all} nodes are silent, {leads}"),
    }
}

fn cells(visitor: &Visitor, known: &KnownNode) -> Vec<Markup> {
    let KnownNode { node, about, is_silent, leads } = known;
    let is_here = node.id == visitor.api.node;
    vec![
        html! { code { (node.id) } @if is_here { span.sub { "this node" } } },
        html! {
            @if *is_silent { (badge(Tone::Bad, "silent")) }
            @else if about.paused { (badge(Tone::Waiting, "paused")) }
            @else { (badge(Tone::Good, "works")) }
            @if *leads { " " (badge(Tone::Busy, "leads")) }
        },
        parts::ago(node.seen_at, visitor.now),
        html! { (parts::span(known.uptime(visitor.now))) },
        html! {
            @match &about.listen { Some(address) => { code { (address) } } None => { span.dim { "nothing" } } }
        },
        html! {
            @if about.plugins.is_empty() { span.dim { "none" } } @else { (about.plugins.join(", ")) }
        },
        html! { (node.version) span.sub { "zone data " (node.tz_version) } },
    ]
}

/// The tree as a list of lists: the Supervisor, its actors, and one Dispatcher per topic that has had something to do lately.
fn tree(supervisor: &ActorStatus, others: &[ActorStatus]) -> Markup {
    let (dispatchers, fixed): (Vec<_>, Vec<_>) = others.iter().partition(|actor| actor.name.starts_with("dispatcher "));
    let (shown, busy, idle) = shown(&dispatchers);
    html! {
        ul.tree {
            li {
                (leaf(supervisor, &supervisor.name, "restarts what fails, stops in order"))
                ul {
                    @for actor in fixed { li { (leaf(actor, &actor.name, duty(&actor.name))) } }
                    @for actor in shown {
                        li { (leaf(actor, &actor.name, "")) }
                    }
                    @if busy > 0 { li.dim { "and " (busy) " more Dispatchers with something waiting, or that were restarted" } }
                    @if idle > 0 { li.dim { "and " (idle) " Dispatchers with nothing waiting" } }
                    @if dispatchers.is_empty() { li.dim { "a Dispatcher would be here for each topic that has had something to do lately" } }
                }
            }
        }
    }
}

/// All of a few; of many those with something to say, as many as fit. Then how many of those are left, and of the others.
fn shown<'a>(dispatchers: &[&'a ActorStatus]) -> (Vec<&'a ActorStatus>, usize, usize) {
    if dispatchers.len() <= SHOWN {
        return (dispatchers.to_vec(), 0, 0);
    }
    let says_something =
        |actor: &&ActorStatus| actor.restarts > 0 || actor.mailbox.is_none_or(|mailbox| mailbox.waiting > 0);
    let (mut shown, idle): (Vec<_>, Vec<_>) = dispatchers.iter().copied().partition(says_something);
    let left = shown.len().saturating_sub(SHOWN);
    shown.truncate(SHOWN);
    (shown, left, idle.len())
}

fn duty(actor: &str) -> &'static str {
    match actor {
        "settler" => "writes outcomes",
        "claimer" => "claims due tasks",
        "reconciler" => "frees expired leases, notes missed fires",
        "ticker" => "fires schedules, where this node leads",
        "elector" => "finds out who leads",
        "notifier" => "sends messages",
        _ => "",
    }
}

fn leaf(actor: &ActorStatus, name: &str, duty: &str) -> Markup {
    html! {
        div.actor {
            span.name { (name) }
            @match actor.mailbox {
                Some(mailbox) => {
                    @let tone = if mailbox.waiting > 100 { Tone::Late } else { Tone::Good };
                    (badge(tone, &format!("{} waiting", parts::number(mailbox.waiting))))
                    span.dim { "answered in " (took(mailbox.answered_in)) }
                }
                None => { (badge(Tone::Late, "busy")) span.dim { "no answer within half a second" } }
            }
            @if actor.restarts > 0 {
                (badge(Tone::Bad, &match actor.restarts { 1 => "restarted once".to_owned(), times => format!("restarted {times} times") }))
            } @else { span.dim { "never restarted" } }
            span.dim.duty { (duty) }
            @if let Some(failure) = &actor.failure {
                span.sub.wrong { (parts::span(TimeDelta::from_std(failure.failed_at.elapsed()).unwrap_or_default())) " ago: " (failure.error) }
            }
        }
    }
}

fn took(time: std::time::Duration) -> String {
    match time.as_millis() {
        0 => format!("{} µs", time.as_micros()),
        millis => format!("{millis} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_actors::Mailbox;
    use std::time::Duration;

    fn dispatcher(topic: usize, waiting: u64) -> ActorStatus {
        let mailbox = Some(Mailbox { waiting, answered_in: Duration::ZERO });
        ActorStatus { name: format!("dispatcher {topic}"), restarts: 0, failure: None, mailbox }
    }

    #[test]
    fn of_very_many_dispatchers_those_are_shown_that_fall_behind() {
        let all: Vec<_> = (0..150).map(|topic| dispatcher(topic, u64::from(topic == 77))).collect();
        let (few, busy, idle) = shown(&all.iter().take(100).collect::<Vec<_>>());
        assert_eq!((few.len(), busy, idle), (100, 0, 0));
        let (many, busy, idle) = shown(&all.iter().collect::<Vec<_>>());
        assert_eq!((many.len(), many[0].name.as_str(), busy, idle), (1, "dispatcher 77", 0, 149));
        let all: Vec<_> = (0..150).map(|topic| dispatcher(topic, u64::from(topic < 120))).collect();
        let (many, busy, idle) = shown(&all.iter().collect::<Vec<_>>());
        assert_eq!((many.len(), busy, idle), (100, 20, 30), "those that do not fit are not called idle");
    }
}
