//! `punctual bench`: each workload in short. What it measured is said in one line, and nothing of it is left behind.

use serde_json::{Value, json};

use crate::on_each_database;
use crate::support::{Database, punctual};

on_each_database!(
    drained_tasks_are_all_counted,
    runs_beside_the_same_future_and_history_are_told_by_median_and_spread,
    single_and_bulk_writes_go_through_the_library,
    a_wait_is_told_by_its_percentiles,
    schedules_that_fire_every_second_are_counted,
    one_bad_run_leaves_nothing_behind_either,
);

const PERCENTILES: [&str; 4] = ["p50", "p95", "p99", "max"];

/// What `bench` says in JSON; its scratch place is gone by then.
async fn bench(database: &Database, arguments: &str) -> Value {
    let (code, out, log) = run(database, &format!("{arguments} --json")).await;
    assert_eq!((code, log.as_str()), (Some(0), ""), "{arguments}: {out}");
    assert_eq!(out.lines().count(), 1, "{out}");
    let found: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(found["peer"], "punctual");
    let database = if database.url.starts_with("sqlite:") { "sqlite" } else { "postgres" };
    assert!(found["config"].as_str().unwrap().starts_with(database), "{found}");
    found
}

/// How it ended, and what it said where.
async fn run(database: &Database, arguments: &str) -> (Option<i32>, String, String) {
    let mut command = punctual(database.folder.path());
    command.arg("bench").args(arguments.split(' ')).args(["--database", &database.url]);
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    assert_eq!(scratches(database).await, 0, "{arguments}");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// How many scratch places there are.
async fn scratches(database: &Database) -> i64 {
    if database.url.starts_with("sqlite:") {
        let files = std::fs::read_dir(database.folder.path()).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        return names.filter(|name| name.starts_with("punctual_bench_")).count() as i64;
    }
    database.number("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'punctual_bench_%'").await
}

/// The names of the numbers that were measured.
fn parts(value: &Value) -> Vec<&str> {
    value.as_object().unwrap_or_else(|| panic!("{value}")).keys().map(String::as_str).collect()
}

fn holds(value: &Value, names: &[&str]) {
    let mut names = names.to_vec();
    names.sort_unstable();
    let mut found = parts(value);
    found.sort_unstable();
    assert_eq!(found, names);
    assert!(names.iter().all(|name| value[*name].as_f64().is_some_and(|number| number >= 0.0)), "{value}");
    let sorted = PERCENTILES.map(|name| value[name].as_f64().unwrap());
    assert!(sorted.is_sorted(), "{value}");
}

async fn drained_tasks_are_all_counted(database: Database) {
    let drained = bench(&database, "drain --tasks 300 --batch 50 --concurrency 20").await;
    assert_eq!(
        (&drained["workload"], &drained["n"], &drained["unit"]),
        (&json!("drain"), &json!(300), &json!("tasks/s"))
    );
    assert!(drained["value"].as_f64().unwrap() > 0.0, "{drained}");
    assert_eq!((&drained["runs"], &drained["min"], &drained["max"]), (&json!(1), &drained["value"], &drained["value"]));
    let config = drained["config"].as_str().unwrap();
    assert!(config.ends_with(" batch=50 concurrency=20 (history)"), "{config}");
    let (code, text, log) = run(&database, "drain --tasks 10").await;
    assert_eq!((code, log.as_str()), (Some(0), ""));
    assert!(text.starts_with("drain, 10 tasks, 1 run, ") && text.ends_with(" tasks/s\n"), "{text}");
}

async fn runs_beside_the_same_future_and_history_are_told_by_median_and_spread(database: Database) {
    let drained = bench(&database, "drain --tasks 200 --runs 3 --future 400 --history 500").await;
    let rate = |which: &str| drained[which].as_f64().unwrap();
    assert!(0.0 < rate("min") && rate("min") <= rate("value") && rate("value") <= rate("max"), "{drained}");
    assert_eq!(drained["runs"], 3);
    assert!(drained["config"].as_str().unwrap().ends_with(" future=400 history=500"), "{drained}");
}

async fn single_and_bulk_writes_go_through_the_library(database: Database) {
    let single = bench(&database, "enqueue --tasks 100 --producers 4 --runs 2").await;
    assert_eq!((&single["workload"], &single["n"]), (&json!("enqueue-single"), &json!(100)));
    assert_eq!((&single["unit"], &single["runs"]), (&json!("tasks/s"), &json!(2)));
    let bulk = bench(&database, "enqueue --tasks 1000 --producers 2 --per-call 300").await;
    assert_eq!((&bulk["workload"], &bulk["n"]), (&json!("enqueue-bulk"), &json!(1_000)));
    assert!(bulk["config"].as_str().unwrap().ends_with(" producers=2 per_call=300"), "{bulk}");
}

async fn a_wait_is_told_by_its_percentiles(database: Database) {
    for (arguments, workload, n, more) in [
        ("latency --tasks 30 --gap 2", "latency", 30, &[][..]),
        ("precision --tasks 30 --span 1", "timer", 30, &[]),
        ("burst --schedules 20", "burst", 20, &["drained"]),
        ("tick --schedules 10 --due 10 --seconds 1", "tick", 10, &[]),
    ] {
        let found = bench(&database, arguments).await;
        let expected = (&json!(workload), &json!(n), &json!("ms"));
        assert_eq!((&found["workload"], &found["n"], &found["unit"]), expected);
        holds(&found["value"], &[&PERCENTILES[..], more].concat());
        // Of one run, the spread is that run.
        assert_eq!((&found["min"], &found["max"]), (&found["value"], &found["value"]));
    }
}

async fn schedules_that_fire_every_second_are_counted(database: Database) {
    let found = bench(&database, "recurring --tasks 7 --seconds 2").await;
    assert_eq!((&found["workload"], &found["n"]), (&json!("recurring"), &json!(7)));
    holds(&found["value"], &[&PERCENTILES[..], &["made", "expected", "row_p99", "row_max"]].concat());
    assert_eq!((&found["value"]["made"], &found["value"]["expected"]), (&json!(14.0), &json!(14.0)));
}

async fn one_bad_run_leaves_nothing_behind_either(database: Database) {
    let (code, out, log) = run(&database, "tick --schedules 10 --due 3").await;
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(log.contains("--schedules must be a multiple of --due"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_ends_is_followed_by_another_after_a_lease_of_any_length() {
    let Some(database) = Database::postgres().await else { return };
    // No whole number of seconds is a third of two.
    let found = bench(&database, "failover --end kill --lease 2").await;
    assert_eq!((&found["workload"], &found["n"], &found["unit"]), (&json!("failover"), &json!(2), &json!("ms")));
    assert!(found["config"].as_str().unwrap().ends_with("lease in PostgreSQL of 2 s, leader ended by kill"), "{found}");
    assert_eq!(parts(&found["value"]), ["longest_wait"]);
}

#[tokio::test]
async fn a_file_has_nobody_who_takes_over() {
    let (code, _, log) = run(&Database::sqlite(), "failover").await;
    assert_eq!(code, Some(1));
    assert!(log.contains("a SQLite file has one node"), "{log}");
}
