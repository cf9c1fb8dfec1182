//! Counts requests and how long their answers take, by route.
//!
//! Routes are those of the router, so that callers cannot make labels: what none of them matches counts together.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

/// What is counted of requests.
#[derive(Default)]
pub(crate) struct Requests {
    /// By route; made when a route is first called.
    routes: RwLock<HashMap<Box<str>, Arc<[MethodMeters; METHODS.len()]>>>,
}

/// The methods that routes have; others count together.
const METHODS: [&str; 7] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", OTHER];
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];
const OTHER: &str = "_other";

/// What is counted of one method of a route, from its first call on.
#[derive(Default)]
struct MethodMeters(std::sync::OnceLock<(Histogram, [Counter; CLASSES.len()])>);

impl Requests {
    fn count(&self, route: &str, method: &Method, status: StatusCode, seconds: f64) {
        let method = METHODS.iter().position(|known| *known == method.as_str()).unwrap_or(METHODS.len() - 1);
        let meters = self.meters(route);
        let (duration, answers) = meters[method].0.get_or_init(|| {
            let (route, method) = (route.to_owned(), METHODS[method]);
            let labelled = |class| {
                counter!("punctual_http_requests_total", "method" => method, "route" => route.clone(), "status" => class)
            };
            let answers = CLASSES.map(labelled);
            (histogram!("punctual_http_request_duration_seconds", "method" => method, "route" => route.clone()), answers)
        });
        duration.record(seconds);
        if let Some(answers) = answers.get(usize::from(status.as_u16() / 100).wrapping_sub(1)) {
            answers.increment(1);
        }
    }

    fn meters(&self, route: &str) -> Arc<[MethodMeters; METHODS.len()]> {
        let known = self.routes.read().unwrap_or_else(PoisonError::into_inner).get(route).cloned();
        known.unwrap_or_else(|| {
            let mut routes = self.routes.write().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(routes.entry(route.into()).or_default())
        })
    }
}

/// Counts a request and its answer.
pub(crate) async fn count(State(requests): State<Arc<Requests>>, request: Request, next: Next) -> Response {
    let (asked_at, method) = (Instant::now(), request.method().clone());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let _in_flight = InFlight::new();
    let response = next.run(request).await;
    let route = route.as_ref().map_or(OTHER, MatchedPath::as_str);
    requests.count(route, &method, response.status(), asked_at.elapsed().as_secs_f64());
    response
}

/// A request that is being worked on; one whose caller went away is not any more.
struct InFlight(Gauge);

impl InFlight {
    fn new() -> Self {
        let gauge = gauge!("punctual_http_requests_in_flight");
        gauge.increment(1.0);
        Self(gauge)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}
