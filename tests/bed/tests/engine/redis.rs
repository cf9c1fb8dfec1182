//! A Redis of a test's own, which can be made to forget.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::support::Process;

/// A server that ends with its test.
pub(crate) struct Redis {
    _folder: TempDir,
    address: String,
    _process: Process,
}

impl Redis {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // It does not run as root: its own user must get through.
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o711)).unwrap();
        let port = Command::new(script("free-port")).output().unwrap().stdout;
        let port = String::from_utf8(port).unwrap().trim().to_owned();
        let mut command = Command::new(script("redis"));
        let mut process = Process::start(command.arg("run").arg(folder.path().join("redis")).arg(&port));
        process.wait_for_output("Ready to accept connections");
        Self { _folder: folder, address: format!("127.0.0.1:{port}"), _process: process }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    /// Lets it forget everything every second, until the answer is dropped.
    pub(crate) fn forget_every_second(&self) -> JoinSet<()> {
        let address = self.address.clone();
        let mut forgetting = JoinSet::new();
        forgetting.spawn(async move {
            loop {
                forget(&address);
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        forgetting
    }
}

fn forget(address: &str) {
    let mut connection = TcpStream::connect(address).unwrap();
    connection.write_all(b"FLUSHALL\r\n").unwrap();
    let mut answer = [0; 5];
    connection.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+OK\r\n");
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(name)
}
