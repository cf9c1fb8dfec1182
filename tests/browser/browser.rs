//! A browser of a test's own: Chromium with a profile in a temporary folder, and what drives it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::{Client, Method};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::Process;

/// How often a driver is started at the most.
const TRIES: usize = 5;
/// How long anything may take before the test gives up.
const PATIENCE: Duration = Duration::from_secs(30);
/// How WebDriver names an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser with one page.
pub(crate) struct Browser {
    client: Client,
    session: String,
    /// What it looks at, such as `http://127.0.0.1:7878`.
    site: String,
    _driver: Process,
    _profile: TempDir,
}

/// How wide a page is, in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Width {
    Desk = 1440,
    Phone = 390,
}

/// A key that is no letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    Tab,
    Enter,
    Space,
}

impl Key {
    /// How WebDriver names it.
    fn code(self) -> &'static str {
        match self {
            Self::Tab => "\u{e004}",
            Self::Enter => "\u{e007}",
            Self::Space => " ",
        }
    }
}

/// What the reader's system prefers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Light,
    Dark,
}

impl Browser {
    /// Opens one for the site at `url`, or none if there is none on this machine.
    pub(crate) async fn open(url: &str) -> Option<Self> {
        let Some(driver) = std::env::var_os("TEST_CHROMEDRIVER") else {
            assert!(std::env::var_os("CI").is_none(), "TEST_CHROMEDRIVER is not set, and CI skips nothing");
            eprintln!("skipped: TEST_CHROMEDRIVER is not set");
            return None;
        };
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut command = Command::new(driver);
        command.args(["--port=0", "--log-level=SEVERE"]);
        // It chooses a port before it takes it: another test may have been quicker.
        let started = (0..TRIES).find_map(|_| {
            let mut driver = Process::start(&mut command);
            driver.find_output("started successfully on port").map(|line| (driver, line))
        });
        let (driver, line) = started.expect("a driver that found a port");
        let port = line.trim_end_matches('.').rsplit(' ').next().unwrap().to_owned();
        let profile = tempfile::tempdir().unwrap();
        let arguments = [
            // The sandbox refuses to be root's, as whoever runs tests in a container is.
            "--no-sandbox".to_owned(),
            "--headless=new".to_owned(),
            "--disable-gpu".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--disable-background-networking".to_owned(),
            "--disable-component-update".to_owned(),
            "--no-first-run".to_owned(),
            "--no-proxy-server".to_owned(),
            "--hide-scrollbars".to_owned(),
            "--lang=en-GB".to_owned(),
            "--window-size=1440,900".to_owned(),
            format!("--user-data-dir={}", profile.path().display()),
        ];
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            // A dialog is left open: whatever comes next then fails.
            "unhandledPromptBehavior": "ignore",
            "goog:loggingPrefs": { "browser": "ALL" },
            "goog:chromeOptions": { "args": arguments },
        } } });
        let client = Client::builder().no_proxy().build().unwrap();
        let driver_url = format!("http://127.0.0.1:{port}/session");
        let made = call(&client, Method::POST, &driver_url, Some(&wanted)).await.unwrap();
        let session = format!("{driver_url}/{}", made["sessionId"].as_str().unwrap());
        let site = url.trim_end_matches('/').to_owned();
        let browser = Self { client, session, site, _driver: driver, _profile: profile };
        browser.look(Width::Desk, Scheme::Light).await;
        Some(browser)
    }

    /// Goes to a page, and waits until it is there.
    pub(crate) async fn go(&self, path: &str) {
        self.post("/url", &json!({ "url": format!("{}{path}", self.site) })).await;
    }

    /// The address it shows, without the site.
    pub(crate) async fn path(&self) -> String {
        let url = self.get("/url").await;
        url.as_str().unwrap().strip_prefix(&self.site).unwrap_or_default().to_owned()
    }

    /// The readable text of the page, or of the first part of it that a selector names.
    pub(crate) async fn text(&self, selector: &str) -> String {
        let found = self.run("return document.querySelector(arguments[0])?.innerText ?? ''", &[json!(selector)]).await;
        found.as_str().unwrap().to_owned()
    }

    /// Whether there is such a part.
    pub(crate) async fn has(&self, selector: &str) -> bool {
        self.run("return document.querySelector(arguments[0]) !== null", &[json!(selector)]).await == json!(true)
    }

    /// Waits until the page says something.
    pub(crate) async fn wait_for_text(&self, text: &str) {
        let says = "return document.body.innerText.includes(arguments[0])";
        self.wait_for(says, &[json!(text)], &format!("{text:?} to be said")).await;
    }

    /// Waits until a script answers `true`.
    pub(crate) async fn wait_for(&self, script: &str, arguments: &[Value], what: &str) {
        let asked_at = Instant::now();
        while self.run(script, arguments).await != json!(true) {
            if asked_at.elapsed() > PATIENCE {
                panic!("waited for {what} at {}; it says: {}", self.path().await, self.text("body").await);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Clicks on the first part that a selector names, as a mouse does.
    pub(crate) async fn click(&self, selector: &str) {
        let element = self.element("css selector", selector).await;
        self.post(&format!("/element/{element}/click"), &json!({})).await;
    }

    /// Clicks on a button or a link by its words, in the first part that a selector names.
    pub(crate) async fn press(&self, within: &str, words: &str) {
        let mark = "const all = document.querySelector(arguments[0])?.querySelectorAll('button, a, summary') ?? [];
            const found = [...all].find((one) => one.innerText.trim() === arguments[1] && one.offsetParent);
            document.querySelectorAll('[data-pressed]').forEach((one) => one.removeAttribute('data-pressed'));
            found?.setAttribute('data-pressed', '');
            return !!found";
        self.wait_for(mark, &[json!(within), json!(words)], &format!("{words:?} in {within}")).await;
        self.click("[data-pressed]").await;
    }

    /// Presses a key, wherever the focus is.
    pub(crate) async fn key(&self, key: Key) {
        let actions = ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key.code() }));
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": actions });
        self.post("/actions", &json!({ "actions": [keyboard] })).await;
    }

    /// Types into a field, in place of what is there.
    pub(crate) async fn fill(&self, selector: &str, text: &str) {
        let element = self.element("css selector", selector).await;
        self.post(&format!("/element/{element}/clear"), &json!({})).await;
        self.post(&format!("/element/{element}/value"), &json!({ "text": text })).await;
    }

    /// Chooses an option of a field.
    pub(crate) async fn choose(&self, selector: &str, value: &str) {
        self.click(&format!("{selector} option[value='{value}']")).await;
    }

    /// Runs a script in the page and answers what it returns.
    pub(crate) async fn run(&self, script: &str, arguments: &[Value]) -> Value {
        self.post("/execute/sync", &json!({ "script": script, "args": arguments })).await
    }

    /// The same for a script that calls its last argument when it is done.
    pub(crate) async fn run_async(&self, script: &str, arguments: &[Value]) -> Value {
        self.post("/execute/async", &json!({ "script": script, "args": arguments })).await
    }

    /// What the console has said since it was last asked: errors of scripts, and what the policy refused.
    pub(crate) async fn complaints(&self) -> Vec<String> {
        let said = self.post("/se/log", &json!({ "type": "browser" })).await;
        let is_bad = |entry: &&Value| matches!(entry["level"].as_str(), Some("SEVERE" | "WARNING"));
        let said = said.as_array().unwrap().iter().filter(is_bad);
        said.map(|entry| entry["message"].as_str().unwrap().to_owned()).collect()
    }

    /// Sets how wide the page is, and which colours its reader likes.
    pub(crate) async fn look(&self, width: Width, scheme: Scheme) {
        self.resize(width, height_of(width)).await;
        let value = if scheme == Scheme::Dark { "dark" } else { "light" };
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": value }] });
        self.tell_chromium("Emulation.setEmulatedMedia", &media).await;
    }

    /// Runs something before the scripts of every page that is opened from now on.
    pub(crate) async fn before_every_page(&self, script: &str) {
        self.tell_chromium("Page.addScriptToEvaluateOnNewDocument", &json!({ "source": script })).await;
    }

    /// Turns scripts of pages off; our own still run.
    pub(crate) async fn without_scripts(&self) {
        self.tell_chromium("Emulation.setScriptExecutionDisabled", &json!({ "value": true })).await;
    }

    /// A picture of the whole page, as if the window were as high as that.
    pub(crate) async fn screenshot(&self, to: &Path, width: Width) {
        let height = self.run("return Math.min(4000, document.documentElement.scrollHeight)", &[]).await;
        self.resize(width, height.as_u64().unwrap().max(height_of(width))).await;
        self.capture(to, &json!({})).await;
    }

    /// A small picture of what the window shows.
    pub(crate) async fn picture(&self, to: &Path) {
        self.capture(to, &json!({ "format": "webp", "quality": 80 })).await;
    }

    /// Chromium waits for the next frame, which a busy machine may owe it: asked again, it has one.
    async fn capture(&self, to: &Path, how: &Value) {
        let url = format!("{}/goog/cdp/execute", self.session);
        let body = json!({ "cmd": "Page.captureScreenshot", "params": how });
        let mut shot = Err(String::new());
        for _ in 0..3 {
            shot = call(&self.client, Method::POST, &url, Some(&body)).await;
            if shot.is_ok() {
                break;
            }
        }
        std::fs::write(to, STANDARD.decode(shot.unwrap()["data"].as_str().unwrap()).unwrap()).unwrap();
    }

    async fn resize(&self, width: Width, height: u64) {
        let is_phone = width == Width::Phone;
        let size = json!({ "width": width as u32, "height": height, "deviceScaleFactor": 1, "mobile": is_phone });
        self.tell_chromium("Emulation.setDeviceMetricsOverride", &size).await;
    }

    /// Violations of rules for accessible pages that are serious or critical, by axe-core.
    pub(crate) async fn violations(&self) -> Vec<String> {
        let path = PathBuf::from(std::env::var_os("TEST_NODE_PATH").expect("TEST_NODE_PATH"));
        let axe = std::fs::read_to_string(path.join("axe-core/axe.min.js")).unwrap();
        if self.run("return typeof window.axe", &[]).await != json!("object") {
            self.run(&format!("{axe}; window.axe = axe"), &[]).await;
        }
        let run = "const done = arguments[0];
            axe.run(document, { resultTypes: ['violations'] }).then((found) => done(found.violations
                .filter((one) => ['serious', 'critical'].includes(one.impact))
                .map((one) => one.id + ': ' + one.help + ' at ' + one.nodes.slice(0, 5).map((node) => node.target.join(' ') + ' ' + node.html.slice(0, 120)).join(' | '))),
                (error) => done(['axe: ' + error]))";
        let found = self.run_async(run, &[]).await;
        found.as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned()).collect()
    }

    /// Checks that the page has not complained, and that nothing of it is wider than its window.
    pub(crate) async fn check(&self) {
        let (path, complaints) = (self.path().await, self.complaints().await);
        assert!(complaints.is_empty(), "{path}: {complaints:#?}");
        let wide = "const width = document.documentElement.clientWidth;
            if (document.documentElement.scrollWidth <= width) return [];
            return [...document.querySelectorAll('main *')].filter((one) => one.getBoundingClientRect().right > width + 1)
                .slice(0, 5).map((one) => one.outerHTML.slice(0, 160))";
        let wide = self.run(wide, &[]).await;
        assert_eq!(wide, json!([]), "{path} is wider than its window");
    }

    /// Says something to Chromium itself.
    async fn tell_chromium(&self, command: &str, parameters: &Value) -> Value {
        self.post("/goog/cdp/execute", &json!({ "cmd": command, "params": parameters })).await
    }

    async fn element(&self, how: &str, what: &str) -> String {
        let found = self.post("/element", &json!({ "using": how, "value": what })).await;
        found[ELEMENT].as_str().unwrap_or_else(|| panic!("no {what}")).to_owned()
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        let url = format!("{}{path}", self.session);
        let answer = call(&self.client, Method::POST, &url, Some(body)).await;
        answer.unwrap_or_else(|error| panic!("{path} {}: {error}", shortened(body)))
    }

    async fn get(&self, path: &str) -> Value {
        call(&self.client, Method::GET, &format!("{}{path}", self.session), None).await.unwrap()
    }
}

/// Chromium outlives its driver, unless it is told to end; one that is not there any more needs not be told.
impl Drop for Browser {
    fn drop(&mut self) {
        let Some((address, path)) = self.session.trim_start_matches("http://").split_once('/') else { return };
        let Ok(mut driver) = TcpStream::connect(address) else { return };
        let _ = driver.set_read_timeout(Some(PATIENCE));
        let _ = write!(driver, "DELETE /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        // It answers once Chromium has ended.
        let _ = driver.read(&mut [0; 64]);
    }
}

/// How high a window of that width is.
fn height_of(width: Width) -> u64 {
    if width == Width::Phone { 844 } else { 900 }
}

async fn call(client: &Client, method: Method, url: &str, body: Option<&Value>) -> Result<Value, String> {
    let mut request = client.request(method, url).timeout(PATIENCE);
    if let Some(body) = body {
        request = request.header("content-type", "application/json").body(body.to_string());
    }
    let response = request.send().await.map_err(|error| error.to_string())?;
    let is_ok = response.status().is_success();
    let text = response.text().await.map_err(|error| error.to_string())?;
    let mut answer: Value = serde_json::from_str(&text).map_err(|_| text.clone())?;
    let value = answer["value"].take();
    if is_ok { Ok(value) } else { Err(format!("{}: {}", value["error"], value["message"])) }
}

fn shortened(body: &Value) -> String {
    body.to_string().chars().take(300).collect()
}
