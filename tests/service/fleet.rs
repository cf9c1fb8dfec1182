//! Real workers of BullMQ.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{Process, Redis, beside_us};

/// The releases that are tried, as the packages of tests are called.
pub(crate) const RELEASES: [&str; 2] = ["bullmq5", "bullmq6"];

#[test]
fn a_package_is_of_the_release_that_it_is_called_after() {
    let Some(packages) = packages() else { return };
    for release in RELEASES {
        let manifest = Path::new(&packages).join(release).join("package.json");
        let manifest: Value = serde_json::from_str(&std::fs::read_to_string(manifest).unwrap()).unwrap();
        let major = manifest["version"].as_str().unwrap().split('.').next().unwrap();
        assert_eq!(format!("bullmq{major}"), release);
    }
}

/// Where the packages of tests for Node are; none if there are none.
pub(crate) fn packages() -> Option<OsString> {
    let packages = std::env::var_os("TEST_NODE_PATH");
    if packages.is_none() {
        assert!(std::env::var_os("CI").is_none(), "TEST_NODE_PATH is not set, and CI skips nothing");
        eprintln!("skipped: TEST_NODE_PATH is not set");
    }
    packages
}

/// A process with workers on one queue.
pub(crate) struct Fleet {
    process: Process,
    tries: Vec<Value>,
}

impl Fleet {
    /// Starts a process without workers yet; none where there is no Node with the packages of tests.
    pub(crate) fn start(redis: &Redis, release: &str, queue: &str) -> Option<Self> {
        Self::with_prefix(redis, release, queue, "bull")
    }

    /// The same, for a queue whose keys begin so.
    pub(crate) fn with_prefix(redis: &Redis, release: &str, queue: &str, prefix: &str) -> Option<Self> {
        let packages = packages()?;
        let mut command = Command::new("node");
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/service/fleet.cjs"));
        command.args([release, queue, prefix, "10"]).stdin(Stdio::piped());
        command.envs([("NODE_PATH", packages), ("REDIS_URL", redis.url().into())]);
        command.env("NODE_EXTRA_CA_CERTS", beside_us("tls/ca.pem"));
        Some(Self { process: Process::start(&mut command), tries: Vec::new() })
    }

    /// The same, with a worker.
    pub(crate) fn with_worker(redis: &Redis, release: &str, queue: &str) -> Option<Self> {
        let mut fleet = Self::start(redis, release, queue)?;
        fleet.tell("worker");
        Some(fleet)
    }

    /// Has a command carried out.
    pub(crate) fn tell(&mut self, command: &str) {
        self.ask(command);
    }

    /// The same; answers what there is to say.
    pub(crate) fn ask(&mut self, command: &str) -> Value {
        self.process.tell(command);
        loop {
            let line = self.line();
            if line["done"] == command {
                return line["answer"].clone();
            }
        }
    }

    fn line(&mut self) -> Value {
        let line: Value = serde_json::from_str(&self.process.wait_for_output("{")).unwrap();
        if line["id"].is_string() {
            self.tries.push(line.clone());
        }
        line
    }

    /// Every try that has begun, once there are so many.
    pub(crate) fn tries(&mut self, count: usize) -> &[Value] {
        while self.tries.len() < count {
            self.line();
        }
        let more = self.process.output();
        self.tries.extend(more.iter().map(|line| serde_json::from_str(line).unwrap()));
        &self.tries
    }

    /// Every job once there are so many, by its id; each must have begun once.
    pub(crate) fn jobs(&mut self, count: usize) -> HashMap<String, Value> {
        let tries = self.tries(count);
        let jobs: HashMap<_, _> =
            tries.iter().map(|job| (job["id"].as_str().unwrap().to_owned(), job.clone())).collect();
        assert_eq!((tries.len(), jobs.len()), (count, count), "each begins once");
        jobs
    }
}
