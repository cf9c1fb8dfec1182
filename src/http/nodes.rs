//! `GET /api/v1/nodes`: the processes that share the store.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use punctual_domain::id::NodeId;
use punctual_domain::node::Node;
use serde::{Deserialize, Serialize};

use super::instant::Instant;
use super::problem::Problem;
use super::query::Parameters;
use super::{Api, cursor};

/// How long a node is shown that is not heard of any more; a while later its row is removed.
const SHOWN: Duration = Duration::from_secs(10 * 60);

/// `GET /api/v1/nodes`.
pub(crate) async fn list(State(api): State<Arc<Api>>, uri: Uri) -> Result<Response, Problem> {
    Parameters::of(&uri)?.finish()?;
    let nodes = api.store.nodes(SHOWN).await?;
    let items: Vec<_> = nodes.iter().map(NodeView::of).collect();
    cursor::page(&uri, &items, None)
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
    plugins: Vec<String>,
    listen: Option<String>,
}

/// What a node says about itself.
#[derive(Default, Deserialize)]
#[serde(default)]
struct About {
    paused: bool,
    plugins: Vec<String>,
    listen: Option<String>,
}

impl<'a> NodeView<'a> {
    fn of(node: &'a Node) -> Self {
        // One of another release may say other things.
        let About { paused, plugins, listen } = serde_json::from_str(node.about.as_str()).unwrap_or_default();
        Self {
            id: node.id,
            version: &node.version,
            tz_version: &node.tz_version,
            started_at: Instant(node.started_at),
            seen_at: Instant(node.seen_at),
            paused,
            plugins,
            listen,
        }
    }
}
