//! The commands in `docs/security.md`, as they are written.

use std::process::Command;

use serde_json::Value;

use crate::operating_page::blocks;
use crate::support::{Database, Server, punctual};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_of_the_page_works_as_written() {
    let database = Database::sqlite();
    let server = Server::start(&database);
    let binary = punctual(database.folder.path());
    let mut token = String::new();
    let mut run = |line: &str| {
        let script = line.replacen("punctual ", &format!("{} ", binary.get_program().display()), 1);
        let mut command = Command::new("sh");
        command.args(["-ec", &script]).current_dir(database.folder.path()).env("PUNCTUAL_URL", &server.url);
        let output = command.env("PUNCTUAL_TOKEN", &token).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        let told = String::from_utf8(output.stdout).unwrap();
        if token.is_empty() {
            token = told.trim().to_owned();
        }
        told
    };
    let mut told = Vec::new();
    for line in blocks(include_str!("../../docs/security.md"), "sh").flat_map(str::lines) {
        let mut line = line.to_owned();
        if line.starts_with("punctual key revoke ") {
            let keys: Value = serde_json::from_str(&run("punctual key list --json")).unwrap();
            let mailer = keys["items"].as_array().unwrap().iter().find(|key| key["name"] == "mailer").unwrap();
            let given = line.split_whitespace().nth(3).unwrap().to_owned();
            line = line.replace(&given, mailer["id"].as_str().unwrap());
        }
        told.push(run(&line));
    }
    assert_eq!(told.len(), 4, "{told:?}");
    assert!(told[..2].iter().all(|key| key.starts_with("pk_")), "{told:?}");
    assert!(told[2].contains("deploy") && told[2].contains("mail.*"), "{}", told[2]);
    assert!(run("punctual key list").contains("revoked"), "{told:?}");
    server.stop();
}
