//! The commands in `docs/operating.md`, as they are written, and the files that it names.

use std::path::Path;
use std::process::Command;

use crate::support::{Database, Server, punctual};

/// The blocks of a page in one language, in order.
pub(crate) fn blocks<'p>(page: &'p str, language: &'p str) -> impl Iterator<Item = &'p str> {
    page.split("```").skip(1).step_by(2).filter_map(move |block| block.strip_prefix(language)?.strip_prefix('\n'))
}

/// Runs a line of a page in a folder; what it prints.
pub(crate) fn run(line: &str, folder: &Path) -> String {
    let binary = punctual(folder);
    let script = line.replacen("punctual ", &format!("{} ", binary.get_program().display()), 1);
    let mut command = Command::new("sh");
    command.args(["-ec", &script]).current_dir(folder).env_remove("DATABASE_URL");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_of_the_page_works_as_written() {
    let database = Database::sqlite();
    let page = include_str!("../../docs/operating.md");
    let (mut server, mut ran) = (None, 0);
    for line in blocks(page, "sh").flat_map(str::lines) {
        if line.starts_with("punctual backup") {
            server = Some(Server::start(&database));
        }
        assert!(!run(line, database.folder.path()).is_empty(), "{line}");
        ran += 1;
    }
    assert!(ran >= 8, "{ran} commands");
    server.expect("a backup is made").stop();
    assert!(database.folder.path().join("elsewhere.db").exists());
}

#[test]
fn the_unit_starts_and_stops_as_the_service_wants() {
    let unit = include_str!("../../config/punctual.service");
    let value = |key: &str| unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).unwrap_or_default();
    let mut command = value("ExecStart").split(' ');
    assert_eq!(command.next(), Some("/usr/local/bin/punctual"));
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("punctual.toml");
    std::fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("config/punctual.toml"), &config).unwrap();
    // What it is started with is understood; the rest is the configuration's business.
    let arguments: Vec<_> =
        command.map(|part| part.replace("/etc/punctual/punctual.toml", config.to_str().unwrap())).collect();
    let checked = punctual(folder.path()).args(["config", "check"]).args(&arguments[1..]).output().unwrap();
    assert!(arguments[0] == "serve" && checked.status.success(), "{checked:?}");
    let drain: u64 = 25;
    assert!(value("TimeoutStopSec").parse::<u64>().unwrap() > drain + 10, "a drain is not cut short");
}
