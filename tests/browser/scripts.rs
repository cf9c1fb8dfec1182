//! What others write is text, whatever it looks like: nothing of it runs on any page.

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use reqwest::Method;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::support::{Database, Server};

/// Each would set `window.ran`, or open a dialog, if a page took it for more than text.
const PAYLOADS: [&str; 64] = [
    "<script>window.ran=1</script>",
    "<SCRIPT>window.ran=1</SCRIPT>",
    "<script >window.ran=1</script >",
    "<script/x>window.ran=1</script>",
    "<scr<script>ipt>window.ran=1</scr</script>ipt>",
    "<script src=data:text/javascript,window.ran=1></script>",
    "<script type=module>window.ran=1</script>",
    "<script>window.ran=1//",
    "</script><script>window.ran=1</script>",
    "</title><script>window.ran=1</script>",
    "</textarea><script>window.ran=1</script>",
    "</style><script>window.ran=1</script>",
    "</pre><script>window.ran=1</script>",
    "</td></tr></table><script>window.ran=1</script>",
    "--><script>window.ran=1</script>",
    "]]><script>window.ran=1</script>",
    "<![CDATA[<script>window.ran=1</script>]]>",
    "<img src=x onerror=window.ran=1>",
    "<img src=x onerror=\"window.ran=1\">",
    "<img/src=x/onerror=window.ran=1>",
    "<img src=\"x\" onerror='window.ran=1'>",
    "<img src=data:, onload=window.ran=1 onerror=window.ran=1>",
    "<image href=x onerror=window.ran=1>",
    "<svg onload=window.ran=1>",
    "<svg/onload=window.ran=1>",
    "<svg><script>window.ran=1</script></svg>",
    "<svg><animate onbegin=window.ran=1 attributeName=x dur=1s>",
    "<svg><set onbegin=window.ran=1 attributeName=x>",
    "<svg><a xlink:href=javascript:window.ran=1><text>x</text></a></svg>",
    "<math><mtext><script>window.ran=1</script></mtext></math>",
    "<math href=javascript:window.ran=1>x</math>",
    "<body onload=window.ran=1>",
    "<body onpageshow=window.ran=1>",
    "<iframe srcdoc='<script>parent.ran=1</script>'></iframe>",
    "<iframe src=javascript:parent.ran=1></iframe>",
    "<iframe onload=window.ran=1></iframe>",
    "<object data=javascript:window.ran=1></object>",
    "<object data=\"data:text/html,<script>parent.ran=1</script>\"></object>",
    "<embed src=javascript:window.ran=1>",
    "<video><source onerror=window.ran=1></video>",
    "<audio src=x onerror=window.ran=1>",
    "<details open ontoggle=window.ran=1>x</details>",
    "<input autofocus onfocus=window.ran=1>",
    "<select autofocus onfocus=window.ran=1></select>",
    "<textarea autofocus onfocus=window.ran=1></textarea>",
    "<button autofocus onfocus=window.ran=1>x</button>",
    "<marquee onstart=window.ran=1>x</marquee>",
    "<style onload=window.ran=1></style>",
    "<style>@import 'javascript:window.ran=1';</style>",
    "<link rel=stylesheet href=x onerror=window.ran=1>",
    "<meta http-equiv=refresh content='0;url=javascript:window.ran=1'>",
    "<base href='javascript:window.ran=1//'>",
    "<form action=javascript:window.ran=1><input type=submit autofocus></form>",
    "<a href=javascript:window.ran=1 autofocus onfocus=window.ran=1>x</a>",
    "<template><script>window.ran=1</script></template><script>window.ran=1</script>",
    "<dialog open onfocus=window.ran=1><input autofocus onfocus=window.ran=1></dialog>",
    "\" onmouseover=window.ran=1 autofocus onfocus=window.ran=1 x=\"",
    "' onmouseover=window.ran=1 autofocus onfocus=window.ran=1 x='",
    "\"><script>window.ran=1</script>",
    "'><img src=x onerror=window.ran=1>",
    "` onfocus=window.ran=1 autofocus `",
    "javascript:window.ran=1",
    "&lt;script&gt;window.ran=1&lt;/script&gt;&#60;script&#62;window.ran=1&#60;/script&#62;",
    "{{constructor.constructor('window.ran=1')()}}${window.ran=1}<%= window.ran=1 %><script>alert(1)</script>",
];

/// A service in which everything that takes text has each of them.
struct Hostile {
    server: Server,
    _database: Database,
}

impl Hostile {
    async fn start() -> Self {
        let database = Database::sqlite();
        let receiver = receiver().await;
        let server = Server::start_with(&database, |command| {
            command
                .env("PUNCTUAL_PLUGINS", "signup,operations,clearpath")
                .env("PUNCTUAL_WEBHOOK_ALLOW", "127.0.0.0/8")
                .env("PUNCTUAL_LOG", "error")
        });
        let hook =
            json!({ "route": { "type": "webhook", "url": receiver, "secrets": ["swordfish"] }, "concurrency": 1 });
        server.put_topic("hook", &hook.to_string()).await;
        server.put_topic("pull", r#"{"route": {"type": "pull"}, "concurrency": 100}"#).await;
        let hostile = Self { server, _database: database };
        hostile.fill().await;
        hostile
    }

    async fn fill(&self) {
        for (number, text) in PAYLOADS.iter().enumerate() {
            let metadata = json!({ "ownerId": text, "tenantId": text, "correlationId": text, "note": text });
            let hook = json!({ "topic": "hook", "payload": { "number": number, *text: text }, "metadata": metadata });
            self.post("/api/v1/tasks", hook).await;
            let key: String = format!("{number} {text}").chars().take(200).collect();
            let pull = json!({
                "topic": "pull", "payload": text, "metadata": metadata, "clientRequestId": key, "dedupeKey": key, "serialKey": key,
            });
            self.post("/api/v1/tasks", pull).await;
            let calendar = json!({ "name": key, "weekdays": ["sun"] });
            self.post("/api/v1/calendars", calendar).await;
            let schedule = json!({
                "name": key, "description": text, "cronExpression": "0 9 * * *", "timezone": "Europe/Paris", "topic": "pull",
                "payload": { *text: text }, "metadata": metadata, "createdBy": text, "excludeCalendars": [key],
            });
            let schedule = self.post("/api/v1/schedules", schedule).await;
            let id = schedule["id"].as_str().unwrap();
            self.post(&format!("/api/v1/schedules/{id}/trigger"), json!({})).await;
            self.post(&format!("/api/v1/schedules/{id}/pause"), json!({ "note": text })).await;
            let event = json!({
                "title": text, "creator": { "name": text, "email": format!("a{number}@example.com") },
                "startDate": (chrono::Utc::now() + chrono::TimeDelta::seconds(2)).to_rfc3339(),
            });
            self.post("/api/v1/plugins/operations/events", event).await;
        }
        // Workers fail with them, and the last ones go on running.
        for round in 0..2 {
            let claim = json!({ "topics": ["pull"], "max": 100, "leaseSeconds": 600 });
            let claimed = self.post("/api/v1/claims", claim).await;
            let tasks = claimed["tasks"].as_array().unwrap();
            for (number, task) in tasks.iter().enumerate().filter(|(number, _)| round == 0 || number % 2 == 0) {
                let fail = json!({ "epoch": task["epoch"], "error": PAYLOADS[number % PAYLOADS.len()], "final": true });
                self.post(&format!("/api/v1/tasks/{}/fail", task["id"].as_str().unwrap()), fail).await;
            }
        }
        let all = |count: usize| move |list: &Value| list["items"].as_array().unwrap().len() >= count;
        self.server.wait_for("/api/v1/tasks?topic=hook&status=failed&limit=100", all(PAYLOADS.len())).await;
        self.server.wait_for("/api/v1/outbox?status=sent&limit=100", all(PAYLOADS.len())).await;
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let request = self.server.request(Method::POST, path).header("content-type", "application/json");
        let answer = request.body(body.to_string()).send().await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert!(status.is_success(), "{path} {body}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    async fn ids(&self, path: &str) -> Vec<String> {
        let list = self.server.get(path).await.json();
        list["items"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
    }

    /// Every list, and the page of everything in it.
    async fn pages(&self) -> Vec<String> {
        let mut pages: Vec<_> = [
            "/",
            "/schedules?limit=100",
            "/tasks?limit=1000",
            "/tasks?status=failed&limit=200",
            "/topics",
            "/outbox?limit=100",
            "/nodes",
            "/audit?limit=1000",
            "/keys",
        ]
        .map(str::to_owned)
        .into();
        for (page, list) in [
            ("/schedules", "/api/v1/schedules?limit=100"),
            ("/tasks", "/api/v1/tasks?topic=hook&limit=100"),
            ("/tasks", "/api/v1/tasks?topic=pull&limit=200"),
            ("/outbox", "/api/v1/outbox?limit=100"),
        ] {
            pages.extend(self.ids(list).await.iter().map(|id| format!("{page}/{id}")));
        }
        for id in self.ids("/api/v1/schedules?limit=100").await {
            pages.push(format!("/schedules/{id}/edit"));
        }
        for id in self.ids("/api/v1/outbox?limit=100").await {
            pages.push(format!("/outbox/{id}/html"));
        }
        pages
    }
}

/// Answers every webhook with a refusal that is one of them.
async fn receiver() -> String {
    async fn refuse(body: String) -> (StatusCode, String) {
        let body: Value = serde_json::from_str(&body).unwrap_or_default();
        let number = find_number(&body).unwrap_or(0);
        (StatusCode::BAD_REQUEST, PAYLOADS[number % PAYLOADS.len()].to_owned())
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(axum::serve(listener, Router::new().route("/", post(refuse))).into_future());
    format!("http://{address}/")
}

/// The number that the payload has, wherever in the webhook it stands.
fn find_number(body: &Value) -> Option<usize> {
    match body {
        Value::Object(fields) => match fields.get("number").and_then(Value::as_u64) {
            Some(number) => usize::try_from(number).ok(),
            None => fields.values().find_map(find_number),
        },
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_others_wrote_runs_on_any_page() {
    if std::env::var_os("TEST_CHROMEDRIVER").is_none() {
        assert!(Browser::open("").await.is_none());
        return;
    }
    let hostile = Hostile::start().await;
    let Some(browser) = Browser::open(&hostile.server.url).await else { return };
    let pages = hostile.pages().await;
    assert!(pages.len() > 5 * PAYLOADS.len(), "{}", pages.len());
    for path in pages {
        browser.go(&path).await;
        assert_eq!(browser.run("return window.ran ?? null", &[]).await, json!(null), "{path} ran something");
        let complaints = browser.complaints().await;
        // A message shows itself behind a policy that refuses whatever is in it.
        assert!(complaints.is_empty() || path.ends_with("/html"), "{path}: {complaints:#?}");
    }
}
