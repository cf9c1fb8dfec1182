//! `/api/v1/plugins/<name>/…`: the routes that plugins bring, each behind what every other route is behind.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{FromRequest, RawPathParams, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use punctual_domain::invalid::FieldError;
use punctual_domain::json::Json;
use punctual_domain::key::Role;
use punctual_domain::store::Answer;
use punctual_domain::topic::TopicPattern;
use punctual_sdk::engine::{self, Engine};
use punctual_sdk::{self as sdk, AnswerContent, Plugin, ProblemKind, Route};
use serde_json::Value;

use super::auth::Caller;
use super::body::{JsonBody, OptionalBody, PatchBody};
use super::call::{Call, idempotency_key};
use super::endpoint::{Access, Endpoint, endpoint};
use super::openapi::Operation;
use super::problem::{Code, Problem, Refusals};
use super::query::Parameters;
use super::{Api, cursor};
use crate::plugins::BadPlugin;

/// The routes of some plugins.
#[derive(Clone, Default)]
pub(crate) struct PluginRoutes {
    routes: Vec<Arc<PluginRoute>>,
    /// What their code may use.
    engine: Option<Arc<dyn Engine>>,
}

/// One route, and whose it is.
struct PluginRoute {
    plugin: &'static str,
    /// The topics that the plugin has handlers for.
    topics: Vec<TopicPattern>,
    route: Route,
}

impl PluginRoutes {
    /// Those of these plugins.
    ///
    /// # Errors
    /// When one says too little, or the same as another.
    pub(crate) fn of(plugins: &[Arc<dyn Plugin>]) -> Result<Self, BadPlugin> {
        let (mut ids, mut paths) = (BTreeSet::new(), BTreeSet::new());
        let mut routes = Vec::new();
        for plugin in plugins {
            let refused = |error: String| BadPlugin::Route { plugin: plugin.name(), error };
            let topics: Vec<_> =
                plugin.handlers().into_iter().map(|(topic, _)| TopicPattern::from_stored(topic)).collect();
            for route in plugin.routes() {
                route.check().map_err(refused)?;
                let (method, path) = (route.method, route.path);
                if !paths.insert((plugin.name(), method, path)) {
                    return Err(refused(format!("it has two routes {} {path}", method.as_str())));
                }
                if !ids.insert(route.id) || super::table::endpoints().iter().any(|known| known.id == route.id) {
                    return Err(refused(format!("another route has the name {}", route.id)));
                }
                routes.push(Arc::new(PluginRoute { plugin: plugin.name(), topics: topics.clone(), route }));
            }
        }
        Ok(Self { routes, engine: None })
    }

    /// The same, with something behind them.
    pub(crate) fn with_engine(self, engine: Arc<dyn Engine>) -> Self {
        Self { engine: Some(engine), ..self }
    }

    /// As the router and the document take them.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = Endpoint> {
        self.routes.iter().map(|known| {
            let (id, summary) = (known.route.id, known.route.summary);
            let (called, described) = (Arc::clone(known), Arc::clone(known));
            let handler = move |api, caller, places, uri, headers, request| {
                answer(Arc::clone(&called), api, caller, places, uri, headers, request)
            };
            let method = method(known.route.method);
            endpoint(method, known.path(), known.access(), handler)
                .named(id, summary, move |operation| describe(&described.route, operation))
        })
    }

    /// Who may call a route, if there is one.
    pub(crate) fn access(&self, method: &Method, path: &str) -> Option<Access> {
        let is_it = |known: &&Arc<PluginRoute>| known.route.method.as_str() == method.as_str() && known.path() == path;
        self.routes.iter().find(is_it).map(|known| known.access())
    }
}

impl PluginRoute {
    fn path(&self) -> String {
        format!("/api/v1/plugins/{}{}", self.plugin, self.route.path)
    }

    fn access(&self) -> Access {
        Access::Role(match self.route.role {
            sdk::Role::Read => Role::Read,
            sdk::Role::Submit => Role::Submit,
            sdk::Role::Operate => Role::Operate,
            sdk::Role::Admin => Role::Admin,
        })
    }
}

fn method(method: sdk::Method) -> Method {
    match method {
        sdk::Method::Get => Method::GET,
        sdk::Method::Post => Method::POST,
        sdk::Method::Put => Method::PUT,
        sdk::Method::Patch => Method::PATCH,
        sdk::Method::Delete => Method::DELETE,
    }
}

async fn answer(
    known: Arc<PluginRoute>,
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    places: RawPathParams,
    uri: Uri,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Problem> {
    let PluginRoute { plugin, topics, route } = &*known;
    if route.method != sdk::Method::Get {
        // What a plugin does is work on its topics.
        topics.iter().try_for_each(|topic| caller.check_pattern(topic))?;
    }
    let parameters = Parameters::of(&uri)?.into_pairs()?;
    let mut refusals = Refusals::default();
    let is_post = route.method == sdk::Method::Post;
    let key = is_post.then(|| idempotency_key(&headers, &mut refusals)).flatten();
    refusals.or(())?;
    let body = match (route.method, &route.body) {
        (sdk::Method::Get | sdk::Method::Delete, _) => None,
        (sdk::Method::Patch, _) => Some(PatchBody::from_request(request, &api).await?.0),
        (_, Some(_)) => Some(JsonBody::from_request(request, &api).await?),
        (_, None) => Some(OptionalBody::from_request(request, &api).await?.0),
    };
    let text = body.as_ref().map_or("{}", |body| &body.text);
    let invalid = |error: &dyn std::fmt::Display| Problem::new(Code::Invalid, format!("the body is not JSON: {error}"));
    let checked = Json::parse(text).map_err(|error| invalid(&error))?;
    let value: Value = serde_json::from_str(checked.as_str()).map_err(|error| invalid(&error))?;
    let call = Call::new(&caller, key, uri.path(), text);
    if let Some(first) = call.first(&*api.store).await? {
        return respond(first, &uri);
    }
    let Some(engine) = &api.plugins.engine else {
        return Err(Problem::unavailable("plugins are not at work here yet"));
    };
    let (context, overstay) = engine::watched(&engine::context(plugin, Arc::clone(engine)));
    let request = sdk::Request {
        places: places.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        parameters: parameters.into_iter().collect(),
        body: value,
        now: api.time.now(),
        call: call.for_plugin(),
        context,
    };
    let answered = tokio::select! {
        answered = route.handler.answer(request) => answered.map_err(problem)?,
        () = overstay.happened() => {
            tracing::error!(plugin, route = route.path, error = engine::Overstay::message(), "a plugin's route is broken");
            return Err(Problem::unavailable("the route kept others from writing for too long, and was stopped"));
        }
    };
    let is_kept = engine::is_kept(&answered);
    match answered.content {
        AnswerContent::Json(body) => {
            let answer = Answer { status: answered.status, body };
            let answer = if is_kept { answer } else { call.keep(&*api.store, answer).await? };
            respond(answer, &uri)
        }
        AnswerContent::Nothing => Ok(StatusCode::NO_CONTENT.into_response()),
        AnswerContent::File { kind, name, bytes } => {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            let name: String = name.chars().filter(|c| plain(*c)).collect();
            let headers = [
                (header::CONTENT_TYPE, kind.to_owned()),
                (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{name}\"")),
            ];
            Ok((StatusCode::OK, headers, bytes).into_response())
        }
    }
}

/// An answer in JSON, with where the new thing is, or the next page.
fn respond(answer: Answer, uri: &Uri) -> Result<Response, Problem> {
    let broken = |_| Problem::new(Code::Internal, "the plugin's answer has no status");
    let status = StatusCode::from_u16(answer.status).map_err(broken)?;
    let said: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    let mut response = (status, [(header::CONTENT_TYPE, "application/json")], answer.body).into_response();
    if let (StatusCode::CREATED, Some(id)) = (status, said["id"].as_str())
        && let Ok(location) = HeaderValue::try_from(format!("{}/{id}", uri.path()))
    {
        response.headers_mut().insert(header::LOCATION, location);
    }
    cursor::link(&mut response, uri, said["nextCursor"].as_str());
    Ok(response)
}

fn problem(problem: sdk::Problem) -> Problem {
    let code = match problem.kind {
        ProblemKind::Invalid => Code::Invalid,
        ProblemKind::NotFound => Code::NotFound,
        ProblemKind::Conflict => Code::Conflict,
        ProblemKind::Unavailable => Code::Unavailable,
        ProblemKind::Internal => Code::Internal,
    };
    let error = |error: sdk::FieldError| FieldError { field: error.field, message: error.message };
    Problem { code, detail: problem.detail, errors: problem.errors.into_iter().map(error).collect() }
}

/// Says what a route takes and answers.
fn describe(route: &Route, mut operation: Operation) -> Operation {
    operation = match (route.method, &route.body) {
        (sdk::Method::Get | sdk::Method::Delete, _) => operation,
        (sdk::Method::Patch, Some((schema, example))) => operation.patch_body(schema.clone(), example.clone()),
        (_, Some((schema, example))) => operation.body(schema.clone(), example.clone()),
        (_, None) => operation.empty_body(),
    };
    for (name, schema) in &route.query {
        operation = operation.query(name, schema.clone());
    }
    if route.is_paged {
        operation = operation.pages();
    }
    for (status, what, kind, schema) in &route.answers {
        operation = match (StatusCode::from_u16(*status), schema) {
            (Ok(status), Some(schema)) => operation.answers_as(status, what, kind, schema.clone()),
            _ => operation.answers_nothing(what),
        };
        if *status == 201 {
            operation = operation.with_location("thing");
        }
    }
    if route.may_conflict { operation.refuses([Code::Conflict]) } else { operation }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Own(Vec<Route>);

    impl Plugin for Own {
        fn name(&self) -> &'static str {
            "own"
        }

        fn handlers(&self) -> Vec<(&'static str, Box<dyn sdk::Handler>)> {
            Vec::new()
        }

        fn routes(&self) -> Vec<Route> {
            self.0.clone()
        }
    }

    fn route(path: &'static str, id: &'static str) -> Route {
        Route::get(path, |_| async { Ok(sdk::Answer::nothing()) }).named(id, "Shows it").answers_nothing("It")
    }

    #[test]
    fn routes_that_cannot_be_told_apart_are_refused_with_their_plugin() {
        for (routes, why) in [
            (vec![route("/a", "getA"), route("/a", "getB")], "two routes GET /a"),
            (vec![route("/a", "getA"), route("/b", "getA")], "the name getA"),
            (vec![route("/a", "listTasks")], "the name listTasks"),
            (vec![route("a", "getA")], "its route GET a must be"),
        ] {
            let refused = PluginRoutes::of(&[Arc::new(Own(routes))]).err().unwrap().to_string();
            assert!(refused.starts_with("the plugin own cannot be used: ") && refused.contains(why), "{refused}");
        }
        let routes = PluginRoutes::of(&[Arc::new(Own(vec![route("/a/{id}", "getA")]))]).unwrap();
        assert_eq!(routes.access(&Method::GET, "/api/v1/plugins/own/a/{id}"), Some(Access::Role(Role::Read)));
        assert_eq!(routes.access(&Method::POST, "/api/v1/plugins/own/a/{id}"), None);
    }
}
