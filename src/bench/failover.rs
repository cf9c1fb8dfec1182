use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use chrono::{DateTime, TimeDelta, Utc};
use punctual_domain::news::News;
use punctual_domain::store::Span;
use tokio::time::Instant;

use super::schedules::between;
use super::{Bench, Figures, Site, Value, in_ms};

/// How many schedules fire every second, each at its own instant: so finely is it seen when firing goes on.
const SCHEDULES: u64 = 100;
/// The leadership over schedules.
const LEADERSHIP: &str = "ticker";
/// How often it is looked.
const LOOK: Duration = Duration::from_millis(20);
/// What is due so long after the leader's end was the next leader's to fire, or the last of the old one's.
const DUE_SOON: TimeDelta = TimeDelta::seconds(2);
/// How long nodes run before the leader ends, and after the next one leads.
const SETTLING: Duration = Duration::from_secs(3);
/// How long starting or taking over may take.
const PATIENCE: Duration = Duration::from_secs(180);

/// How long nothing fires when the leader of two nodes ends. The nodes are processes of this binary.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Failover {
    /// How the leader ends.
    pub(crate) end: End,
    /// How long a lease lasts, in seconds.
    pub(crate) lease: u32,
}

/// How a leader ends.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum End {
    /// SIGKILL, as a crash
    Kill,
    /// SIGTERM, as a stop
    Term,
}

impl Failover {
    pub(crate) async fn run(self, bench: &Bench) -> Result<Figures> {
        ensure!(
            !bench.database_url.starts_with("sqlite:"),
            "a SQLite file has one node: nobody takes over; use PostgreSQL"
        );
        let values = bench.each_run(async |site| self.measure(site).await).await?;
        let lease = if bench.redis_url.is_some() { "Redis" } else { "PostgreSQL" };
        let end = format!("{:?}", self.end).to_lowercase();
        let config = format!("postgres lease in {lease} of {} s, leader ended by {end}", self.lease);
        Ok(Figures { workload: "failover", n: 2, values, unit: "ms", config })
    }

    async fn measure(self, site: &Site<'_>) -> Result<Value> {
        let mut first = Node::start(site, self.lease)?;
        let led_by = until("nobody leads", || async {
            Ok(site.store.leadership(LEADERSHIP).await?.filter(|leadership| !leadership.left.is_zero()))
        })
        .await?
        .owner;
        let _second = Node::start(site, self.lease)?;
        until("there is no second node", || async { Ok((site.store.nodes(PATIENCE).await?.len() == 2).then_some(())) })
            .await?;
        let from = site.store.now().await?;
        let apart = TimeDelta::milliseconds(1_000 / SCHEDULES as i64);
        let schedules = site.write_schedules(SCHEDULES, 1_000, |i| Some(from + apart * i as i32)).await?;
        site.store.announce(&News::of_schedules()).await?;
        tokio::time::sleep(SETTLING).await;

        let ended_at = site.store.now().await?;
        first.end(self.end)?;
        until("nobody takes over", || async {
            let leadership = site.store.leadership(LEADERSHIP).await?;
            Ok(leadership.filter(|leadership| leadership.owner != led_by))
        })
        .await?;
        tokio::time::sleep(SETTLING).await;
        let fires = site.fires(&schedules, Span { from: Some(from), to: None }).await?;
        let wait = longest_wait(&fires, ended_at)?;
        Ok(Value::Parts(vec![("longest_wait", in_ms(wait))]))
    }
}

/// How long after its instant what was due soon after the leader's end fired at the latest: the first fire came no later than that,
/// and one schedule's distance, after the end. What is due later waits for other reasons.
fn longest_wait(fires: &[(DateTime<Utc>, DateTime<Utc>)], ended_at: DateTime<Utc>) -> Result<Duration> {
    let due_soon = fires.iter().filter(|(due_at, _)| (ended_at..ended_at + DUE_SOON).contains(due_at));
    let waits = due_soon.map(|(due_at, fired_at)| between(*due_at, *fired_at));
    waits.max().context("nothing that was due after the leader's end has fired")
}

/// Asks until there is an answer.
async fn until<T, F: Future<Output = Result<Option<T>>>>(what: &str, ask: impl Fn() -> F) -> Result<T> {
    let asked_at = Instant::now();
    loop {
        if let Some(answer) = ask().await? {
            return Ok(answer);
        }
        ensure!(asked_at.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(LOOK).await;
    }
}

/// A process of this binary, which does not outlive us.
struct Node(Child);

impl Node {
    fn start(site: &Site<'_>, lease: u32) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("serve")
            .current_dir(std::env::temp_dir())
            .env("DATABASE_URL", site.scratch.url())
            .env("PUNCTUAL_LISTEN", "127.0.0.1:0")
            .env("PUNCTUAL_LEADER_LEASE_SECONDS", lease.to_string())
            .env("PUNCTUAL_LEADER_HEARTBEAT_SECONDS", format!("{}ms", u64::from(lease) * 1_000 / 3))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        match &site.bench.redis_url {
            Some(redis_url) => command.env("REDIS_URL", redis_url.expose()),
            None => command.env_remove("REDIS_URL"),
        };
        Ok(Self(command.spawn().context("a node could not be started")?))
    }

    fn end(&mut self, end: End) -> Result<()> {
        match end {
            End::Kill => self.0.kill()?,
            End::Term => {
                let sent = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status()?;
                ensure!(sent.success(), "the leader could not be told to end");
            }
        }
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // One that has ended needs not be killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_soon_after_the_end_tells_how_long_nothing_fired() {
        let at = |ms| DateTime::from_timestamp_millis(ms).unwrap();
        let wait = |fires: &[(i64, i64)], ended_at| {
            let fires: Vec<_> = fires.iter().map(|(due_at, fired_at)| (at(*due_at), at(*fired_at))).collect();
            longest_wait(&fires, at(ended_at)).ok().map(|wait| wait.as_millis())
        };
        assert_eq!(wait(&[(490, 492), (500, 900), (510, 901), (520, 902)], 500), Some(400));
        assert_eq!(wait(&[(490, 5_000), (510, 511), (2_510, 9_000)], 500), Some(1), "neither before nor much later");
        assert_eq!(wait(&[(490, 492)], 500), None);
    }
}
