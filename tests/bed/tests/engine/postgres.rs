//! A PostgreSQL of a test's own, which can be stopped and started again.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::support::Process;

/// A server that ends with its test.
pub(crate) struct Postgres {
    folder: TempDir,
    port: String,
    process: Process,
}

impl Postgres {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // PostgreSQL does not run as root: its own user must get through.
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o711)).unwrap();
        let port = Command::new(script("free-port")).output().unwrap().stdout;
        let port = String::from_utf8(port).unwrap().trim().to_owned();
        let process = run(folder.path(), &port);
        Self { folder, port, process }
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// How many statements it was given so far by sessions that log them.
    pub(crate) fn statements(&mut self) -> usize {
        let is_statement = |line: &&String| line.contains("LOG:  execute ") || line.contains("LOG:  statement: ");
        self.process.log().iter().filter(is_statement).count()
    }

    /// Stops it as a crash would: no connection is finished, nothing is checkpointed.
    pub(crate) fn stop(&mut self) {
        self.process.signal("QUIT");
        self.process.wait();
    }

    /// Starts it again after a stop, with all that it had acknowledged.
    pub(crate) fn resume(&mut self) {
        self.process = run(self.folder.path(), &self.port);
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if self.process.ended().is_none() {
            self.stop();
        }
    }
}

fn run(folder: &Path, port: &str) -> Process {
    let mut command = Command::new(script("postgres"));
    let mut process = Process::start(command.arg("run").arg(folder.join("postgres")).arg(port));
    process.wait_for_log("database system is ready to accept connections");
    process
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(name)
}
