//! Executions over HTTP: what became of a schedule's instants.

use serde_json::{Value, json};

use crate::on_each_database_and_pooler;
use crate::schedules::{YEARLY, make, path_of};
use crate::support::{Database, Server};

on_each_database_and_pooler!(
    an_execution_shows_exactly_these_fields,
    executions_are_filtered_by_status_and_instant,
    executions_are_paged,
    bad_queries_are_refused_by_name,
    skipped_instants_are_one_execution,
);

async fn list(server: &Server, schedule: &Value, query: &str) -> Vec<Value> {
    let answer = server.get(&path_of(schedule, &format!("/executions?{query}"))).await;
    assert_eq!(answer.status, 200, "{query}: {answer:?}");
    answer.json()["items"].as_array().unwrap().clone()
}

async fn an_execution_shows_exactly_these_fields(database: Database) {
    let server = Server::start_with(&database, |command| command.arg("--paused"));
    let made = make(&server, YEARLY).await;
    let task = server.post(&path_of(&made, "/trigger"), "").await.json();
    let mut execution = list(&server, &made, "").await.remove(0);
    for volatile in ["id", "firedAt", "tzVersion", "lagMs"] {
        assert!(!execution[volatile].is_null(), "{volatile}");
        execution.as_object_mut().unwrap().remove(volatile);
    }
    let expected = json!({
        "kind": "manual", "scheduledAt": task["scheduledAt"], "startedAt": null, "completedAt": null,
        "status": "pending", "attempts": 0, "durationMs": null, "error": null, "taskId": task["id"], "reason": null,
        "until": null, "count": 1,
    });
    assert_eq!(execution, expected);
    server.stop();
}

async fn executions_are_filtered_by_status_and_instant(database: Database) {
    let server = Server::start(&database);
    let body = r#"{"name":"hourly","cronExpression":"0 * * * *","timezone":"UTC","topic":"echo","enabled":false}"#;
    let made = make(&server, body).await;
    let stretch = r#"{"from":"2026-01-01T00:00:00Z","to":"2026-01-01T04:00:00Z"}"#;
    server.post(&path_of(&made, "/backfill"), stretch).await;
    for execution in list(&server, &made, "").await {
        server.ended_task(execution["taskId"].as_str().unwrap()).await;
    }
    for (query, expected) in [
        ("status=completed", 4),
        ("status=failed", 0),
        ("status=failed,completed", 4),
        ("status=active,pending,cancelled,skipped", 0),
        ("status=skipped", 0),
        ("status=dispatched", 0),
        ("status=dispatched,completed", 4),
        ("from=2026-01-01T01:00:00Z", 3),
        ("to=2026-01-01T01:00:00Z", 1),
        ("from=2026-01-01T01:00:00Z&to=2026-01-01T03:00:00Z", 2),
        ("limit=3", 3),
    ] {
        assert_eq!(list(&server, &made, query).await.len(), expected, "{query}");
    }
    server.stop();
}

async fn executions_are_paged(database: Database) {
    let server = Server::start_with(&database, |command| command.arg("--paused"));
    let made = make(&server, YEARLY).await;
    let mut newest_first = Vec::new();
    for _ in 0..7 {
        newest_first.insert(0, server.post(&path_of(&made, "/trigger"), "").await.json()["id"].clone());
    }
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = server.get(&path_of(&made, &format!("/executions?limit=3&cursor={cursor}"))).await.json();
        seen.extend(page["items"].as_array().unwrap().iter().map(|item| item["taskId"].clone()));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(seen, newest_first);
    server.stop();
}

async fn bad_queries_are_refused_by_name(database: Database) {
    let server = Server::start(&database);
    let made = make(&server, YEARLY).await;
    for (query, field) in [
        ("status=done", "status"),
        ("limit=1001", "limit"),
        ("cursor=!", "cursor"),
        ("from=now", "from"),
        ("topic=a", "topic"),
    ] {
        let answer = server.get(&path_of(&made, &format!("/executions?{query}"))).await;
        assert_eq!(answer.problem(400, "INVALID"), [field], "{query}");
    }
    server.stop();
}

async fn skipped_instants_are_one_execution(database: Database) {
    let server = Server::start_with(&database, |command| command.arg("--paused"));
    let body = r#"{"name":"hourly","cronExpression":"0 * * * *","timezone":"UTC","topic":"echo"}"#;
    let made = make(&server, body).await;
    let id = made["id"].as_str().unwrap().replace('-', "");
    let (id, micros) = match database.url.starts_with("sqlite") {
        true => (format!("x'{id}'"), ["1767225600000000", "1767236400000000"].map(str::to_owned)),
        false => (format!("'{id}'"), ["'2026-01-01T00:00:00Z'", "'2026-01-01T03:00:00Z'"].map(str::to_owned)),
    };
    let [from, until] = micros;
    let row = format!(
        "INSERT INTO punctual_fires (id, schedule_id, kind, scheduled_at, fired_at, reason, until_at, count, tz_version)
         VALUES ({id}, {id}, 'schedule', {from}, {until}, 'coalesced', {until}, 4, '2026a')"
    );
    database.execute(&row).await;
    let found = list(&server, &made, "status=skipped").await;
    let expected = json!({
        "id": found[0]["id"], "kind": "schedule", "scheduledAt": "2026-01-01T00:00:00.000Z",
        "firedAt": "2026-01-01T03:00:00.000Z", "startedAt": null, "completedAt": null, "status": "skipped",
        "attempts": 0, "durationMs": null, "lagMs": 10_800_000, "error": null, "taskId": null, "reason": "coalesced",
        "tzVersion": "2026a", "until": "2026-01-01T03:00:00.000Z", "count": 4,
    });
    assert_eq!(found, [expected]);
    for (query, count) in [
        ("from=2026-01-01T03:00:00Z", 1),
        ("from=2026-01-01T03:00:01Z", 0),
        ("to=2026-01-01T00:00:00Z", 0),
        ("from=2026-01-01T01:30:00Z&to=2026-01-01T01:31:00Z", 1),
        ("status=pending", 0),
    ] {
        assert_eq!(list(&server, &made, query).await.len(), count, "{query}: a run that overlaps is found");
    }
    server.stop();
}
