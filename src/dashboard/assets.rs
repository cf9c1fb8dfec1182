//! The stylesheet, the script and the icon, from the binary. Their addresses change with what is in them, so browsers may
//! keep them for good.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

use crate::http::problem::Problem;

/// One file that pages need.
pub(crate) struct Asset {
    /// Where it is found.
    pub(crate) path: String,
    kind: &'static str,
    text: &'static str,
}

/// How everything looks.
pub(crate) static STYLE: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("dashboard", "css", "text/css; charset=utf-8", include_str!("assets/dashboard.css")));
/// What brings pages up to date.
pub(crate) static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("dashboard", "js", "text/javascript; charset=utf-8", include_str!("assets/dashboard.js"))
});
/// The picture on the tab.
pub(crate) static ICON: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("icon", "svg", "image/svg+xml", include_str!("assets/icon.svg")));

impl Asset {
    fn new(name: &str, ending: &str, kind: &'static str, text: &'static str) -> Self {
        let hash: String = Sha256::digest(text).iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        Self { path: format!("/assets/{name}-{hash}.{ending}"), kind, text }
    }
}

/// `GET /assets/{name}`.
pub(crate) async fn show(Path(name): Path<String>) -> Result<Response, Problem> {
    let is_it = |asset: &&LazyLock<Asset>| asset.path.strip_prefix("/assets/") == Some(&*name);
    let found = [&STYLE, &SCRIPT, &ICON].into_iter().find(is_it);
    let asset = found.ok_or_else(|| Problem::not_found("such file; reload the page"))?;
    let kept = "public, max-age=31536000, immutable";
    Ok(([(header::CONTENT_TYPE, asset.kind), (header::CACHE_CONTROL, kept)], asset.text).into_response())
}
