//! The world around the demo's service, on a port of this machine: a partner who takes webhooks and sometimes cannot, a
//! lab with results, and a receiver of messages that refuses them.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

/// What signs webhooks to it.
pub(super) const SECRET: &str = "whsec_ZGVtbyBvZiBwdW5jdHVhbCwgbm90IGEgc2VjcmV0";

/// A kit whose result the lab has.
pub(super) const KIT: &str = "KIT-2041";

/// The world, for as long as it is kept.
pub(super) struct Outside {
    address: SocketAddr,
    _serving: AbortOnDropHandle<std::io::Result<()>>,
}

impl Outside {
    pub(super) async fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let router = Router::new()
            .route("/partner", post(partner))
            .route("/lab/results", get(lab))
            .route("/messages", post(messages))
            .with_state(Arc::new(AtomicU64::new(0)));
        let serving = AbortOnDropHandle::new(tokio::spawn(axum::serve(listener, router).into_future()));
        Ok(Self { address, _serving: serving })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Every fourth webhook comes at a bad moment.
async fn partner(State(calls): State<Arc<AtomicU64>>) -> (StatusCode, Json<Value>) {
    match calls.fetch_add(1, Ordering::Relaxed) % 4 {
        2 => (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "error": "maintenance until noon" }))),
        number => (StatusCode::OK, Json(json!({ "accepted": true, "number": number }))),
    }
}

async fn lab() -> Json<Value> {
    Json(json!({ "results": [{ "kit_serial_number": KIT, "radon_level": 87 }] }))
}

async fn messages() -> (StatusCode, &'static str) {
    (StatusCode::UNPROCESSABLE_ENTITY, "this address takes no messages")
}
