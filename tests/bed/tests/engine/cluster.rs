//! Three nodes on one PostgreSQL with a Redis of their own: who of them leads, and what their schedules did.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use serde_json::Value;

use crate::bed::{node, until};
use crate::support::{Database, Redis, Server, punctual};

/// How long anything may take before the test gives up.
const PATIENCE: Duration = Duration::from_secs(120);

/// Nodes that share a database, and may lead.
pub(crate) struct Cluster {
    pub(crate) database: Database,
    pub(crate) redis: Redis,
    pub(crate) nodes: Vec<Server>,
    terms: Terms,
    clocks: Vec<Clock>,
}

/// How long leadership lasts, and how often it is renewed, in seconds.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) lease: &'static str,
    pub(crate) heartbeat: &'static str,
}

impl Terms {
    /// Short ones in `make test`, those that a service has by itself in `make soak`.
    pub(crate) fn scaled() -> Self {
        if std::env::var_os("PUNCTUAL_SOAK").is_some() {
            Self { lease: "15", heartbeat: "5" }
        } else {
            Self { lease: "3", heartbeat: "1" }
        }
    }

    /// How long leadership lasts.
    pub(crate) fn lease(self) -> Duration {
        Duration::from_secs(self.lease.parse().unwrap())
    }
}

/// What time a node believes it is.
#[derive(Clone)]
pub(crate) enum Clock {
    Right,
    /// Off by that much, as libfaketime takes it.
    Off {
        by: &'static str,
        faketime: Faketime,
    },
    /// Right until [`Cluster::set_clocks`] sets it.
    Settable(Faketime),
}

/// The library that gives a process another clock.
#[derive(Clone)]
pub(crate) struct Faketime(String);

impl Faketime {
    /// `None` if there is none for tests.
    pub(crate) fn find() -> Option<Self> {
        let Ok(library) = std::env::var("TEST_FAKETIME") else {
            assert!(std::env::var_os("CI").is_none(), "TEST_FAKETIME is not set, and CI skips nothing");
            eprintln!("skipped: TEST_FAKETIME is not set");
            return None;
        };
        Some(Self(library))
    }
}

impl Cluster {
    /// Starts a node for each clock, the first of them first; `None` where there is no PostgreSQL for tests.
    pub(crate) async fn start(terms: Terms, clocks: Vec<Clock>) -> Option<Self> {
        let database = Database::postgres().await?;
        let mut cluster = Self { database, redis: Redis::start(), nodes: Vec::new(), terms, clocks };
        cluster.set_clocks("+0");
        for i in 0..cluster.clocks.len() {
            let node = cluster.start_node(i);
            cluster.nodes.push(node);
        }
        Some(cluster)
    }

    fn start_node(&self, i: usize) -> Server {
        let redis = self.redis.url();
        let mut variables = vec![
            ("REDIS_URL", redis.as_str()),
            ("PUNCTUAL_LEADER_LEASE_SECONDS", self.terms.lease),
            ("PUNCTUAL_LEADER_HEARTBEAT_SECONDS", self.terms.heartbeat),
        ];
        let file = self.clock_file().display().to_string();
        let (Faketime(library), clock) = match &self.clocks[i] {
            Clock::Right => return node(&self.database, &variables),
            Clock::Off { by, faketime } => (faketime, ("FAKETIME", *by)),
            Clock::Settable(faketime) => (faketime, ("FAKETIME_TIMESTAMP_FILE", file.as_str())),
        };
        variables.extend([
            ("LD_PRELOAD", library.as_str()),
            clock,
            ("FAKETIME_CACHE_DURATION", "1"),
            // Leases and deadlines go by the monotonic clock, which nobody can set.
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("DONT_FAKE_MONOTONIC", "1"),
        ]);
        node(&self.database, &variables)
    }

    fn clock_file(&self) -> PathBuf {
        self.database.folder.path().join("clock")
    }

    /// Sets all clocks that can be set.
    pub(crate) fn set_clocks(&self, by: &str) {
        std::fs::write(self.clock_file(), by).unwrap();
    }

    /// Waits until a node leads, other than that one; which.
    pub(crate) async fn leader(&self, other_than: Option<usize>) -> usize {
        let asked_at = Instant::now();
        loop {
            for (i, node) in self.nodes.iter().enumerate() {
                if other_than != Some(i) && leads(node).await {
                    return i;
                }
            }
            assert!(asked_at.elapsed() < PATIENCE, "nobody leads");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Kills the leader as `kill -9` does, and starts it again; answers which it was.
    pub(crate) async fn kill_leader(&mut self) -> usize {
        let leader = self.leader(None).await;
        self.nodes[leader].process.signal("KILL");
        assert_eq!(self.nodes[leader].process.wait().code(), None, "it was killed");
        self.nodes[leader] = self.start_node(leader);
        leader
    }

    /// The database's time.
    pub(crate) async fn now(&self) -> DateTime<Utc> {
        let micros = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
        DateTime::from_timestamp_micros(self.database.number(micros).await).unwrap()
    }

    /// Waits until there are so many fires.
    pub(crate) async fn until_fired(&self, count: usize) {
        until(&self.database, "SELECT count(*) FROM punctual_fires", |found| found >= count as i64).await;
    }

    /// Waits until every instant before that one is decided.
    pub(crate) async fn until_decided(&self, before: DateTime<Utc>) {
        let late = format!("SELECT count(*) FROM punctual_schedules WHERE next_fire_at < '{}'", before.to_rfc3339());
        until(&self.database, &late, |found| found == 0).await;
    }

    /// What `punctual prove` says of that stretch; it must hold.
    pub(crate) fn prove(&self, from: DateTime<Utc>, to: DateTime<Utc>) -> Proof {
        let mut command = punctual(self.database.folder.path());
        command.args(["prove", "--json", "--database", &self.database.url]);
        let output = command.args(["--from", &from.to_rfc3339(), "--to", &to.to_rfc3339()]).output().unwrap();
        let told = || String::from_utf8_lossy(&[&*output.stdout, &*output.stderr].concat()).into_owned();
        assert_eq!(output.status.code(), Some(0), "{}", told());
        let report: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", told()));
        assert_eq!(report["holds"], true, "{report:#}");
        let schedules = report["schedules"].as_array().unwrap();
        for schedule in schedules {
            for wrong in ["missing", "double", "unexpected", "miscounted"] {
                assert_eq!(schedule[wrong].as_array().map(Vec::len), Some(0), "{wrong}: {schedule:#}");
            }
        }
        let sum = |what: &str| schedules.iter().map(|schedule| schedule[what].as_u64().unwrap()).sum();
        Proof {
            schedules: schedules.len(),
            expected: sum("expected"),
            fired: sum("fired"),
            skipped: sum("skipped"),
            pending: sum("pending"),
        }
    }

    /// The longest that any fire was late.
    pub(crate) async fn longest_lag(&self) -> Duration {
        let micros = "SELECT (extract(epoch FROM max(fired_at - scheduled_at)) * 1000000)::bigint FROM punctual_fires";
        Duration::from_micros(self.database.number(micros).await as u64)
    }

    pub(crate) fn stop(self) {
        for node in self.nodes {
            node.stop();
        }
    }
}

/// What a proof that holds adds up to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Proof {
    pub(crate) schedules: usize,
    pub(crate) expected: u64,
    pub(crate) fired: u64,
    pub(crate) skipped: u64,
    pub(crate) pending: u64,
}

/// Whether a node believes that it leads.
pub(crate) async fn leads(node: &Server) -> bool {
    let shown = node.samples(|samples| samples.value("punctual_leader").is_some()).await;
    shown.value("punctual_leader") == Some(1.0)
}
