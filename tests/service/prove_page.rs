//! The commands in `docs/prove.md`, as they are written.

use std::process::Command;

use chrono::TimeDelta;
use punctual_domain::schedule::Rhythm;

use crate::bygone::Bygone;
use crate::support::{Database, Server, punctual};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_of_the_page_works_as_written() {
    let database = Database::sqlite();
    let past = Bygone::since(&database, TimeDelta::seconds(30)).await;
    past.schedule("nightly", Rhythm::Cron("0 2 * * *".into()), "America/New_York").await;
    past.close().await;
    let server = Server::start_with(&database, |command| command.arg("--paused"));
    let page = include_str!("../../docs/prove.md");
    let blocks = page.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("sh\n"));
    let mut ran = 0;
    for line in blocks.flat_map(str::lines).filter(|line| !line.is_empty()) {
        let binary = punctual(database.folder.path());
        let script = line.replace("punctual ", &format!("{} ", binary.get_program().display()));
        let mut command = Command::new("sh");
        let output = command.args(["-ec", &script]).env("PUNCTUAL_URL", &server.url).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(!output.stdout.is_empty(), "{line}");
        ran += 1;
    }
    assert!(ran >= 8, "{ran} commands");
    server.stop();
}
