//! `/api/v1/templates`: the messages that plugins send, filled with their samples.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use punctual_sdk::TemplateError;

use super::problem::Problem;
use super::query::Parameters;
use super::{Api, cursor, json};

pub(crate) const PATH: &str = "/api/v1/templates";

/// `GET /api/v1/templates`.
pub(crate) async fn list(State(api): State<Arc<Api>>, uri: Uri) -> Result<Response, Problem> {
    Parameters::of(&uri)?.finish()?;
    let previews = api.templates.previews().map_err(unusable)?;
    cursor::page(&uri, &previews, None)
}

/// `GET /api/v1/templates/{plugin}/{slug}`.
pub(crate) async fn show(
    State(api): State<Arc<Api>>,
    Path((plugin, slug)): Path<(String, String)>,
    uri: Uri,
) -> Result<Response, Problem> {
    Parameters::of(&uri)?.finish()?;
    let preview = api.templates.preview(&format!("{plugin}/{slug}"), None).map_err(unusable)?;
    json(StatusCode::OK, &preview)
}

fn unusable(error: TemplateError) -> Problem {
    match error {
        TemplateError::Unknown(name) => Problem::not_found(&format!("template {name}")),
        // They were filled with the same values at the start.
        error => Problem::unavailable(&error.to_string()),
    }
}
