//! `/nodes`: who shares the database, who leads, and what the actors of this node are doing.

use std::net::{IpAddr, SocketAddr};

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

const PATH: &str = "/nodes";
/// Of more Dispatchers than that, only those with something to say are shown.
const SHOWN: usize = 100;

/// `GET /nodes`.
pub(crate) async fn show(visitor: Visitor) -> Result<Response, Problem> {
    Parameters::of(&visitor.uri)?.finish()?;
    let (nodes, actors) = tokio::join!(known(&visitor.api), visitor.api.wake.actors());
    let nodes = nodes?;
    let is_here = |known: &KnownNode| known.node.id == visitor.api.node;
    let own = nodes.iter().find(|known| is_here(known)).and_then(|known| known.about.listen.as_deref());
    let links: Vec<_> = nodes
        .iter()
        .map(|known| match &known.about.listen {
            Some(address) if !known.is_silent && Some(&**address) != own => link(address, visitor.is_near()),
            _ => None,
        })
        .collect();
    let rows: Vec<_> = nodes.iter().zip(&links).map(|(node, link)| cells(&visitor, node, link.as_deref())).collect();
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
                span.hint {
                    "Each was asked just now how many messages wait for it."
                    @if links.iter().any(Option::is_some) {
                        " They are those of the node that this page came from: the address of another, above, leads to its own."
                    } @else if !nodes.iter().all(is_here) {
                        " They are those of the node that this page came from: another shows its own at its own address."
                    }
                }
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

/// Where a node that listens on `address` has this page, if a browser can get there that is near (on this machine) or not.
fn link(address: &str, is_near: bool) -> Option<String> {
    let address: SocketAddr = address.parse().ok()?;
    let leads_somewhere = match address.ip() {
        // The same address means another machine to whoever is not on this one.
        ip if ip.is_loopback() => is_near,
        IpAddr::V4(ip) => !ip.is_unspecified() && !ip.is_multicast() && !ip.is_broadcast(),
        // A browser takes no address that is only good on one of the machine's links.
        IpAddr::V6(ip) => !ip.is_unspecified() && !ip.is_multicast() && !ip.is_unicast_link_local(),
    };
    (leads_somewhere && address.port() != 0).then(|| format!("http://{address}{PATH}"))
}

fn cells(visitor: &Visitor, known: &KnownNode, link: Option<&str>) -> Vec<Markup> {
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
            @match (&about.listen, link) {
                (Some(address), Some(link)) => { a href=(link) { code { (address) } } }
                (Some(address), None) => { code { (address) } }
                (None, _) => { span.dim { "nothing" } }
            }
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
    use punctual_actors::{Failure, Mailbox};
    use std::time::{Duration, Instant};

    fn dispatcher(topic: usize, waiting: u64) -> ActorStatus {
        let mailbox = Some(Mailbox { waiting, answered_in: Duration::ZERO });
        ActorStatus { name: format!("dispatcher {topic}"), restarts: 0, failure: None, mailbox }
    }

    #[test]
    fn an_address_is_a_link_where_it_leads_to_the_node() {
        let (near, far) = (true, false);
        for (address, expected) in [
            ("10.0.0.7:7878", Some("http://10.0.0.7:7878/nodes")),
            ("[2001:db8::7]:80", Some("http://[2001:db8::7]:80/nodes")),
            ("127.0.0.1:7878", None),
            ("[::1]:7878", None),
            ("0.0.0.0:7878", None),
            ("[::]:7878", None),
            ("[fe80::1%2]:7878", None),
            ("224.0.0.1:7878", None),
            ("10.0.0.7:0", None),
            ("10.0.0.7", None),
            ("node.example:7878", None),
            ("10.0.0.7:7878/\"><script>", None),
            ("javascript:alert(1)", None),
        ] {
            assert_eq!(link(address, far).as_deref(), expected, "{address}");
        }
        assert_eq!(link("127.0.0.1:7878", near).as_deref(), Some("http://127.0.0.1:7878/nodes"));
        assert_eq!(link("0.0.0.0:7878", near), None);
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

    #[test]
    fn an_actor_says_what_waits_for_it_how_often_it_was_restarted_and_how_it_last_failed() {
        let actor = |waiting: Option<u64>, restarts, error: Option<&str>| ActorStatus {
            name: "claimer".into(),
            restarts,
            failure: error.map(|error| Failure {
                failed_at: Instant::now().checked_sub(Duration::from_secs(240)).unwrap(),
                error: error.into(),
            }),
            mailbox: waiting.map(|waiting| Mailbox { waiting, answered_in: Duration::from_micros(70) }),
        };
        let well = [">0 waiting<", "badge good", "answered in 70 µs", "never restarted", "claims due tasks"];
        for (status, said, unsaid) in [
            (actor(Some(0), 0, None), &well[..], "ago"),
            (actor(Some(100), 0, None), &[">100 waiting<", "badge good"], "badge late"),
            (actor(Some(1_234), 0, None), &[">1\u{202f}234 waiting<", "badge late"], "badge good"),
            (actor(None, 0, None), &[">busy<", "badge late", "no answer within half a second"], "waiting"),
            (actor(Some(0), 1, Some("a <b>panic</b>")), &[">restarted once<", "4 min ago: a &lt;b&gt;panic"], "never"),
            (actor(None, 12, Some("")), &[">restarted 12 times<", "4 min ago: <"], "never"),
        ] {
            let (mut supervisor, all) = (actor(Some(0), 0, None), [status]);
            supervisor.name = "supervisor".into();
            let page = tree(&supervisor, &all).into_string();
            let (first, leaf) = page.split_once("<ul><li>").unwrap();
            assert!(first.contains("supervisor") && first.contains("restarts what fails"), "{first}");
            assert!(leaf.contains("<span class=\"name\">claimer</span>"), "{leaf}");
            assert!(said.iter().all(|part| leaf.contains(part)) && !leaf.contains(unsaid), "{:?}: {leaf}", all[0]);
        }
    }
}
