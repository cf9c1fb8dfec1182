//! `/api/v1/prove`, `/simulate`, `/why/{id}` and `/tz-diff`: did it, would it, why not, and what would move.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;

use super::problem::{Code, Problem, Refusals};
use super::query::Parameters;
use super::{Api, json};
use crate::inspect::InspectError;

/// `GET /api/v1/prove?schedule=&from=&to=`.
pub(crate) async fn prove(State(api): State<Arc<Api>>, uri: Uri) -> Result<Response, Problem> {
    let mut parameters = Parameters::of(&uri)?;
    let (schedule, from, to) = (parameters.text("schedule"), parameters.needed("from"), parameters.needed("to"));
    parameters.finish()?;
    json(StatusCode::OK, &api.inspector.prove(schedule.as_deref(), from, to).await?)
}

/// `GET /api/v1/simulate?from=&to=`.
pub(crate) async fn simulate(State(api): State<Arc<Api>>, uri: Uri) -> Result<Response, Problem> {
    let mut parameters = Parameters::of(&uri)?;
    let (from, to) = (parameters.needed("from"), parameters.needed("to"));
    parameters.finish()?;
    json(StatusCode::OK, &api.inspector.simulate(from, to).await?)
}

/// `GET /api/v1/why/{id}`.
pub(crate) async fn why(State(api): State<Arc<Api>>, Path(id): Path<String>, uri: Uri) -> Result<Response, Problem> {
    Parameters::of(&uri)?.finish()?;
    json(StatusCode::OK, &api.inspector.why(&id).await?)
}

/// `GET /api/v1/tz-diff`.
pub(crate) async fn tz_diff(State(api): State<Arc<Api>>, uri: Uri) -> Result<Response, Problem> {
    Parameters::of(&uri)?.finish()?;
    json(StatusCode::OK, &api.inspector.tz_diff_to_newest().await?)
}

impl From<InspectError> for Problem {
    fn from(error: InspectError) -> Self {
        match error {
            InspectError::Store(error) => error.into(),
            InspectError::NotFound(_) => Self::new(Code::NotFound, error.to_string()),
            InspectError::Refused { field, message } => {
                let mut refusals = Refusals::default();
                refusals.add(field, message);
                match refusals.or(()) {
                    Err(problem) => problem,
                    Ok(()) => Self::new(Code::Invalid, field),
                }
            }
        }
    }
}
