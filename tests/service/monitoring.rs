//! What Prometheus makes of us: the alerts, our metrics, and a real scrape; and the page that describes it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use reqwest::{Client, Url};
use serde_json::Value;

use crate::on_each_database;
use crate::support::{Database, Process, Server};

on_each_database!(prometheus_understands_our_metrics, a_real_prometheus_scrapes_a_running_service);

/// The Prometheus at hand, or none.
fn prometheus() -> Option<PathBuf> {
    let Ok(path) = std::env::var("TEST_PROMETHEUS") else {
        assert!(std::env::var_os("CI").is_none(), "TEST_PROMETHEUS is not set, and CI skips nothing");
        eprintln!("skipped: TEST_PROMETHEUS is not set");
        return None;
    };
    Some(path.into())
}

fn promtool(prometheus: &Path) -> Command {
    let mut command = Command::new(prometheus.with_file_name("promtool"));
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

#[test]
fn the_alerts_are_valid_and_each_fires_when_it_should() {
    let Some(prometheus) = prometheus() else { return };
    for arguments in [["check", "rules", "config/alerts.yml"], ["test", "rules", "config/alerts_test.yml"]] {
        let output = promtool(&prometheus).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&[output.stdout, output.stderr].concat()));
    }
}

async fn prometheus_understands_our_metrics(database: Database) {
    let Some(prometheus) = prometheus() else { return };
    let server = Server::start(&database);
    let task = server.make_task(r#"{"topic":"echo"}"#).await;
    server.ended_task(task["id"].as_str().unwrap()).await;
    let shown = server.get("/metrics").await.text;
    let file = database.folder.path().join("metrics");
    std::fs::write(&file, shown).unwrap();
    let stdin = Stdio::from(std::fs::File::open(&file).unwrap());
    let output = promtool(&prometheus).args(["check", "metrics"]).stdin(stdin).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&[output.stdout, output.stderr].concat()));
    server.stop();
}

async fn a_real_prometheus_scrapes_a_running_service(database: Database) {
    let Some(prometheus) = prometheus() else { return };
    let server = Server::start(&database);
    let task = server.make_task(r#"{"topic":"echo"}"#).await;
    server.ended_task(task["id"].as_str().unwrap()).await;
    let there = server.url.trim_start_matches("http://");
    let folder = database.folder.path();
    let alerts = concat!(env!("CARGO_MANIFEST_DIR"), "/config/alerts.yml");
    let config = format!(
        "global: {{scrape_interval: 200ms, evaluation_interval: 200ms}}\nrule_files: [{alerts:?}]\nscrape_configs:\n  - \
         job_name: punctual\n    static_configs: [{{targets: [{there:?}]}}]\n"
    );
    std::fs::write(folder.join("prometheus.yml"), config).unwrap();
    let mut process = Process::start(
        Command::new(&prometheus)
            .current_dir(folder)
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data", "--web.listen-address=127.0.0.1:0"])
            .stdin(Stdio::null()),
    );
    let line = process.wait_for_log("Listening on");
    let address = line.split("address=").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    // It listens before it answers.
    process.wait_for_log("Server is ready to receive web requests");

    let completed = r#"punctual_tasks_total{topic="echo",status="completed",origin="task"}"#;
    wait_for(&address, completed, |value| value == "1").await;
    wait_for(&address, r#"up{job="punctual"}"#, |value| value == "1").await;
    wait_for(&address, "punctual_database_up", |value| value == "1").await;
    let count = r#"punctual_task_lag_seconds_count{topic="echo"}"#;
    wait_for(&address, count, |value| value == "1").await;
    let rules = ask(&address, "/api/v1/rules", &[]).await;
    let groups = rules["data"]["groups"].as_array().unwrap();
    let rules = groups.iter().flat_map(|group| group["rules"].as_array().unwrap());
    assert!(rules.inspect(|rule| assert_ne!(rule["health"], "err", "{rule}")).count() > 10);
    server.stop();
}

async fn ask(address: &str, path: &str, query: &[(&str, &str)]) -> Value {
    let url = Url::parse_with_params(&format!("http://{address}{path}"), query).unwrap();
    let client = Client::builder().no_proxy().build().unwrap();
    serde_json::from_str(&client.get(url).send().await.unwrap().text().await.unwrap()).unwrap()
}

/// Waits until Prometheus has a value for a series that is as wanted.
async fn wait_for(address: &str, series: &str, is_wanted: impl Fn(&str) -> bool) {
    let asked_at = Instant::now();
    loop {
        let answer = ask(address, "/api/v1/query", &[("query", series)]).await;
        if answer["data"]["result"][0]["value"][1].as_str().is_some_and(&is_wanted) {
            return;
        }
        assert!(asked_at.elapsed() < Duration::from_secs(60), "{series}: {answer}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_of_the_page_on_monitoring_works_as_written() {
    let database = Database::sqlite();
    let mut server = Server::start(&database);
    let here = server.url.trim_start_matches("http://").to_owned();
    let page = include_str!("../../docs/monitoring.md");
    let calls: Vec<_> =
        page.split("```sh\n").skip(1).flat_map(|block| block.split("```").next().unwrap().lines()).collect();
    assert_eq!(calls.len(), 3);
    let mut followers = Vec::new();
    for call in calls {
        let call = call.replace("localhost:7878", &here).replace("curl ", "curl --fail ");
        let mut process = Process::start(Command::new("sh").args(["-c", &format!("exec {call}")]).stdin(Stdio::null()));
        if call.contains("/events") {
            process.wait_for_output("Punctual's events");
            followers.push(process);
        } else {
            process.wait_for_output("# TYPE punctual_tasks_total counter");
        }
    }
    server.make_task(r#"{"topic":"echo"}"#).await;
    for follower in &mut followers {
        follower.wait_for_output("event: task.completed");
    }
    server.process.signal("TERM");
    assert_eq!(server.process.wait().code(), Some(0));
}
