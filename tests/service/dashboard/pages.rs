//! Every page answers, and wears what keeps foreign content out.

use reqwest::Method;

use super::{NOWHERE, Visit, YEARLY, failed_task, make};
use crate::on_each_database;
use crate::support::{Database, Server};

on_each_database!(every_page_answers_and_says_what_it_is_for, every_answer_keeps_foreign_content_out,);

async fn every_page_answers_and_says_what_it_is_for(database: Database) {
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    server.wait_for("/api/v1/nodes", |nodes| nodes["items"][0]["leader"] == true).await;
    let overview = visit.overview("No schedule is enabled").await;
    for part in ["No schedule is enabled", "The next hour", "No task failed in the last 24 hours", "leads", "<nav"] {
        assert!(overview.contains(part), "{part}: {overview}");
    }
    assert!(visit.page("/schedules").await.contains("There are no schedules yet"));
    assert!(visit.page("/tasks").await.contains("There are no tasks yet"));
    assert!(visit.page("/schedules/calendar").await.contains("no schedule asks for a fire from now on"));
    assert!(visit.page("/schedules/calendar?month=2031-02").await.contains("February 2031"));

    let id = make(&server, YEARLY).await;
    let task = failed_task(&server, "mail.welcome", "no user 17 here").await;
    let list = visit.page("/schedules").await;
    for part in ["yearly", "0 0 1 1 *", "America/Edmonton", "none yet", "Pause", "Trigger"] {
        assert!(list.contains(part), "{part}: {list}");
    }
    assert!(visit.page("/schedules?enabled=false").await.contains("No schedule matches"));
    let schedule = visit.page(&format!("/schedules/{id}")).await;
    for part in ["yearly", "Next fires", "It has not fired yet", "Definition", "Trigger now", "Backfill…", "Delete…"]
    {
        assert!(schedule.contains(part), "{part}: {schedule}");
    }
    // Midnight in Edmonton, as the clocks of one zone show it that the page names.
    for (zone, month, next, at, its_own) in [
        ("UTC", "2040-01", "2040-02", "06:00", Some("00:00")),
        ("America/Edmonton", "2040-01", "2040-02", "00:00", None),
        ("Pacific/Honolulu", "2039-12", "2040-01", "20:00", Some("Sun 1 Jan 00:00")),
    ] {
        let page = visit.page(&format!("/schedules/calendar?month={month}&zone={zone}")).await;
        let said = format!("Days and times are those of <strong>{zone}</strong>.");
        assert!(page.contains(&said) && page.contains(&format!("<time>{at}</time> yearly")), "{zone}: {page}");
        let beside = its_own.map(|time| format!("<span class=\"own\">{time} America/Edmonton</span>"));
        assert_eq!(page.contains("class=\"own\""), beside.is_some(), "{zone}: {page}");
        assert!(beside.is_none_or(|beside| page.contains(&beside)), "{zone}: {page}");
        assert!(page.contains(&format!("?month={next}&amp;zone={}", zone.replace('/', "%2F"))), "{zone}: {page}");
    }
    assert!(visit.page("/schedules/calendar?month=2040-01").await.contains("<strong>UTC</strong>"));
    assert!(visit.page(&format!("/schedules/{id}/edit")).await.contains("value=\"0 0 1 1 *\""));
    let tasks = visit.page("/tasks?status=failed&topic=mail.welcome").await;
    for part in [task.as_str(), "no user 17 here", "Retry failed…"] {
        assert!(tasks.contains(part), "{part}: {tasks}");
    }
    let shown = visit.page(&format!("/tasks/{task}")).await;
    for part in ["Why it failed", "no user 17 here", "Attempt 1", "Payload", "What became of it"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let found = visit.get(&format!("/tasks?id=%20{task}")).await;
    assert_eq!((found.status.as_u16(), found.location), (303, format!("/tasks/{task}")));
    assert_eq!(visit.get("/tasks?id=unknown").await.location, "/tasks");

    assert!(!shown.contains("nobody serves"), "{shown}");
    let mistyped = server.make_task(r#"{"topic":"mial.welcome","delayMs":3600000}"#).await;
    let mistyped = visit.page(&format!("/tasks/{}", mistyped["id"].as_str().unwrap())).await;
    assert!(mistyped.contains("nobody serves the topic mial.welcome"), "{mistyped}");

    let waiting = server.make_task(r#"{"topic":"mail.welcome","delayMs":3600000}"#).await;
    let waiting = visit.page(&format!("/tasks/{}", waiting["id"].as_str().unwrap())).await;
    assert!(waiting.contains("Why is this not running?") && waiting.contains("Reschedule"), "{waiting}");

    for (path, status) in [
        ("/nowhere", 404),
        ("/schedules/none", 404),
        (&*format!("/schedules/{NOWHERE}"), 404),
        (&*format!("/tasks/{NOWHERE}"), 404),
        ("/tasks?colour=red", 400),
        ("/tasks?status=done", 400),
        ("/schedules/calendar?month=13", 400),
        ("/schedules/calendar?zone=Mars/Base", 400),
        ("/assets/other.css", 404),
    ] {
        let seen = visit.send(Method::GET, path, &[], &[("accept", "text/html")]).await;
        assert_eq!(seen.status.as_u16(), status, "{path}");
        assert!(seen.text.starts_with("<!DOCTYPE html>"), "{path}: {seen:?}");
    }
    server.stop();
}

async fn every_answer_keeps_foreign_content_out(database: Database) {
    let server = Server::start(&database);
    let visit = Visit::of(&server);
    for path in ["/", "/schedules", "/tasks", "/nowhere", "/login", "/schedules/new"] {
        let seen = visit.send(Method::GET, path, &[], &[("accept", "text/html")]).await;
        for part in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"] {
            assert!(seen.policy.contains(part), "{path}: {}", seen.policy);
        }
        assert!(!seen.text.contains("style=\"") && !seen.text.contains("<style"), "{path}: nothing inline");
        assert!(!seen.text.contains("http://") && !seen.text.contains("https://"), "{path}: nothing from outside");
    }
    let page = visit.page("/").await;
    for kind in [".css", ".js", ".svg"] {
        let end = page.find(kind).unwrap() + kind.len();
        let begin = page[..end].rfind('"').unwrap() + 1;
        let response = server.request(Method::GET, &page[begin..end]).send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert!(response.headers()["cache-control"].to_str().unwrap().contains("immutable"));
    }
    server.stop();
}
