//! What is said to the demo's service, over its HTTP API: what there is at first, and then what goes on.
//!
//! The fast schedules come first, so that something moves at once. Past executions are those of backfills: each ran in this
//! service, for an instant of the past.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use chrono::{DateTime, Days, SecondsFormat, TimeDelta, Utc};
use punctual_domain::clock::Clock;
use serde_json::{Value, json};
use tracing::error;

use super::outside::{KIT, SECRET};
use crate::SystemClock;
use crate::cli::client::Client;

/// How long customers think about their next orders.
const BETWEEN_ORDERS: Duration = Duration::from_millis(900);
/// How long the one worker of pictures takes for a picture.
const PICTURE: Duration = Duration::from_secs(1);

/// A schedule of the demo.
struct Recurring {
    name: &'static str,
    about: &'static str,
    rhythm: Rhythm,
    zone: &'static str,
    topic: &'static str,
    work: Value,
    /// Hours of its past that are caught up on.
    past_hours: i64,
    more: Value,
}

enum Rhythm {
    Cron(&'static str),
    EveryMs(u64),
}

use Rhythm::{Cron, EveryMs};

/// Tells all of it; goes on until it is dropped. What fails is said, and all the rest goes on.
pub(super) async fn tell(client: &Client, outside: SocketAddr) {
    let now = SystemClock::new().now();
    note(topics(client, outside).await);
    note(client.put(&["calendars", "office-closed"], closed(now)).await.context("the calendar"));
    for schedule in schedules() {
        note(make(client, &schedule, now).await.with_context(|| format!("the schedule {}", schedule.name)));
    }
    note(orders(client).await);
    note(one_off_tasks(client, now).await);
    note(plugins(client, now).await);
    tokio::join!(keep_ordering(client), keep_working(client));
}

/// Says what failed.
fn note<T>(done: Result<T>) {
    if let Err(error) = done {
        error!(error = format!("{error:#}"), "the demo cannot do one of its things");
    }
}

async fn topics(client: &Client, outside: SocketAddr) -> Result<()> {
    let topics = [
        ("shop.*", json!({ "route": { "type": "handler" }, "concurrency": 20 })),
        ("shop.payments", json!({ "route": { "type": "handler" }, "concurrency": 4, "ratePerSecond": 10 })),
        // One at a time, and slower than its schedule: it falls behind.
        ("reports.*", json!({ "route": { "type": "handler" }, "concurrency": 1 })),
        ("pictures.resize", json!({ "route": { "type": "pull" }, "concurrency": 2 })),
        ("audit.trail", json!({ "route": { "type": "event" } })),
        ("legacy.export", json!({ "route": { "type": "event" }, "paused": true })),
        (
            "partners.notify",
            json!({ "route": { "type": "webhook", "url": format!("http://{outside}/partner"), "secrets": [SECRET] } }),
        ),
    ];
    for (name, topic) in topics {
        client.put(&["topics", name], topic).await.with_context(|| format!("the topic {name}"))?;
    }
    Ok(())
}

/// Weekends, and the holidays of the days ahead.
fn closed(now: DateTime<Utc>) -> Value {
    let date = |days: u64| now.date_naive().checked_add_days(Days::new(days)).map(|date| date.to_string());
    json!({ "weekdays": ["sat", "sun"], "dates": [date(2), date(9), date(38)] })
}

fn schedules() -> Vec<Recurring> {
    let schedule = |name, about, rhythm, zone, topic, work, past_hours| Recurring {
        name,
        about,
        rhythm,
        zone,
        topic,
        work,
        past_hours,
        more: json!({}),
    };
    let quick = || json!({ "takesMs": [5, 60] });
    let slow = || json!({ "takesMs": [6000, 12000] });
    let settles = json!({
        "takesMs": [20, 400], "failsOneIn": 5, "error": "the bank answered 504: gateway timeout",
    });
    let stock = json!({ "takesMs": [10, 90], "failsOneIn": 9, "error": "warehouse 7 counts -3 of article 1138", "how": "forGood" });
    let hints =
        json!({ "takesMs": [10, 60], "failsOneIn": 7, "error": "index out of bounds: 40 of 40", "how": "panics" });
    vec![
        schedule("pulse", "Sees that the shop is open", EveryMs(2_000), "UTC", "shop.pulse", quick(), 0),
        schedule("stock", "Counts what is left", Cron("*/5 * * * * *"), "Europe/Berlin", "shop.stock", stock, 0),
        Recurring {
            more: json!({ "maxRetries": 3, "retry": { "backoff": { "type": "exponential", "delay": 2000 } } }),
            ..schedule(
                "settle-payments",
                "Asks the bank for what was paid",
                Cron("*/10 * * * * *"),
                "America/New_York",
                "shop.payments",
                settles,
                0,
            )
        },
        schedule("recommendations", "Guesses what sells", EveryMs(8_000), "UTC", "shop.recommendations", hints, 0),
        schedule(
            "partner-feed",
            "Tells the partner",
            EveryMs(6_000),
            "UTC",
            "partners.notify",
            json!({ "feed": 3 }),
            0,
        ),
        schedule("thumbnails", "Pictures of new articles", EveryMs(4_000), "UTC", "pictures.resize", quick(), 0),
        // Slower than its rhythm: what comes while one still runs is skipped.
        schedule("live-report", "Draws the figures of the day", EveryMs(5_000), "UTC", "reports.live", slow(), 0),
        schedule(
            "hourly-rates",
            "Exchange rates, on the hour",
            Cron("0 * * * *"),
            "Asia/Kolkata",
            "shop.rates",
            json!({ "takesMs": [20, 700], "failsOneIn": 12, "error": "rates of yesterday" }),
            36,
        ),
        schedule(
            "nightly-report",
            "02:30 does not exist on the day the clocks go forward: it then fires at 03:00",
            Cron("30 2 * * *"),
            "America/New_York",
            "shop.nightly",
            json!({ "takesMs": [50, 900] }),
            24 * 30,
        ),
        schedule(
            "quarter-hour-in-the-fold",
            "Every quarter of an hour, both times round when the clocks go back",
            Cron("*/15 * * * *"),
            "Europe/London",
            "shop.rates",
            quick(),
            8,
        ),
        schedule(
            "island-tide",
            "Where the clocks move by half an hour",
            Cron("0 */2 * * *"),
            "Australia/Lord_Howe",
            "shop.tide",
            quick(),
            60,
        ),
        schedule(
            "morning-in-alberta",
            "Where clocks are not changed any more",
            Cron("30 8 * * 1-5"),
            "America/Edmonton",
            "shop.morning",
            quick(),
            24 * 40,
        ),
        schedule(
            "sydney-close",
            "The end of the day",
            Cron("0 17 * * 1-5"),
            "Australia/Sydney",
            "shop.close",
            quick(),
            24 * 40,
        ),
        schedule(
            "month-end",
            "The last day at six",
            Cron("0 18 L * *"),
            "Asia/Tokyo",
            "shop.invoices",
            quick(),
            24 * 300,
        ),
        Recurring {
            more: json!({ "excludeCalendars": ["office-closed"] }),
            ..schedule(
                "supplier-orders",
                "Not while the office is closed",
                Cron("0 7 * * *"),
                "Europe/Madrid",
                "shop.suppliers",
                quick(),
                24 * 30,
            )
        },
        schedule("old-importer", "Replaced by partner-feed", Cron("0 * * * *"), "UTC", "legacy.import", json!({}), 24),
    ]
}

async fn make(client: &Client, schedule: &Recurring, now: DateTime<Utc>) -> Result<()> {
    let mut body = json!({
        "name": schedule.name,
        "description": schedule.about,
        "timezone": schedule.zone,
        "topic": schedule.topic,
        "payload": schedule.work,
        "metadata": { "ownerId": "shop" },
    });
    match schedule.rhythm {
        Cron(expression) => body["cronExpression"] = expression.into(),
        EveryMs(length) => body["everyMs"] = length.into(),
    }
    if let (Value::Object(body), Value::Object(more)) = (&mut body, schedule.more.clone()) {
        body.extend(more);
    }
    let made = client.post(&["schedules"], body).await?.json()?;
    let id = made["id"].as_str().unwrap_or_default();
    if schedule.past_hours > 0 {
        catch_up(client, id, now, schedule.past_hours).await?;
    }
    if schedule.name == "old-importer" {
        let note = "Replaced by partner-feed; remove it when the partner has confirmed. Ask Ada.";
        client.post(&["schedules", id, "pause"], json!({ "note": note })).await?;
    }
    Ok(())
}

/// Has the schedule fire for the instants of so many hours that are past.
async fn catch_up(client: &Client, id: &str, now: DateTime<Utc>, hours: i64) -> Result<()> {
    let from = now - TimeDelta::hours(hours);
    client.post(&["schedules", id, "backfill"], json!({ "from": at(from), "to": at(now) })).await?;
    Ok(())
}

async fn one_off_tasks(client: &Client, now: DateTime<Utc>) -> Result<()> {
    let owner = |owner: &str| json!({ "ownerId": owner, "tenantId": "shop", "correlationId": "demo" });
    let quick = json!({ "takesMs": [5, 200] });
    let fails = |error: &str, how: &str| json!({ "takesMs": [20, 200], "failsOneIn": 1, "error": error, "how": how });
    let retried = |attempts: u32, delay: u32| json!({ "attempts": attempts, "backoff": { "type": "exponential", "delay": delay, "jitter": 0 } });
    let soon = |seconds: i64| at(now + TimeDelta::seconds(seconds));
    let tasks = json!([
        { "topic": "shop.refund", "payload": fails("customer 4711 has no account", "forGood"), "metadata": owner("ada") },
        { "topic": "shop.payments", "payload": fails("card declined: insufficient funds", "retried"), "retry": retried(3, 1000), "metadata": owner("grace") },
        { "topic": "shop.payments", "payload": fails("the bank answered 504: gateway timeout", "retried"), "retry": retried(8, 5000), "metadata": owner("grace") },
        { "topic": "shop.recommendations", "payload": fails("attempt to divide by zero", "panics") },
        { "topic": "shop.catalogue", "payload": { "takesMs": [60000, 60000], "about": "too slow for its time limit" }, "timeoutSeconds": 2 },
        { "topic": "shop.catalogue", "payload": { "takesMs": [240000, 240000], "about": "four minutes of work" } },
        { "topic": "legacy.export", "payload": { "rows": 1200 }, "metadata": owner("ada") },
        { "topic": "legacy.export", "payload": { "rows": 80 } },
        { "topic": "audit.trail", "payload": { "who": "ada", "did": "changed a price" } },
        { "topic": "shop.newsletter", "runAt": soon(45), "timezone": "Europe/Paris", "payload": quick, "metadata": owner("ada") },
        { "topic": "shop.newsletter", "runAt": soon(300), "timezone": "America/Sao_Paulo", "payload": quick },
        { "topic": "shop.newsletter", "runAt": soon(1500), "timezone": "Asia/Tokyo", "payload": quick, "priority": 10 },
        { "topic": "shop.sale.begins", "runAt": soon(2700), "timezone": "America/Mexico_City", "payload": quick },
        { "topic": "shop.sale.ends", "runAt": soon(26 * 3600), "timezone": "America/Mexico_City", "payload": quick },
        { "topic": "shop.contract.renewal", "runAt": soon(90 * 24 * 3600), "timezone": "Europe/Zurich", "payload": quick },
    ]);
    client.post(&["tasks", "batch"], json!({ "tasks": tasks })).await?;
    let pictures: Vec<_> = (1..=14)
        .map(|number| json!({ "topic": "pictures.resize", "payload": { "picture": format!("article-{number}.jpg"), "width": 640 } }))
        .collect();
    client.post(&["tasks", "batch"], json!({ "tasks": pictures })).await?;
    let unwanted = json!({ "topic": "shop.newsletter", "delayMs": 600_000, "payload": { "about": "sent by mistake" } });
    let unwanted = client.post(&["tasks"], unwanted).await?.json()?;
    client.post(&["tasks", unwanted["id"].as_str().unwrap_or_default(), "cancel"], json!({})).await?;
    Ok(())
}

/// Sign-ups, events and tests of homes; their messages go to the outbox.
async fn plugins(client: &Client, now: DateTime<Utc>) -> Result<()> {
    for name in ["ada", "grace", "edsger", "barbara"] {
        let email = format!("{name}@example.com");
        client.post(&["plugins", "signup", "sessions"], json!({ "email": email })).await?;
    }
    let event = json!({
        "title": "Stock-taking & <inventory>",
        "startDate": at(now + TimeDelta::seconds(8)),
        "endDate": at(now + TimeDelta::seconds(90)),
        "timezone": "Europe/Berlin",
        "creator": { "name": "Ada", "email": "ada@example.com" },
        "participants": [{ "name": "Grace", "email": "grace@example.com" }],
    });
    let event = client.post(&["plugins", "operations", "events"], event).await?.json()?;
    let rule = json!({
        "subjectType": "event", "subjectId": event["id"], "channels": ["webhook"],
        "rule": { "type": "relative", "anchor": "start", "offset": "PT2S" },
    });
    client.post(&["plugins", "operations", "rules"], rule).await?;

    for (name, days, kit) in [("Edsger", 31, KIT), ("Barbara", 61, "KIT-2042"), ("Donald", 5, "KIT-2043")] {
        let session = json!({
            "name": name, "email": format!("{}@example.com", name.to_lowercase()), "kitSerialNumber": kit,
            "activatedAt": at(now - TimeDelta::days(days)),
        });
        client.post(&["plugins", "clearpath", "sessions"], session).await?;
    }
    let expires = (now + TimeDelta::days(20)).date_naive().to_string();
    let contractor = json!({ "name": "Radon Removal Ltd", "email": "office@example.com", "cnrppExpiryDate": expires });
    client.post(&["plugins", "clearpath", "contractors"], contractor).await?;
    for name in ["emailQueue", "cnrppAlert", "labResultPoll"] {
        let id = client.schedule_id(name).await?;
        client.post(&["schedules", &id, "trigger"], json!({})).await?;
    }
    for (name, hours) in
        [("emailQueue", 7), ("operationsReconcile", 2), ("sessionExpiry", 24 * 30), ("certificateExpiry", 24 * 30)]
    {
        catch_up(client, &client.schedule_id(name).await?, now, hours).await?;
    }
    Ok(())
}

/// What customers of one moment buy.
async fn orders(client: &Client) -> Result<()> {
    let many = 2 + SystemClock::new().now().timestamp_subsec_millis() % 9;
    let order = json!({
        "topic": "shop.orders",
        "payload": { "articles": [1138, 2187], "takesMs": [5, 350], "failsOneIn": 60, "error": "article 2187 is sold out" },
        "metadata": { "tenantId": "shop" },
        "retry": { "attempts": 2, "backoff": { "type": "fixed", "delay": 3000 } },
    });
    let orders = vec![order; many as usize];
    client.post(&["tasks", "batch"], json!({ "tasks": orders })).await?;
    Ok(())
}

async fn keep_ordering(client: &Client) {
    loop {
        tokio::time::sleep(BETWEEN_ORDERS).await;
        note(orders(client).await.context("the next orders"));
    }
}

/// The worker of the pull topic, which has caught up after some twenty seconds.
async fn keep_working(client: &Client) {
    loop {
        let claim = json!({ "topics": ["pictures.resize"], "waitMs": 10_000 });
        let claimed = client.post(&["claims"], claim).await.and_then(|answer| answer.json());
        let Ok(claimed) = claimed else {
            note(claimed.context("the next pictures"));
            tokio::time::sleep(PICTURE).await;
            continue;
        };
        for task in claimed["tasks"].as_array().into_iter().flatten() {
            tokio::time::sleep(PICTURE).await;
            let path = ["tasks", task["id"].as_str().unwrap_or_default(), "complete"];
            // Somebody may have cancelled it meanwhile.
            let _ = client.post(&path, json!({ "epoch": task["epoch"], "result": { "bytes": 18_211 } })).await;
        }
    }
}

fn at(instant: DateTime<Utc>) -> String {
    instant.to_rfc3339_opts(SecondsFormat::Millis, true)
}
