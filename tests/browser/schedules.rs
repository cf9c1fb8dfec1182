//! A schedule's whole life.

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::support::{Database, Server};

/// Enters a local time; how it is typed depends on the reader's language.
async fn enter_time(browser: &Browser, selector: &str, time: &str) {
    browser.run("document.querySelector(arguments[0]).value = arguments[1]", &[json!(selector), json!(time)]).await;
}

async fn only_schedule(server: &Server) -> Value {
    server.get("/api/v1/schedules").await.json()["items"][0].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schedule_is_written_with_a_preview_of_its_fires() {
    let database = Database::sqlite();
    let server = Server::start(&database);
    let Some(browser) = Browser::open(&server.url).await else { return };
    browser.go("/schedules").await;
    browser.press("main", "New schedule").await;
    browser.wait_for("return location.pathname === '/schedules/new'", &[], "the form").await;
    browser.fill("#name", "nightly <report>").await;
    browser.fill("#topic", "report.nightly").await;
    browser.fill("#timezone", "America/New_York").await;
    browser.fill("#cronExpression", "0 0 30 2 *").await;
    browser
        .wait_for("return /never/i.test(document.querySelector('#preview').innerText)", &[], "that it never fires")
        .await;
    browser.fill("#cronExpression", "0 9 1 * 1").await;
    browser.wait_for_text("restricts both the day of the month and the day of the week").await;
    for (cron, said) in [("*/30 1 * * *", "it follows elapsed time"), ("0-59/30 1 * * *", "it follows the clock")] {
        browser.fill("#cronExpression", cron).await;
        browser.wait_for_text(said).await;
    }
    browser.fill("#cronExpression", "*/30 * * * *").await;
    let is_plain = "return document.querySelectorAll('#preview tbody tr').length === 10 && !document.querySelector('#preview .remark')";
    browser.wait_for(is_plain, &[], "a preview without a remark").await;
    browser.fill("#cronExpression", "30 2 * * *").await;
    let ten = "return document.querySelectorAll('#preview tbody tr').length === 10
        && document.querySelector('#preview').innerText.includes('02:30:00')";
    browser.wait_for(ten, &[], "ten fires").await;
    browser.wait_for_text("skip a local time").await;
    browser.complaints().await;
    browser.press("form.split", "Create").await;
    browser.wait_for("return /^.schedules.[0-9a-f-]{36}$/.test(location.pathname)", &[], "the schedule").await;
    assert!(browser.text("h1").await.starts_with("nightly <report>"));
    let made = only_schedule(&server).await;
    assert_eq!((&made["cronExpression"], &made["timezone"]), (&json!("30 2 * * *"), &json!("America/New_York")));
    browser.check().await;
}

/// The first request is answered by nobody, as if the service took its time.
const LISTEN_IN: &str = "
window.asked = [];
const ask = window.fetch;
window.fetch = (to, options) => {
    asked.push({ fields: [...options.body.keys()], signal: options.signal });
    if (asked.length > 1) return ask(to, options);
    return new Promise((_, fail) => options.signal.addEventListener('abort', () => fail(options.signal.reason)));
};";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_preview_asks_by_what_it_fires_and_of_several_the_last_is_shown() {
    let database = Database::sqlite();
    let server = Server::start(&database);
    let Some(browser) = Browser::open(&server.url).await else { return };
    browser.go("/schedules/new").await;
    browser.run(LISTEN_IN, &[]).await;
    browser.fill("#payload", r#"{"hello": "world"}"#).await;
    browser.wait_for("return asked.length > 0", &[], "a first preview").await;
    browser.fill("#description", "for the archive").await;
    browser.fill("#cronExpression", "30 2 * * *").await;
    let ten = "return document.querySelectorAll('#preview tbody tr').length === 10";
    browser.wait_for(ten, &[], "ten fires").await;
    let gone = browser.run("return [asked[0].signal.aborted, asked.at(-1).signal.aborted]", &[]).await;
    assert_eq!(gone, json!([true, false]));
    let sent = browser.run("return [...new Set(asked.flatMap((one) => one.fields))]", &[]).await;
    let is_sent = |name: &str| sent.as_array().unwrap().contains(&json!(name));
    assert!(is_sent("cronExpression") && !is_sent("payload") && !is_sent("description"), "{sent}");

    // The button keeps all of it.
    browser.press("form.split", "Preview").await;
    browser.wait_for("return location.pathname === '/schedules/preview'", &[], "the form again").await;
    let kept = "return ['payload', 'description'].map((name) => document.getElementById(name).value)";
    assert_eq!(browser.run(kept, &[]).await, json!([r#"{"hello": "world"}"#, "for the archive"]));
    assert!(browser.has("#preview tbody tr").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schedule_is_paused_resumed_triggered_edited_filled_in_and_deleted() {
    let database = Database::sqlite();
    let server = Server::start(&database);
    let Some(browser) = Browser::open(&server.url).await else { return };
    let body = r#"{"name": "hourly", "cronExpression": "0 * * * *", "timezone": "Europe/Berlin", "topic": "echo"}"#;
    let id = server.post("/api/v1/schedules", body).await.json()["id"].as_str().unwrap().to_owned();
    let page = format!("/schedules/{id}");

    browser.go("/schedules").await;
    assert!(browser.text("main").await.contains("Europe/Berlin"));
    browser.click(&format!("tbody a[href='{page}']")).await;
    browser.wait_for_text("Next fires").await;
    browser.fill("input[name=note]", "while the archive moves").await;
    browser.press("form[action$='/pause']", "Pause").await;
    browser.wait_for_text("“hourly” is paused.").await;
    let paused = only_schedule(&server).await;
    assert_eq!((&paused["enabled"], &paused["pauseNote"]), (&json!(false), &json!("while the archive moves")));
    browser.wait_for_text("while the archive moves").await;

    browser.press("main", "Resume").await;
    browser.wait_for_text("“hourly” fires again.").await;
    assert_eq!(only_schedule(&server).await["enabled"], true);

    browser.press("main", "Trigger now").await;
    let executions = format!("/api/v1/schedules/{id}/executions");
    server.wait_for(&executions, |list| list["items"][0]["kind"] == "manual").await;

    browser.go(&page).await;
    browser.press("main", "Edit").await;
    browser.wait_for_text("Next ten fires").await;
    browser.fill("#description", "by hand").await;
    browser.press("form.split", "Save").await;
    browser.wait_for("return !location.pathname.endsWith('/edit')", &[], "the schedule").await;
    assert_eq!(only_schedule(&server).await["description"], "by hand");

    browser.press("main", "Backfill…").await;
    browser.wait_for("return location.pathname.endsWith('/backfill')", &[], "the form").await;
    enter_time(&browser, "input[name=from]", "2026-01-01T00:00").await;
    enter_time(&browser, "input[name=to]", "2026-01-01T06:00").await;
    browser.press("main", "Count first").await;
    browser.press("main", "Make 6 fires").await;
    let filled =
        |list: &Value| list["items"].as_array().unwrap().iter().filter(|one| one["kind"] == "backfill").count();
    server.wait_for(&executions, |list| filled(list) == 6).await;

    browser.go(&page).await;
    browser.check().await;
    browser.press("main", "Delete…").await;
    browser.press("main", "Delete it").await;
    browser.wait_for("return location.pathname === '/schedules'", &[], "the other schedules").await;
    assert_eq!(server.get("/api/v1/schedules").await.json()["items"], json!([]));
    browser.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_list_pauses_resumes_and_triggers_with_one_click() {
    let database = Database::sqlite();
    let server = Server::start(&database);
    let Some(browser) = Browser::open(&server.url).await else { return };
    let mut ids = Vec::new();
    for name in ["above", "hourly", "below"] {
        let body = json!({ "name": name, "cronExpression": "0 0 29 2 *", "timezone": "UTC", "topic": "echo" });
        ids.push(server.post("/api/v1/schedules", body.to_string()).await.json()["id"].as_str().unwrap().to_owned());
    }
    let id = &ids[1];
    let row = format!("tr:has(a[href='/schedules/{id}'])");
    let enabled = async || {
        let list = server.get("/api/v1/schedules?enabled=true").await.json();
        list["items"].as_array().unwrap().len()
    };
    browser.go("/schedules").await;
    browser.press(&row, "Pause").await;
    browser.wait_for_text("“hourly” is paused.").await;
    assert_eq!(server.get(&format!("/api/v1/schedules/{id}")).await.json()["enabled"], false);
    assert_eq!(enabled().await, 2, "the others fire");

    browser.go("/schedules").await;
    assert!(browser.text(&row).await.contains("paused"));
    browser.press(&row, "Resume").await;
    browser.wait_for_text("“hourly” fires again.").await;
    assert_eq!(enabled().await, 3);

    browser.go("/schedules").await;
    browser.press(&row, "Trigger").await;
    browser.wait_for_text("Triggered: this is the task that it made.").await;
    let executions = server.get(&format!("/api/v1/schedules/{id}/executions")).await.json();
    let [made] = executions["items"].as_array().unwrap().as_slice() else { panic!("{executions}") };
    assert_eq!(made["kind"], "manual");
    assert_eq!(browser.path().await, format!("/tasks/{}", made["taskId"].as_str().unwrap()));
    browser.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_has_an_end_that_can_be_moved_and_taken_away() {
    let database = Database::sqlite();
    let server = Server::start(&database);
    let Some(browser) = Browser::open(&server.url).await else { return };
    let body = r#"{"name": "hourly", "cronExpression": "0 * * * *", "timezone": "Europe/Berlin", "topic": "echo"}"#;
    let id = server.post("/api/v1/schedules", body).await.json()["id"].as_str().unwrap().to_owned();
    let (until, note) = ("input[name=until]", "while the archive moves");
    let field = "return document.querySelector('input[name=until]').value === arguments[0]";
    browser.go(&format!("/schedules/{id}")).await;
    browser.fill("input[name=note]", note).await;
    for (button, local, instant) in [
        ("Pause", "2036-12-01T09:30", json!("2036-12-01T08:30:00.000Z")),
        ("Change the pause", "2036-07-01T09:30", json!("2036-07-01T07:30:00.000Z")),
        ("Change the pause", "", json!(null)),
    ] {
        enter_time(&browser, until, local).await;
        browser.run("window.wasThere = true", &[]).await;
        browser.press("form[action$='/pause']", button).await;
        browser.wait_for("return !window.wasThere", &[], "the page after that").await;
        let said = if button == "Pause" { "“hourly” is paused." } else { "The pause was changed." };
        browser.wait_for_text(said).await;
        let paused = only_schedule(&server).await;
        assert_eq!((&paused["enabled"], &paused["pauseNote"]), (&json!(false), &json!(note)));
        assert_eq!(paused["pausedUntil"], instant, "by the clocks of its zone");
        // The form has what there is, to be changed.
        assert_eq!(browser.run(field, &[json!(local)]).await, json!(true), "{local}");
        let ahead = browser.text("#ahead").await;
        let first = if local.is_empty() { "until somebody resumes it" } else { "10:00:00" };
        assert!(ahead.contains(first), "{ahead}");
        assert_eq!(browser.text("#schedule .notice").await.contains("Paused until"), !local.is_empty());
    }
    browser.press("main", "Resume").await;
    browser.wait_for_text("“hourly” fires again.").await;
    let resumed = only_schedule(&server).await;
    assert_eq!((&resumed["enabled"], &resumed["pauseNote"]), (&json!(true), &json!(null)));
    browser.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_without_a_change_changes_nothing() {
    let database = Database::sqlite();
    let server = Server::start(&database);
    let Some(browser) = Browser::open(&server.url).await else { return };
    for description in ["\none\n\n three \n", "one\r\ntwo"] {
        let body = json!({
            "name": description.replace(['\r', '\n'], "-"), "description": description, "cronExpression": "0 0 1 1 *",
            "timezone": "Asia/Tokyo", "topic": "echo", "payload": {"text": "one\r\ntwo"},
        });
        let path = format!(
            "/schedules/{}",
            server.post("/api/v1/schedules", body.to_string()).await.json()["id"].as_str().unwrap()
        );
        let before = server.get(&format!("/api/v1{path}")).await.json();
        browser.go(&format!("{path}/edit")).await;
        browser.press("form.split", "Save").await;
        browser.wait_for("return !location.pathname.endsWith('/edit')", &[], "the schedule").await;
        assert_eq!(server.get(&format!("/api/v1{path}")).await.json(), before);
        // Beside its own time, which has its zone's name, the reader's says which one that is.
        let times = "
            const zone = (at) => new Intl.DateTimeFormat('en-GB', { timeZoneName: 'short' }).formatToParts(at)
                .find((part) => part.type === 'timeZoneName').value;
            return [...document.querySelectorAll('time[data-clock]')]
                .map((time) => [time.innerText, ' ' + zone(new Date(time.dateTime))])";
        let times = browser.run(times, &[]).await;
        let has_zone = |time: &Value| time[0].as_str().unwrap().ends_with(time[1].as_str().unwrap());
        let times = times.as_array().unwrap();
        assert!(!times.is_empty() && times.iter().all(has_zone), "{times:?}");
    }
    browser.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_month_shows_what_all_schedules_ask_for() {
    let database = Database::sqlite();
    let server = Server::start(&database);
    let Some(browser) = Browser::open(&server.url).await else { return };
    for (name, cron) in [("dawn", "0 6 * * *"), ("noon", "0 12 1 * *")] {
        let body = json!({ "name": name, "cronExpression": cron, "timezone": "Asia/Tokyo", "topic": "echo" });
        server.post("/api/v1/schedules", body.to_string()).await;
    }
    browser.go("/schedules/calendar").await;
    // What fires meanwhile stands there without anybody asking again.
    let id = server.get("/api/v1/schedules?name=dawn").await.json()["items"][0]["id"].as_str().unwrap().to_owned();
    server.post(&format!("/api/v1/schedules/{id}/trigger"), "").await;
    let today = "return document.querySelector('.day.today').innerText.includes('1 fired')
        && /^✓ \\d\\d:\\d\\d dawn$/.test(document.querySelector(`.day.today a[href='/schedules/${arguments[0]}']`).innerText)";
    browser.wait_for(today, &[json!(id)], "what fired today").await;
    browser.press("main", "Month after").await;
    browser.wait_for("return document.body.innerText.includes('noon')", &[], "the first of the next month").await;
    let month = browser.text("main").await;
    assert!(month.contains("those of UTC") && month.contains("21:00 dawn"), "{month}");
    assert!(month.contains("06:00 Asia/Tokyo"), "its own time beside it: {month}");
    browser.check().await;
}
