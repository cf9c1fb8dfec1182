//! One route of the API: method, path, who may call it, what it is called, and what answers it.
//!
//! The router is made of these and of nothing else, each behind the check of its own role: what is not listed does not
//! exist, and what is listed cannot be reached with less than it needs.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::handler::Handler;
use axum::http::{Extensions, Method};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use punctual_domain::key::Role;

use super::Api;
use super::auth::Caller;
use super::openapi::Operation;
use super::problem::{Code, Problem};

/// One route.
pub(crate) struct Endpoint {
    pub(crate) method: Method,
    pub(crate) path: Cow<'static, str>,
    pub(crate) access: Access,
    pub(crate) pace: Pace,
    /// Its name among all operations, such as `listTasks`.
    pub(crate) id: &'static str,
    /// What it does, in one line.
    pub(crate) summary: &'static str,
    /// Says what it takes and answers.
    pub(crate) describe: Describe,
    /// The route of the API that a form of the dashboard calls.
    calls: Option<Called>,
    handler: MethodRouter<Arc<Api>>,
}

/// Who may call a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Everybody, also without a key.
    Open,
    /// Whoever has this role, or a stronger one.
    Role(Role),
}

/// How long a route may take to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// A moment.
    Quick,
    /// As long as it takes to move many tasks.
    Slow,
}

/// A route of the API that a form would have called, had its sender been allowed to.
#[derive(Debug, Clone)]
pub(crate) struct Called {
    pub(crate) method: Method,
    pub(crate) route: &'static str,
}

/// Adds to an operation what it takes and answers.
pub(crate) type Describe = Box<dyn Fn(Operation) -> Operation>;

/// A route without its name.
pub(crate) struct Unnamed(Endpoint);

/// A route that everybody may call.
pub(crate) fn open<H, T>(method: Method, path: &'static str, handler: H) -> Unnamed
where
    H: Handler<T, Arc<Api>>,
    T: 'static,
{
    endpoint(method, path, Access::Open, handler)
}

/// A route for those who may look.
pub(crate) fn read<H, T>(method: Method, path: &'static str, handler: H) -> Unnamed
where
    H: Handler<T, Arc<Api>>,
    T: 'static,
{
    endpoint(method, path, Access::Role(Role::Read), handler)
}

/// A route for those who may hand in work.
pub(crate) fn submit<H, T>(method: Method, path: &'static str, handler: H) -> Unnamed
where
    H: Handler<T, Arc<Api>>,
    T: 'static,
{
    endpoint(method, path, Access::Role(Role::Submit), handler)
}

/// A route for those who may change what is there.
pub(crate) fn operate<H, T>(method: Method, path: &'static str, handler: H) -> Unnamed
where
    H: Handler<T, Arc<Api>>,
    T: 'static,
{
    endpoint(method, path, Access::Role(Role::Operate), handler)
}

/// A route for those who may do everything.
pub(crate) fn admin<H, T>(method: Method, path: &'static str, handler: H) -> Unnamed
where
    H: Handler<T, Arc<Api>>,
    T: 'static,
{
    endpoint(method, path, Access::Role(Role::Admin), handler)
}

/// A route for those who have access.
pub(crate) fn endpoint<H, T>(method: Method, path: impl Into<Cow<'static, str>>, access: Access, handler: H) -> Unnamed
where
    H: Handler<T, Arc<Api>>,
    T: 'static,
{
    #[expect(clippy::expect_used, reason = "the table of routes is a constant, and a test reads it")]
    let filter = MethodFilter::try_from(method.clone()).expect("a method that can be routed");
    Unnamed(Endpoint {
        method,
        path: path.into(),
        access,
        pace: Pace::Quick,
        id: "",
        summary: "",
        describe: Box::new(|operation| operation),
        calls: None,
        handler: on(filter, handler),
    })
}

impl Pace {
    fn deadline(self) -> Duration {
        match self {
            Self::Quick => Duration::from_secs(60),
            Self::Slow => Duration::from_secs(10 * 60),
        }
    }
}

impl Unnamed {
    /// A page of the dashboard: people find it by a link, and no program needs its name.
    pub(crate) fn page(self) -> Endpoint {
        self.0
    }

    /// A form of the dashboard, which calls a route of the API.
    pub(crate) fn form(self, calls: Called) -> Endpoint {
        Endpoint { calls: Some(calls), ..self.0 }
    }

    /// Gives it time.
    pub(crate) fn slow(mut self) -> Self {
        self.0.pace = Pace::Slow;
        self
    }

    /// Names it, and says what it does, what it takes and what it answers. There is no route without that.
    pub(crate) fn named(
        self,
        id: &'static str,
        summary: &'static str,
        describe: impl Fn(Operation) -> Operation + 'static,
    ) -> Endpoint {
        Endpoint { id, summary, describe: Box::new(describe), ..self.0 }
    }
}

impl Endpoint {
    /// Gives it time.
    pub(crate) fn slow(self) -> Self {
        Self { pace: Pace::Slow, ..self }
    }

    /// The same route for everybody, at an address that not everybody reaches.
    pub(crate) fn opened(self) -> Self {
        Self { access: Access::Open, ..self }
    }

    /// Adds the route to a router, behind the check of its role, and with its deadline.
    pub(crate) fn add_to(self, router: Router<Arc<Api>>) -> Router<Arc<Api>> {
        let (access, deadline, calls) = (self.access, self.pace.deadline(), self.calls);
        let layer = from_fn(move |request: Request, next: Next| {
            let calls = calls.clone();
            async move {
                match check(access, &request) {
                    Ok(()) => within(deadline, next.run(request)).await,
                    Err(problem) => {
                        let mut response = problem.into_response();
                        response.extensions_mut().extend(calls.map(refused_call).unwrap_or_default());
                        response
                    }
                }
            }
        });
        router.route(&self.path, self.handler.route_layer(layer))
    }
}

/// Says on an answer which call was refused.
fn refused_call(called: Called) -> Extensions {
    let mut extensions = Extensions::new();
    extensions.insert(called);
    extensions
}

/// Whether the caller's role is enough. Whoever was not identified is nobody.
fn check(access: Access, request: &Request) -> Result<(), Problem> {
    match (access, request.extensions().get::<Caller>()) {
        (Access::Open, _) => Ok(()),
        (Access::Role(needed), Some(caller)) => caller.check_role(needed),
        (Access::Role(_), None) => Err(Problem::new(Code::Unauthenticated, "nobody has looked for an API key")),
    }
}

async fn within(deadline: Duration, answer: impl Future<Output = Response>) -> Response {
    tokio::time::timeout(deadline, answer).await.unwrap_or_else(|_| {
        Problem::unavailable("the request took too long; a write may or may not have happened").into_response()
    })
}
