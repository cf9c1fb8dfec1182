//! Every route of the API, on one page.

use axum::http::Method;

use super::endpoint::{Endpoint, open, operate, read, submit};
use super::{batch, bulk, events, health, metrics, moves, tasks};

const GET: Method = Method::GET;
const POST: Method = Method::POST;

/// All routes. The most special paths need not come first.
#[rustfmt::skip]
pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        open(GET, "/livez", health::live)
            .named("live", "Whether the process answers"),
        open(GET, "/readyz", health::ready)
            .named("ready", "Whether work can be done here"),
        read(GET, "/metrics", metrics::show)
            .named("metrics", "What was counted, for Prometheus"),
        read(GET, events::PATH, events::follow)
            .named("followEvents", "Sends what happens, as it happens"),

        read(GET, tasks::PATH, tasks::list)
            .named("listTasks", "Lists tasks, newest first"),
        submit(POST, tasks::PATH, tasks::create)
            .named("createTask", "Makes a task"),
        read(GET, "/api/v1/tasks/{id}", tasks::show)
            .named("getTask", "Shows a task with its attempts"),
        submit(POST, batch::PATH, batch::create).slow()
            .named("createTasks", "Makes many tasks, all or none"),
        operate(POST, "/api/v1/tasks/{id}/cancel", moves::cancel)
            .named("cancelTask", "Cancels a task"),
        operate(POST, "/api/v1/tasks/{id}/reschedule", moves::reschedule)
            .named("rescheduleTask", "Cancels a task and makes another in its place"),
        operate(POST, "/api/v1/tasks/{id}/retry", moves::retry)
            .named("retryTask", "Makes a failed task anew"),
        operate(POST, bulk::CANCEL_PATH, bulk::cancel).slow()
            .named("cancelTasks", "Cancels every task that a filter finds"),
        operate(POST, bulk::RETRY_PATH, bulk::retry).slow()
            .named("retryTasks", "Makes every failed task anew that a filter finds"),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashSet};
    use std::sync::Arc;

    use axum::Router;
    use axum::body::Body;
    use axum::extract::Request;
    use axum::http::StatusCode;
    use punctual_domain::clock::FakeClock;
    use punctual_domain::id::KeyId;
    use punctual_domain::key::{ApiKey, Role};
    use punctual_domain::store::Store;
    use punctual_domain::time::ZoneDatabase;
    use punctual_store::SchemaState;
    use sha2::{Digest, Sha256};
    use tower::ServiceExt;

    use super::*;
    use crate::feed::Feed;
    use crate::http::endpoint::Access;
    use crate::http::{Api, Parts, Reach, State, router};
    use crate::store_time::StoreTime;
    use crate::topics::TopicDirectory;
    use crate::wake::Wake;

    /// The API over a new store, with a key for each role that is called like it.
    async fn api_with_keys(folder: &tempfile::TempDir) -> Router {
        let url = format!("sqlite://{}", folder.path().join("punctual.db").display());
        let store = punctual_store::connect(&url, punctual_store::Options::default()).await.unwrap();
        for role in Role::ALL {
            let key = ApiKey {
                id: KeyId::generate(),
                name: role.as_str().into(),
                role,
                topics: Vec::new(),
                hash: Sha256::digest(role.as_str()).into(),
                created_at: store.now().await.unwrap(),
                revoked_at: None,
            };
            store.create_key(&key).await.unwrap();
        }
        let clock = Arc::new(FakeClock::at_text("2026-11-16T12:00:00Z"));
        router(&Arc::new(Api::new(Parts {
            zones: ZoneDatabase::bundled(),
            time: Arc::new(StoreTime::new(clock)),
            topics: TopicDirectory::new(Arc::clone(&store), BTreeSet::new()),
            redis: None,
            state: Arc::new(State::new(SchemaState { version: SchemaState::ours(), oldest_compatible: 0 }, false)),
            reach: Reach::Loopback,
            wake: Wake::new(None, &store, Arc::default()),
            feed: Feed::new(Arc::clone(&store), Arc::default()),
            store: store as Arc<dyn Store>,
        })))
    }

    async fn status(app: &Router, method: &Method, path: &str, key: Option<Role>) -> StatusCode {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("content-type", "application/json");
        if let Some(role) = key {
            request = request.header("authorization", format!("Bearer {}", role.as_str()));
        }
        app.clone().oneshot(request.body(Body::from("{}")).unwrap()).await.unwrap().status()
    }

    #[tokio::test]
    async fn every_route_needs_its_role_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let app = api_with_keys(&folder).await;
        for endpoint in endpoints() {
            let path = endpoint.path.replace("{id}", "018f0000-0000-7000-8000-000000000000").replace("{name}", "none");
            let without = status(&app, &endpoint.method, &path, None).await;
            let Access::Role(needed) = endpoint.access else {
                assert!(without.is_success(), "{path}: {without}");
                continue;
            };
            assert_eq!(without, StatusCode::UNAUTHORIZED, "{path}");
            for role in Role::ALL {
                let with = status(&app, &endpoint.method, &path, Some(role)).await;
                let is_refused = with == StatusCode::FORBIDDEN;
                assert_eq!(is_refused, role < needed, "{} {path} as {}: {with}", endpoint.method, role.as_str());
                assert_ne!(with, StatusCode::UNAUTHORIZED);
            }
        }
        assert_eq!(status(&app, &GET, "/api/v1/nowhere", None).await, StatusCode::UNAUTHORIZED);
        assert_eq!(status(&app, &GET, "/api/v1/nowhere", Some(Role::Read)).await, StatusCode::NOT_FOUND);
    }

    #[test]
    fn looking_needs_little_and_changing_needs_more() {
        for Endpoint { method, path, access, .. } in endpoints() {
            let is_secret = ["/api/v1/keys", "/api/v1/audit"].iter().any(|secret| path.starts_with(secret));
            let is_look = !is_secret && (method == GET || path.ends_with("/preview"));
            let needs_little = matches!(access, Access::Open | Access::Role(Role::Read));
            assert_eq!((needs_little, is_secret), (is_look, access == Access::Role(Role::Admin)), "{path}");
        }
    }

    #[test]
    fn every_route_has_a_name_of_its_own() {
        let (mut ids, mut routes) = (HashSet::new(), HashSet::new());
        for Endpoint { method, path, operation, .. } in endpoints() {
            assert!(ids.insert(operation.id), "{} stands twice", operation.id);
            assert!(routes.insert((method, path)), "{path} stands twice");
            let is_name =
                operation.id.starts_with(char::is_lowercase) && operation.id.chars().all(char::is_alphanumeric);
            assert!(is_name && operation.summary.starts_with(char::is_uppercase), "{operation:?}");
        }
    }
}
