//! A Redis of a test's own, which can be made to forget, to stand still, and to go.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use tokio::task::JoinSet;

use super::{Process, beside_us};

/// A server that ends with its test.
pub struct Redis {
    folder: TempDir,
    port: String,
    process: Option<Process>,
    starts: u32,
    is_encrypted: bool,
}

impl Redis {
    pub fn start() -> Self {
        let mut redis = Self::absent();
        redis.restart();
        redis
    }

    /// One that speaks TLS only, with a certificate of `tls/ca.pem`.
    pub fn encrypted() -> Self {
        let mut redis = Self { is_encrypted: true, ..Self::absent() };
        for file in ["server.pem", "server.key"] {
            let copy = redis.folder.path().join(file);
            std::fs::copy(beside_us("tls").join(file), &copy).unwrap();
            // Another user reads it, and it is nobody's secret.
            std::fs::set_permissions(copy, PermissionsExt::from_mode(0o644)).unwrap();
        }
        redis.restart();
        redis
    }

    /// One that does not run yet.
    pub fn absent() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // It does not run as root: its own user must get through.
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o711)).unwrap();
        let port = Command::new(script("free-port")).output().unwrap().stdout;
        let port = String::from_utf8(port).unwrap().trim().to_owned();
        Self { folder, port, process: None, starts: 0, is_encrypted: false }
    }

    /// Starts it where it was, with nothing in it.
    pub fn restart(&mut self) {
        self.kill();
        self.starts += 1;
        let mut command = Command::new(script("redis"));
        let folder = self.folder.path().join(format!("redis{}", self.starts));
        command.arg("run").arg(folder);
        if self.is_encrypted {
            let file = |name| self.folder.path().join(name);
            command.args(["0", "--tls-port", &self.port, "--tls-auth-clients", "no"]);
            command.arg("--tls-cert-file").arg(file("server.pem")).arg("--tls-key-file").arg(file("server.key"));
        } else {
            command.arg(&self.port);
        }
        let mut process = Process::start(&mut command);
        process.wait_for_output("Ready to accept connections");
        self.process = Some(process);
    }

    /// Kills it as `kill -9` does.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Lets it stand still, or go on.
    pub fn signal(&self, name: &str) {
        self.process.as_ref().expect("it runs").signal(name);
    }

    pub fn url(&self) -> String {
        match self.is_encrypted {
            true => format!("rediss://localhost:{}/", self.port),
            false => format!("redis://127.0.0.1:{}/", self.port),
        }
    }

    /// Where a user finds it who may use these keys only.
    pub fn url_for_keys(&self, pattern: &str) -> String {
        assert_eq!(self.ask(&format!("ACL SETUSER guest on >secret +@all &* ~{pattern}")), "+OK");
        format!("redis://guest:secret@127.0.0.1:{}/", self.port)
    }

    /// Carries out a command whose answer is one line, and answers that.
    pub fn ask(&self, command: &str) -> String {
        ask(&self.port, command)
    }

    /// Lets it forget everything.
    pub fn forget(&self) {
        assert_eq!(self.ask("FLUSHALL"), "+OK");
    }

    /// Lets it forget everything each time so much time has passed, until the answer is dropped.
    pub fn forget_every(&self, pause: Duration) -> JoinSet<()> {
        let port = self.port.clone();
        let mut forgetting = JoinSet::new();
        forgetting.spawn(async move {
            loop {
                assert_eq!(ask(&port, "FLUSHALL"), "+OK");
                tokio::time::sleep(pause).await;
            }
        });
        forgetting
    }
}

fn ask(port: &str, command: &str) -> String {
    let mut connection = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    connection.write_all(format!("{command}\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(connection).read_line(&mut answer).unwrap();
    answer.trim_end().to_owned()
}

/// One of the project's scripts, whichever package the test belongs to.
fn script(name: &str) -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = package.ancestors().map(|folder| folder.join("scripts").join(name)).find(|path| path.exists());
    found.expect("the script is there")
}
