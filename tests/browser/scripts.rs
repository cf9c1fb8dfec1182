//! What others write is text, whatever it looks like: nothing of it runs on any page.

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use reqwest::Method;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::demo::left_out;
use crate::live::{NO_TIMER, says, wait_while_live};
use crate::support::{Answer, Database, Server};

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
            let key = name(number, text);
            let pull = json!({
                "topic": "pull", "payload": text, "metadata": metadata, "clientRequestId": key, "dedupeKey": key, "serialKey": key,
            });
            self.post("/api/v1/tasks", pull).await;
            let calendar = json!({ "name": key, "dates": ["2099-12-31"] });
            self.post("/api/v1/calendars", calendar).await;
            let schedule = json!({
                "name": key, "description": text, "cronExpression": format!("{} * * * *", number % 60), "timezone": "Europe/Paris",
                "topic": "pull", "payload": { *text: text }, "metadata": metadata, "createdBy": text, "excludeCalendars": [key],
            });
            let schedule = self.post("/api/v1/schedules", schedule).await;
            let id = schedule["id"].as_str().unwrap();
            self.post(&format!("/api/v1/schedules/{id}/trigger"), json!({})).await;
            // Half of them stay enabled, and fire within the hour.
            if number % 2 == 0 {
                self.post(&format!("/api/v1/schedules/{id}/pause"), json!({ "note": text })).await;
            }
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
        let month = next_month();
        let mut pages: Vec<_> = [
            "/",
            "/failures",
            "/failures?within=hour",
            "/schedules",
            "/schedules/new",
            "/schedules/calendar",
            &format!("/schedules/calendar?month={month}&zone=Asia/Tokyo"),
            "/tasks",
            "/tasks?status=failed",
            "/topics",
            "/outbox",
            "/nodes",
            "/audit",
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
            pages.extend(["edit", "backfill", "delete"].map(|page| format!("/schedules/{id}/{page}")));
        }
        for id in self.ids("/api/v1/outbox?limit=100").await {
            pages.push(format!("/outbox/{id}/html"));
        }
        // What is asked for is shown as well.
        for (number, text) in PAYLOADS.iter().enumerate() {
            let (text, key) = (encoded(text), encoded(&name(number, text)));
            let filter = format!("ownerId={text}&tenantId={text}&correlationId={text}&clientRequestId={key}");
            pages.extend([
                format!("/tasks?topic=pull&{filter}"),
                format!("/tasks/bulk?action=cancel&topic=pull&{filter}"),
                format!("/tasks/bulk?action=retry&topic=pull&{filter}"),
                format!("/failures?topic=pull&cause={text}"),
                format!("/schedules?name={key}"),
                format!("/schedules?name={text}&ownerId={text}"),
                format!("/audit?actor={text}&action={text}&target={text}"),
            ]);
        }
        pages
    }
}

/// What something is called that this payload is the name of.
fn name(number: usize, text: &str) -> String {
    format!("{number} {text}").chars().take(200).collect()
}

/// What all those things are called.
fn names() -> Vec<String> {
    PAYLOADS.iter().enumerate().map(|(number, text)| name(number, text)).collect()
}

/// As it stands in an address.
fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// The month after this one, all of which is yet to come.
fn next_month() -> String {
    (chrono::Utc::now().date_naive() + chrono::Months::new(1)).format("%Y-%m").to_string()
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

/// Checks that nothing of theirs ran on the page that is shown, and that nothing had to be kept from running.
async fn nothing_ran(browser: &Browser, path: &str) {
    assert_eq!(browser.run("return window.ran ?? null", &[]).await, json!(null), "{path} ran something");
    let complaints = browser.complaints().await;
    // A message shows itself behind a policy that refuses whatever is in it.
    assert!(complaints.is_empty() || path.ends_with("/html"), "{path}: {complaints:#?}");
}

/// Those of the names that a script does not find among the texts that it answers.
async fn unsaid(browser: &Browser, script: &str) -> Vec<String> {
    let texts = browser.run(script, &[]).await;
    let texts: Vec<_> = texts.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect();
    names().into_iter().filter(|name| !texts.iter().any(|text| text.contains(name.as_str()))).collect()
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
    assert!(pages.len() > 15 * PAYLOADS.len(), "{}", pages.len());
    assert_eq!(left_out(pages.iter().map(String::as_str)), [""; 0]);
    for path in pages {
        let mut next = Some(path);
        // To the end of a list.
        while let Some(path) = next {
            browser.go(&path).await;
            nothing_ran(&browser, &path).await;
            let more = "return document.querySelector('a[rel=next]')?.getAttribute('href') ?? null";
            next = browser.run(more, &[]).await.as_str().map(str::to_owned);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_schedules_are_text_wherever_schedules_meet() {
    let database = Database::sqlite();
    let server = Server::start(&database);
    let Some(browser) = Browser::open(&server.url).await else { return };
    let mut ids = Vec::new();
    for (number, name) in names().into_iter().enumerate() {
        let cron = format!("{} * * * *", number % 60);
        let schedule = json!({ "name": name, "cronExpression": cron, "timezone": "UTC", "topic": "quiet" });
        let made = server.post("/api/v1/schedules", schedule.to_string()).await.json();
        ids.push(made["id"].as_str().unwrap().to_owned());
    }
    // Its place in the next hour moves, and the part of the page with it.
    server.make_task(r#"{"topic": "quiet", "delayMs": 1800000}"#).await;

    browser.before_every_page(NO_TIMER).await;
    browser.go("/").await;
    says(&browser, "live").await;
    for time in ["at first", "once its parts were exchanged"] {
        browser.wait_for("return !!document.querySelector('#ahead svg')", &[], "what comes next").await;
        let titles = "return [...document.querySelectorAll('#ahead title')].map((one) => one.textContent)";
        assert_eq!(unsaid(&browser, titles).await, [""; 0], "{time}");
        let first =
            "const [first] = document.querySelectorAll('#ahead tbody a'), health = document.querySelector('#health');
            return first.textContent.length > 0 && health.textContent.includes(' Next: ' + first.textContent + ' in ')";
        browser.wait_for(first, &[], "the first of them in the headline").await;
        nothing_ran(&browser, time).await;
        browser.run("window.before = document.querySelector('#ahead')", &[]).await;
        let is_new = "return !window.before.isConnected";
        wait_while_live(&browser, &server, is_new, &[], "another state of the page").await;
    }

    let calendar = format!("/schedules/calendar?month={}", next_month());
    browser.go(&calendar).await;
    let often = "return [...document.querySelectorAll('.often a')].map((one) => one.textContent)";
    assert_eq!(unsaid(&browser, often).await.len(), 4, "sixty are named that fire every hour");
    nothing_ran(&browser, &calendar).await;
    for (number, id) in ids.iter().enumerate() {
        let monthly = json!({ "cronExpression": format!("0 9 {} * *", number % 28 + 1) });
        let edit = server.request(Method::PATCH, &format!("/api/v1/schedules/{id}"));
        let edit = edit.header("content-type", "application/json").body(monthly.to_string());
        assert_eq!(edit.send().await.unwrap().status(), 200);
    }
    browser.go(&calendar).await;
    for part in ["textContent", "title"] {
        let days = format!("return [...document.querySelectorAll('.month a')].map((one) => one.{part})");
        assert_eq!(unsaid(&browser, &days).await, [""; 0], "{part}");
    }
    nothing_ran(&browser, &calendar).await;

    // What a page says of what was done.
    for (name, id) in names().iter().zip(&ids).step_by(4) {
        let path = format!("/schedules/{id}");
        browser.go(&path).await;
        browser.press("form[action$='/pause']", "Pause").await;
        let said = "return document.querySelector('.notice')?.textContent === arguments[0]";
        browser.wait_for(said, &[json!(format!("“{name}” is paused."))], "that it is paused").await;
        nothing_ran(&browser, &path).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_runs_that_somebody_types() {
    let database = Database::sqlite();
    let server = Server::start(&database);
    let Some(browser) = Browser::open(&server.url).await else { return };
    browser.go("/schedules/new").await;
    for text in PAYLOADS {
        // A preview that is marked is the one before.
        let type_in = "document.querySelector('#preview').dataset.old = '';
            for (const field of ['name', 'topic', 'description', 'cronExpression', 'timezone', 'payload', 'startAt']) {
                const typed = document.querySelector('[name=' + field + ']');
                typed.value = field === 'payload' ? JSON.stringify(arguments[0]) : arguments[0];
                typed.dispatchEvent(new InputEvent('input', { bubbles: true }));
            }";
        browser.run(type_in, &[json!(text)]).await;
        let is_new = "return !('old' in document.querySelector('#preview').dataset)";
        browser.wait_for(is_new, &[], "another preview").await;
        let said = browser.run("return document.querySelector('#preview').textContent", &[]).await;
        let said = said.as_str().unwrap();
        // What is long is cut off where it is quoted.
        let begins = |text: &str| text.chars().take(40).collect::<String>();
        let quoted = format!("{:?}", text.trim());
        let is_quoted = said.contains(&begins(&quoted[1..quoted.len() - 1]));
        assert!(is_quoted || said.contains(&begins(text.trim())), "{text}: {said}");
        nothing_ran(&browser, text).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_keys_are_text_wherever_they_stand() {
    let database = Database::sqlite();
    let server = Server::start(&database);
    let Some(browser) = Browser::open(&server.url).await else { return };
    // Each makes the next one, and stands in the audit log for that.
    let mut last = None;
    let mut keys = Vec::new();
    for name in names() {
        let make = server.request(Method::POST, "/api/v1/keys").header("content-type", "application/json");
        let make = if let Some(key) = &last { make.bearer_auth(key) } else { make };
        let made = Answer::to(make.body(json!({ "name": name, "role": "admin" }).to_string())).await.json();
        let key = made["key"].as_str().unwrap().to_owned();
        last = Some(key.clone());
        keys.push(key);
    }
    for (number, (name, key)) in names().iter().zip(&keys).enumerate().step_by(8) {
        browser.go("/login").await;
        browser.fill("#key", key).await;
        browser.press("form", "Log in").await;
        let who = "return document.querySelector('.who .hint')?.textContent === arguments[0]";
        browser.wait_for(who, &[json!(format!("{name} · admin"))], "who has logged in").await;
        nothing_ran(&browser, "/").await;
        browser.go("/keys").await;
        browser.fill("input[name=name]", PAYLOADS[number + 1]).await;
        browser.press("main", "Make the key").await;
        let made = "return document.querySelector('#made h2')?.textContent === arguments[0]";
        let said = json!(format!("The key of {}", PAYLOADS[number + 1]));
        browser.wait_for(made, &[said], "another key").await;
        nothing_ran(&browser, "the page of a new key").await;
    }
    browser.go("/keys").await;
    let listed = "return [...document.querySelectorAll('#keys tbody tr')].map((one) => one.cells[0].textContent)";
    assert_eq!(unsaid(&browser, listed).await, [""; 0]);
    nothing_ran(&browser, "/keys").await;
    browser.go("/audit?limit=1000").await;
    let actors = "return [...document.querySelectorAll('#entries tbody tr')].map((one) => one.cells[1].textContent)";
    assert_eq!(unsaid(&browser, actors).await, names().split_off(names().len() - 1), "the last one did nothing");
    nothing_ran(&browser, "/audit").await;
}
