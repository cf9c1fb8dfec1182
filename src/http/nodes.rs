//! `GET /api/v1/nodes`: the processes that share the store.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use chrono::{DateTime, TimeDelta, Utc};
use punctual_domain::id::NodeId;
use punctual_domain::node::Node;
use punctual_domain::store::Page;
use serde::{Deserialize, Serialize};

use super::instant::Instant;
use super::problem::Problem;
use super::query::Parameters;
use super::{Api, cursor};
use crate::coordination::LEADERSHIP;

/// How long a node is shown that is not heard of any more; a while later its row is removed.
const SHOWN: Duration = Duration::from_secs(10 * 60);

/// How many of its beats a node misses before it is taken for dead, and how much later a beat may come than it should.
const MISSED_BEATS: i32 = 3;
const TOLERATED: TimeDelta = TimeDelta::seconds(2);

/// `GET /api/v1/nodes`.
pub(crate) async fn list(State(api): State<Arc<Api>>, uri: Uri) -> Result<Response, Problem> {
    let mut parameters = Parameters::of(&uri)?;
    let page: Page<NodeId> = parameters.page();
    parameters.finish()?;
    let known = known(&api).await?;
    let views: Vec<_> = known.iter().map(NodeView::of).collect();
    cursor::page_of(&uri, &views, page, |view| view.id)
}

/// The nodes that share the database.
pub(crate) async fn known(api: &Api) -> Result<Vec<KnownNode>, Problem> {
    let (nodes, leadership) = tokio::try_join!(api.store.nodes(SHOWN), api.store.leadership(LEADERSHIP))?;
    let leader = leadership.filter(|leadership| leadership.expires_at > api.time.now()).map(|held| held.owner);
    // Where there can be no others nobody is elected: this one leads unless it is paused, and any before it has ended.
    let has_others = api.store.has_other_nodes();
    let leads = |node: &Node| if has_others { leader == Some(node.id) } else { !api.state.is_paused() };
    let now = api.time.now();
    Ok(nodes
        .into_iter()
        .filter(|node| has_others || node.id == api.node)
        .map(|node| {
            // One of another release may say other things.
            let about: About = serde_json::from_str(node.about.as_str()).unwrap_or_default();
            let silence = TimeDelta::milliseconds(about.beat_ms) * MISSED_BEATS + TOLERATED;
            KnownNode { is_silent: now - node.seen_at > silence, leads: leads(&node), about, node }
        })
        .collect())
}

/// A node, and how it stands.
pub(crate) struct KnownNode {
    pub(crate) node: Node,
    pub(crate) about: About,
    /// Whether it missed so many beats that it must have died, or cannot reach the store.
    pub(crate) is_silent: bool,
    /// Whether it decides what is due.
    pub(crate) leads: bool,
}

impl KnownNode {
    /// For how long it has been running; nobody knows of a silent one that it did after it was last heard of.
    pub(crate) fn uptime(&self, now: DateTime<Utc>) -> TimeDelta {
        let until = if self.is_silent { self.node.seen_at } else { now };
        until - self.node.started_at
    }
}

/// A node as the API shows it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeView<'a> {
    id: NodeId,
    version: &'a str,
    tz_version: &'a str,
    started_at: Instant,
    seen_at: Instant,
    paused: bool,
    silent: bool,
    leader: bool,
    plugins: &'a [String],
    listen: Option<&'a str>,
}

/// What a node says about itself.
#[derive(Deserialize)]
#[serde(default)]
pub(crate) struct About {
    pub(crate) paused: bool,
    pub(crate) plugins: Vec<String>,
    pub(crate) listen: Option<String>,
    beat_ms: i64,
}

impl Default for About {
    fn default() -> Self {
        Self { paused: false, plugins: Vec::new(), listen: None, beat_ms: 10_000 }
    }
}

impl<'a> NodeView<'a> {
    fn of(KnownNode { node, about, is_silent, leads }: &'a KnownNode) -> Self {
        Self {
            id: node.id,
            version: &node.version,
            tz_version: &node.tz_version,
            started_at: Instant(node.started_at),
            seen_at: Instant(node.seen_at),
            paused: about.paused,
            silent: *is_silent,
            leader: *leads,
            plugins: &about.plugins,
            listen: about.listen.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use punctual_domain::json::Json;

    use super::*;

    #[test]
    fn a_silent_node_ran_until_it_was_last_heard_of() {
        let started_at = DateTime::UNIX_EPOCH;
        let node = Node {
            id: NodeId::generate(),
            version: "0.1.0".into(),
            tz_version: "2026a".into(),
            about: Json::from_stored("{}"),
            started_at,
            seen_at: started_at + TimeDelta::seconds(10),
        };
        let mut known = KnownNode { node, about: About::default(), is_silent: false, leads: false };
        let now = started_at + TimeDelta::minutes(3);
        assert_eq!(known.uptime(now), TimeDelta::minutes(3));
        known.is_silent = true;
        assert_eq!(known.uptime(now), TimeDelta::seconds(10));
    }
}
