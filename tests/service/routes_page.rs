//! The examples of `docs/routes.md`, as they are written. Those in Rust are run with the documentation's tests.

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::fleet::packages;
use crate::support::{Database, Process, Redis, Server, python};

/// The blocks of a language in the section of that name, in order.
fn blocks(section: &str, language: &str) -> Vec<&'static str> {
    let page = include_str!("../../docs/routes.md").split("\n## ");
    let section = page.skip(1).find_map(|text| text.strip_prefix(section)).expect("a section");
    let all = section.split("```").skip(1).step_by(2);
    all.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n')).collect()
}

fn serve(database: &Database) -> Server {
    Server::start_with(database, |command| command.env("PUNCTUAL_WEBHOOK_ALLOW", "127.0.0.0/8"))
}

/// Runs the shell's part of a section, and answers what the last call answered.
fn shell(server: &Server, section: &str, port: u16) -> Value {
    let here = server.url.trim_start_matches("http://");
    let script = blocks(section, "sh").join("\n").replace("localhost:7878", here).replace("8080", &port.to_string());
    let script = script.replace("curl ", "curl -sSf -w '\\n' ");
    let output = Command::new("sh").args(["-ec", &script]).output().unwrap();
    assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

/// The program of a section in that language, at work.
fn program(server: &Server, section: &str, language: &str, port: u16) -> Option<Process> {
    let code = blocks(section, language)[0].replace("8080", &port.to_string());
    let mut command = match language {
        "python" => Command::new(python()?),
        _ => Command::new("node"),
    };
    match language {
        "python" => command.args(["-c", &code]),
        _ => command.args(["--input-type=module", "-e", &code]),
    };
    Some(Process::start(command.env("PUNCTUAL_URL", &server.url)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_for_a_handler_is_made_as_the_page_says() {
    let database = Database::sqlite();
    let server = serve(&database);
    let Some(mut caller) = program(&server, "handler", "python", 0) else { return };
    assert_eq!(caller.wait_for_output("completed"), "completed {'hello': 'world'}");
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_receivers_of_the_page_receive() {
    let database = Database::sqlite();
    let server = serve(&database);
    for (language, result) in
        [("python", json!({"status": 200, "body": "order 17, by python"})), ("js", json!("order 17, by node"))]
    {
        // Nobody else gets the port in the moment in between.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let Some(_receiver) = program(&server, "webhook", language, port) else { return };
        while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let task = shell(&server, "webhook", port);
        let task = server.ended_task(task["id"].as_str().unwrap()).await;
        assert_eq!((&task["status"], &task["result"]), (&json!("completed"), &result), "{task}");
    }
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_listeners_of_the_page_hear() {
    let database = Database::sqlite();
    let server = serve(&database);
    for language in ["python", "js"] {
        let Some(mut listener) = program(&server, "event", language, 0) else { return };
        server.samples(|samples| samples.value("punctual_event_streams") == Some(1.0)).await;
        shell(&server, "event", 0);
        let heard = listener.wait_for_output("heard");
        assert!(heard.ends_with("heard of invoice 4711"), "{heard}");
        drop(listener);
        server.samples(|samples| samples.value("punctual_event_streams") == Some(0.0)).await;
    }
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_workers_of_the_page_work() {
    let database = Database::sqlite();
    let server = serve(&database);
    for language in ["python", "js"] {
        let Some(_worker) = program(&server, "pull", language, 0) else { return };
        let task = shell(&server, "pull", 0);
        let task = server.ended_task(task["id"].as_str().unwrap()).await;
        let by = if language == "js" { "node" } else { language };
        assert_eq!(task["result"], json!(format!("640 wide, by {by}")), "{task}");
    }
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_workers_of_a_queue_run_its_tasks_as_the_page_says() {
    let (Some(packages), Some(python)) = (packages(), python()) else { return };
    let (database, redis) = (Database::sqlite(), Redis::start());
    let server = Server::start_with(&database, |command| command.env("REDIS_URL", redis.url()));
    // The package has another name here, where there are two releases of it.
    let node = blocks("bullmq", "js")[0].replace(r#"require("bullmq")"#, r#"require("bullmq6")"#);
    let workers = [("node", "node", "-e", &*node), ("python", &*python, "-c", blocks("bullmq", "python")[0])];
    for (by, program, flag, code) in workers {
        let mut command = Command::new(program);
        command.args([flag, code]).envs([("NODE_PATH", &packages), ("REDIS_URL", &redis.url().into())]);
        let _worker = Process::start(&mut command);
        let task = shell(&server, "bullmq", 0);
        let task = server.ended_task(task["id"].as_str().unwrap()).await;
        assert_eq!(task["result"], json!(format!("640.png, by {by}")), "{task}");
    }
    server.stop();
}
