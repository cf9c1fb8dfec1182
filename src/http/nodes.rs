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
    let (nodes, leadership) = tokio::try_join!(api.store.nodes(SHOWN), api.store.leadership(LEADERSHIP))?;
    let leader = leadership.filter(|leadership| leadership.expires_at > api.time.now()).map(|held| held.owner);
    // Where there can be no others nobody is elected: whoever works leads.
    let leads = |node: &Node| match api.store.has_other_nodes() {
        true => leader == Some(node.id),
        false => !api.state.is_paused(),
    };
    let now = api.time.now();
    let views: Vec<_> = nodes.iter().map(|node| NodeView::of(node, leads(node), now)).collect();
    cursor::page_of(&uri, &views, page, |view| view.id)
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
    /// Whether it missed so many beats that it must have died, or cannot reach the store.
    silent: bool,
    /// Whether it decides what is due.
    leader: bool,
    plugins: Vec<String>,
    listen: Option<String>,
}

/// What a node says about itself.
#[derive(Deserialize)]
#[serde(default)]
struct About {
    paused: bool,
    plugins: Vec<String>,
    listen: Option<String>,
    beat_ms: i64,
}

impl Default for About {
    fn default() -> Self {
        Self { paused: false, plugins: Vec::new(), listen: None, beat_ms: 10_000 }
    }
}

impl<'a> NodeView<'a> {
    fn of(node: &'a Node, leader: bool, now: DateTime<Utc>) -> Self {
        // One of another release may say other things.
        let About { paused, plugins, listen, beat_ms } = serde_json::from_str(node.about.as_str()).unwrap_or_default();
        Self {
            id: node.id,
            version: &node.version,
            tz_version: &node.tz_version,
            started_at: Instant(node.started_at),
            seen_at: Instant(node.seen_at),
            paused,
            silent: now - node.seen_at > TimeDelta::milliseconds(beat_ms) * MISSED_BEATS + TOLERATED,
            leader,
            plugins,
            listen,
        }
    }
}
