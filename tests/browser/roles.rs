//! Login with an API key, and what each role sees and may do.

use serde_json::json;

use crate::browser::Browser;
use crate::support::{Database, Server, punctual};

/// A service with one key of each role.
pub(crate) struct Guarded {
    pub(crate) server: Server,
    database: Database,
}

impl Guarded {
    pub(crate) fn start() -> Self {
        let database = Database::sqlite();
        let guarded = |role: &str| make_key(&database, role);
        let keys = ["read", "submit", "operate", "admin"].map(guarded);
        std::fs::write(database.folder.path().join("keys"), keys.join("\n")).unwrap();
        Self { server: Server::start_with_plugins(&database), database }
    }

    /// The key of a role.
    fn key(&self, role: &str) -> String {
        let keys = std::fs::read_to_string(self.database.folder.path().join("keys")).unwrap();
        let place = ["read", "submit", "operate", "admin"].iter().position(|one| *one == role).unwrap();
        keys.lines().nth(place).unwrap().to_owned()
    }
}

fn make_key(database: &Database, role: &str) -> String {
    let mut command = punctual(database.folder.path());
    command.args(["key", "create", "--name", role, "--role", role, "--database", &database.url]);
    let made = command.output().unwrap();
    let said = String::from_utf8(made.stdout).unwrap();
    let key = said.split_whitespace().find(|word| word.starts_with("pk_"));
    key.unwrap_or_else(|| panic!("no key: {said}{}", String::from_utf8_lossy(&made.stderr))).to_owned()
}

async fn log_in(browser: &Browser, key: &str) {
    browser.go("/login").await;
    browser.fill("#key", key).await;
    browser.press("form", "Log in").await;
    browser.wait_for("return location.pathname !== '/login'", &[], "the page behind the login").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_leads_to_the_page_that_was_asked_for() {
    let guarded = Guarded::start();
    let Some(browser) = Browser::open(&guarded.server.url).await else { return };
    browser.go("/topics").await;
    assert_eq!(browser.path().await, "/login?next=%2Ftopics");
    browser.fill("#key", "pk_wrong").await;
    browser.press("form", "Log in").await;
    browser.wait_for_text("unknown, or it was revoked").await;
    // Chromium notes every answer of 401.
    browser.complaints().await;
    browser.fill("#key", &guarded.key("read")).await;
    browser.press("form", "Log in").await;
    browser.wait_for("return location.pathname === '/topics'", &[], "the topics").await;
    browser.check().await;
    assert!(browser.text(".who").await.contains("read"));
    assert_eq!(browser.run("return document.cookie", &[]).await, json!(""), "scripts see no cookie");

    browser.press(".who", "Log out").await;
    browser.wait_for("return location.pathname === '/login'", &[], "the login").await;
    browser.go("/topics").await;
    assert_eq!(browser.path().await, "/login?next=%2Ftopics");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_role_sees_what_it_may_do() {
    let guarded = Guarded::start();
    let Some(browser) = Browser::open(&guarded.server.url).await else { return };
    for (role, may_change, may_see_keys) in
        [("read", false, false), ("submit", false, false), ("operate", true, false), ("admin", true, true)]
    {
        log_in(&browser, &guarded.key(role)).await;
        browser.go("/topics").await;
        assert_eq!(browser.has("form[action$='/pause']").await, may_change, "{role}");
        for path in ["/audit", "/keys"] {
            browser.go("/topics").await;
            assert_eq!(browser.has(&format!("nav a[href='{path}']")).await, may_see_keys, "{role} {path}");
            browser.check().await;
            browser.go(path).await;
            assert_eq!(browser.text("h1").await == "This is not allowed", !may_see_keys, "{role} {path}");
            // Chromium notes every answer of 403.
            browser.complaints().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_that_is_not_offered_is_refused() {
    let guarded = Guarded::start();
    let Some(browser) = Browser::open(&guarded.server.url).await else { return };
    log_in(&browser, &guarded.key("submit")).await;
    let post = "const done = arguments[1];
        fetch(arguments[0], { method: 'POST', body: new URLSearchParams({ name: 'a', role: 'admin' }), redirect: 'manual' })
            .then((answer) => done(answer.status), (error) => done(String(error)))";
    for path in ["/topics/echo/pause", "/topics/echo/resume", "/keys", "/keys/x/revoke", "/outbox/x/retry"] {
        assert_eq!(browser.run_async(post, &[json!(path)]).await, json!(403), "{path}");
    }
    log_in(&browser, &guarded.key("operate")).await;
    for (path, status) in [("/keys", 403), ("/keys/x/revoke", 403), ("/topics/none/pause", 404)] {
        assert_eq!(browser.run_async(post, &[json!(path)]).await, json!(status), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_of_another_site_is_refused() {
    let guarded = Guarded::start();
    let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let login = client.post(format!("{}/login", guarded.server.url));
    let login = login.header("content-type", "application/x-www-form-urlencoded");
    let opened = login.body(format!("key={}", guarded.key("admin"))).send().await.unwrap();
    let cookie = opened.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    let post = |site: &'static str| {
        let request = guarded.server.request(reqwest::Method::POST, "/topics/echo/pause");
        request.header("cookie", cookie.clone()).header("sec-fetch-site", site).send()
    };
    assert_eq!(post("cross-site").await.unwrap().status(), 403);
    assert_eq!(post("same-site").await.unwrap().status(), 403);
}
