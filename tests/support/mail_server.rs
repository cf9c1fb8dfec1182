//! A real mail server, for tests.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::Process;

/// A mail server that takes e-mails and tells of each.
pub struct MailServer {
    process: Process,
    pub port: u16,
}

impl MailServer {
    /// Starts one, as `mail_server.py` describes; none where there is no Python with `aiosmtpd`.
    pub fn start(asked: &Value) -> Option<Self> {
        let python = python()?;
        let mut command = Command::new(python);
        let mut process = Process::start(command.arg(beside_us("mail_server.py")).arg(asked.to_string()));
        let port = process.wait_for_output("").trim().parse().unwrap();
        Some(Self { process, port })
    }

    /// The next e-mail that it takes.
    pub fn next(&mut self) -> Value {
        serde_json::from_str(&self.process.wait_for_output("{")).unwrap()
    }

    /// The e-mails that it has taken and nobody asked for yet.
    pub fn taken(&mut self) -> Vec<Value> {
        self.process.output().iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// A file of this folder, whichever package the test belongs to.
pub fn beside_us(file: &str) -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [package.join("tests/support"), package.join("../support")];
    folders.into_iter().map(|folder| folder.join(file)).find(|path| path.exists()).expect("it is there")
}

/// A Python that has the packages of tests; without one the test says that it was skipped, or fails where CI is set.
pub fn python() -> Option<String> {
    let python = std::env::var("TEST_PYTHON").ok();
    if python.is_none() {
        assert!(std::env::var_os("CI").is_none(), "TEST_PYTHON is not set, and CI skips nothing");
        eprintln!("skipped: TEST_PYTHON is not set");
    }
    python
}
