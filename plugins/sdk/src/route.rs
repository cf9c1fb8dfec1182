use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use crate::{Answer, Problem, Request, Schema};

/// An HTTP route of a plugin: method, path, who may call it, what it takes and answers, and what answers it.
///
/// The service puts `/api/v1/plugins/<name>` before its path, keeps API keys, roles, limits and `Idempotency-Key`s as for every
/// other route, and writes it into the OpenAPI document.
///
/// ```
/// use punctual_sdk::{Answer, Problem, Request, Route, Schema};
/// use serde_json::json;
///
/// async fn greet(request: Request) -> Result<Answer, Problem> {
///     let mut query = request.query();
///     let name = query.text("name").unwrap_or_else(|| "stranger".to_owned());
///     query.finish()?;
///     Answer::ok(json!({"greeting": format!("hello, {name}")}))
/// }
///
/// let route = Route::get("/greetings", greet)
///     .named("getGreeting", "Greets somebody")
///     .query("name", Schema::text())
///     .answers(200, "The greeting", Schema::object([("greeting", Schema::text())]));
/// # let _ = route;
/// ```
#[derive(Clone)]
#[must_use]
pub struct Route {
    /// Its method.
    pub method: Method,
    /// Its path behind the plugin's own, such as `/sessions/{id}`.
    pub path: &'static str,
    /// Who may call it: whoever may look for a `GET`, whoever may operate for the rest, unless it is said.
    pub role: Role,
    /// Its name among all operations, such as `listSessions`.
    pub id: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// The body it takes, with an example; other methods than `GET` and `DELETE` without one take none or `{}`.
    pub body: Option<(Schema, Value)>,
    /// The parameters it takes.
    pub query: Vec<(&'static str, Schema)>,
    /// Whether it answers a page of a list.
    pub is_paged: bool,
    /// What it answers: status, description, media type, and shape.
    pub answers: Vec<(u16, &'static str, &'static str, Option<Schema>)>,
    /// Whether it may answer 409 `CONFLICT`.
    pub may_conflict: bool,
    /// What answers it.
    pub handler: Arc<dyn RouteHandler>,
}

/// The method of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    /// Looks.
    Get,
    /// Makes something, or does something.
    Post,
    /// Replaces.
    Put,
    /// Merges.
    Patch,
    /// Deletes.
    Delete,
}

impl Method {
    /// As HTTP has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// What an API key has to be for; each with all before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Looking.
    Read,
    /// Handing in work.
    Submit,
    /// Changing what is there.
    Operate,
    /// Everything.
    Admin,
}

/// Answers the calls of a route. An `async fn(Request)` that ends in a `Result<Answer, Problem>` is one.
#[async_trait]
pub trait RouteHandler: Send + Sync {
    /// Answers one call.
    ///
    /// # Errors
    /// When the call is refused.
    async fn answer(&self, request: Request) -> Result<Answer, Problem>;
}

#[async_trait]
impl<F, W> RouteHandler for F
where
    F: Fn(Request) -> W + Send + Sync,
    W: Future<Output = Result<Answer, Problem>> + Send,
{
    async fn answer(&self, request: Request) -> Result<Answer, Problem> {
        self(request).await
    }
}

impl Route {
    /// A route that looks.
    pub fn get(path: &'static str, handler: impl RouteHandler + 'static) -> Self {
        Self::new(Method::Get, Role::Read, path, handler)
    }

    /// A route that makes or does something.
    pub fn post(path: &'static str, handler: impl RouteHandler + 'static) -> Self {
        Self::new(Method::Post, Role::Operate, path, handler)
    }

    /// A route that replaces.
    pub fn put(path: &'static str, handler: impl RouteHandler + 'static) -> Self {
        Self::new(Method::Put, Role::Operate, path, handler)
    }

    /// A route that merges.
    pub fn patch(path: &'static str, handler: impl RouteHandler + 'static) -> Self {
        Self::new(Method::Patch, Role::Operate, path, handler)
    }

    /// A route that deletes.
    pub fn delete(path: &'static str, handler: impl RouteHandler + 'static) -> Self {
        Self::new(Method::Delete, Role::Operate, path, handler)
    }

    fn new(method: Method, role: Role, path: &'static str, handler: impl RouteHandler + 'static) -> Self {
        Self {
            method,
            path,
            role,
            id: "",
            summary: "",
            body: None,
            query: Vec::new(),
            is_paged: false,
            answers: Vec::new(),
            may_conflict: false,
            handler: Arc::new(handler),
        }
    }

    /// With its name among all operations, and what it does in one line. There is no route without them.
    pub fn named(self, id: &'static str, summary: &'static str) -> Self {
        Self { id, summary, ..self }
    }

    /// For those who have this role, or a stronger one.
    pub fn role(self, role: Role) -> Self {
        Self { role, ..self }
    }

    /// Takes a body of JSON, such as this one.
    pub fn takes(self, schema: Schema, example: Value) -> Self {
        Self { body: Some((schema, example)), ..self }
    }

    /// Takes a parameter, which may be left out.
    pub fn query(mut self, name: &'static str, schema: Schema) -> Self {
        self.query.push((name, schema));
        self
    }

    /// Answers JSON.
    pub fn answers(mut self, status: u16, what: &'static str, schema: Schema) -> Self {
        self.answers.push((status, what, "application/json", Some(schema)));
        self
    }

    /// Answers a file.
    pub fn answers_file(mut self, kind: &'static str, what: &'static str) -> Self {
        self.answers.push((200, what, kind, Some(Schema::format("binary"))));
        self
    }

    /// Answers 204.
    pub fn answers_nothing(mut self, what: &'static str) -> Self {
        self.answers.push((204, what, "", None));
        self
    }

    /// Answers a [`Page`](crate::Page) of a list, and takes `limit` and `cursor`.
    pub fn answers_page(self, items: Schema) -> Self {
        Self { is_paged: true, ..self.answers(200, "A page", Schema::page(items)) }
    }

    /// May answer 409 `CONFLICT`.
    pub fn may_conflict(self) -> Self {
        Self { may_conflict: true, ..self }
    }

    /// What is wrong with it, if anything is.
    pub fn check(&self) -> Result<(), String> {
        let (method, path) = (self.method.as_str(), self.path);
        let wrong = |what: &str| Err(format!("its route {method} {path} {what}"));
        let is_name = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let is_part = |part: &str| match part.strip_prefix('{') {
            Some(place) => place.strip_suffix('}').is_some_and(is_name),
            None => !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'),
        };
        match path.strip_prefix('/') {
            Some(parts) if parts.split('/').all(is_part) => {}
            _ => return wrong("must be parts such as /sessions or /{id}"),
        }
        if !is_name(self.id) || !self.id.starts_with(|c: char| c.is_ascii_lowercase()) {
            return wrong("needs a name such as listSessions");
        }
        if !self.summary.starts_with(char::is_uppercase) {
            return wrong("needs a sentence about what it does");
        }
        if !self.answers.iter().any(|(status, ..)| (200..300).contains(status)) {
            return wrong("must say what it answers");
        }
        if self.body.is_some() && matches!(self.method, Method::Get | Method::Delete) {
            return wrong("cannot take a body");
        }
        Ok(())
    }

    /// What stands in the places of its path, if `path` is one of its.
    pub fn places(&self, path: &str) -> Option<Vec<(String, String)>> {
        let (own, given): (Vec<_>, Vec<_>) = (self.path.split('/').collect(), path.split('/').collect());
        let pair = |(own, given): (&&str, &&str)| match own.strip_prefix('{').and_then(|place| place.strip_suffix('}'))
        {
            Some(place) if !given.is_empty() => Some(Some((place.to_owned(), given.to_string()))),
            None if own == given => Some(None),
            _ => None,
        };
        (own.len() == given.len())
            .then(|| own.iter().zip(&given).map(pair).collect::<Option<Vec<_>>>())?
            .map(|places| places.into_iter().flatten().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn nothing(_: Request) -> Result<Answer, Problem> {
        Ok(Answer::nothing())
    }

    #[test]
    fn a_path_is_found_with_what_stands_in_its_places() {
        let route = Route::get("/sessions/{id}/result", nothing);
        assert_eq!(route.places("/sessions/7/result"), Some(vec![("id".to_owned(), "7".to_owned())]));
        for other in ["/sessions/7", "/sessions//result", "/sessions/7/result/8", "/session/7/result"] {
            assert_eq!(route.places(other), None, "{other}");
        }
    }

    #[test]
    fn a_route_that_says_too_little_is_refused() {
        let whole = Route::get("/a/{id}", nothing).named("getA", "Shows it").answers_nothing("It");
        assert_eq!(whole.check(), Ok(()));
        for (wrong, why) in [
            (Route { path: "a", ..whole.clone() }, "parts"),
            (Route { path: "/a/{}", ..whole.clone() }, "parts"),
            (Route { path: "/a//b", ..whole.clone() }, "parts"),
            (Route { id: "get a", ..whole.clone() }, "name"),
            (Route { summary: "", ..whole.clone() }, "sentence"),
            (Route { answers: Vec::new(), ..whole.clone() }, "answers"),
            (whole.clone().takes(Schema::any(), Value::Null), "body"),
        ] {
            assert!(wrong.check().unwrap_err().contains(why), "{why}");
        }
    }
}
