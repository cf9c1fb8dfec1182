//! `punctual doctor`: is everything in place, and if not, what to do about it.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use chrono::TimeDelta;
use punctual_domain::time::ZoneDatabase;
use punctual_domain::topic::Route;
use punctual_store::{Access, ConnectError, Migrate, Options, SchemaState};
use serde::Serialize;

use super::ConfigArgs;
use crate::SystemClock;
use crate::config::{Config, Secret};
use crate::plugins::Plugins;
use crate::redis::Redis;
use crate::store_time::{StoreTime, TOLERATED_OFFSET};

/// Checks the database, Redis, the clock and the zone data. Changes nothing.
#[derive(Debug, clap::Args)]
pub(super) struct DoctorArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// How long each check may take.
const PATIENCE: Duration = Duration::from_secs(10);

impl DoctorArgs {
    pub(super) async fn run(self, plugins: Plugins) -> Result<ExitCode> {
        let loaded = self.config.load(plugins)?;
        let mut checks = vec![configuration(&loaded.warnings)];
        let database = database(&loaded.config.database_url).await;
        // One that does not answer is not waited for twice.
        let answers = database.first().is_some_and(|check| check.state == State::Ok);
        checks.extend(database);
        checks.push(match &loaded.config.redis_url {
            Some(url) => redis(url).await,
            None if answers => without_redis(queued_topics(&loaded.config.database_url).await),
            None => without_redis(None),
        });
        checks.push(zone_data(&loaded.config));

        let is_well = checks.iter().all(|check| check.state != State::Failed);
        let mut out = std::io::stdout().lock();
        if self.json {
            writeln!(out, "{}", serde_json::to_string_pretty(&serde_json::json!({"ok": is_well, "checks": checks}))?)?;
        } else {
            write_table(&mut out, &checks)?;
        }
        Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// What one check found.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    state: State,
    found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Ok,
    Note,
    Failed,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, state: State::Ok, found: found.into(), advice: None }
    }

    fn note(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name, state: State::Note, found: found.into(), advice: Some(advice.into()) }
    }

    fn failed(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name, state: State::Failed, found: found.into(), advice: Some(advice.into()) }
    }
}

fn configuration(warnings: &[String]) -> Check {
    match warnings {
        [] => Check::ok("configuration", "in order"),
        warnings => Check::note("configuration", warnings.join("; "), "remove what is not used"),
    }
}

async fn database(url: &Secret) -> Vec<Check> {
    if let Some(check) = missing_file(url) {
        return vec![check];
    }
    let schema = match tokio::time::timeout(PATIENCE, punctual_store::schema_state(url.expose())).await {
        Ok(Ok(schema)) => schema,
        Ok(Err(error)) => {
            let advice = "see to the reason given, or mend DATABASE_URL";
            return vec![Check::failed("database", format!("{url}: {error}"), advice)];
        }
        Err(_) => {
            let found = format!("{url} did not answer within {PATIENCE:?}");
            return vec![Check::failed("database", found, "look whether it is overloaded, or the network is down")];
        }
    };
    let mut checks = vec![Check::ok("database", url.to_string())];
    if let Err(reason) = schema.check_not_newer() {
        checks.push(Check::failed("schema", reason, "install a newer punctual"));
        return checks;
    }
    if let Err(reason) = schema.check_complete() {
        checks.push(Check::note("schema", reason, "`punctual serve` does the same at its start"));
        return checks;
    }
    checks.push(Check::ok("schema", format!("{} (this punctual is made for {})", schema.version, SchemaState::ours())));
    checks.extend(open_database(url).await);
    checks
}

/// A SQLite file is created at the first start, but not its folder.
fn missing_file(url: &Secret) -> Option<Check> {
    let file = url.expose().starts_with("sqlite:").then(|| punctual_store::sqlite::file_of(url.expose()))?.ok()??;
    let path = std::path::absolute(&file).unwrap_or(file);
    if path.exists() {
        return None;
    }
    let folder = path.parent().filter(|folder| !folder.is_dir());
    Some(match folder {
        Some(folder) => {
            let found = format!("{url}: the folder {} does not exist", folder.display());
            Check::failed("database", found, "create it, or mend DATABASE_URL")
        }
        None => {
            let found = format!("{url}: there is no file {} yet", path.display());
            let advice = "`punctual serve` creates it, as `punctual migrate` does; if there is one elsewhere, name it by DATABASE_URL";
            Check::note("database", found, advice)
        }
    })
}

/// What can only be seen by opening the database as the service does, which refuses what would not survive a power cut.
async fn open_database(url: &Secret) -> Vec<Check> {
    let options = Options { migrate: Migrate::Check, connections: 1, ..Options::default() };
    let store = match punctual_store::connect(url.expose(), options).await {
        Ok(store) => store,
        Err(ConnectError::InUse(_)) => {
            let found = "not checked: the file is in use by a punctual that runs, which checked this when it started";
            let advice = "nothing to do; with that one stopped it is checked here too";
            return ["durability", "clock"].map(|name| Check::note(name, found, advice)).into();
        }
        Err(error) => return vec![Check::failed("durability", error.to_string(), "see to the reason given")],
    };
    let durable = match url.expose().starts_with("sqlite:") {
        true => "WAL with synchronous=FULL",
        false => "fsync is on",
    };
    let mut checks = vec![Check::ok("durability", durable)];
    let time = StoreTime::new(std::sync::Arc::new(SystemClock::new()));
    let found = |offset: TimeDelta| format!("{} ms from the database's", offset.num_milliseconds());
    checks.push(match time.measure(&*store).await {
        Ok(offset) if offset.abs() <= TOLERATED_OFFSET => Check::ok("clock", found(offset)),
        Ok(offset) => Check::failed("clock", found(offset), "set both machines by NTP"),
        Err(error) => Check::failed("clock", error.to_string(), "look into the database's log"),
    });
    // Everything was read: nothing is lost if it cannot be closed.
    let _ = store.close().await;
    checks
}

async fn redis(url: &Secret) -> Check {
    let answer = match Redis::new(url) {
        Ok(redis) => redis.ping().await,
        Err(error) => Err(error),
    };
    match answer {
        Ok(()) => Check::ok("redis", url.to_string()),
        Err(error) => Check::failed("redis", format!("{url}: {error}"), "start it, or mend or remove REDIS_URL"),
    }
}

fn without_redis(queued: Option<Vec<String>>) -> Check {
    match queued.as_deref() {
        None => Check::ok("redis", "not configured; only topics with the route bullmq need it"),
        Some([]) => Check::ok("redis", "not configured, and not needed"),
        Some(topics) => {
            let found = format!("not configured, and needed by topics with the route bullmq: {}", topics.join(", "));
            Check::note("redis", found, "set REDIS_URL on one node at least: their tasks wait for a node that has it")
        }
    }
}

/// The topics that need Redis, where the database can be read, also beside a service that has it.
async fn queued_topics(url: &Secret) -> Option<Vec<String>> {
    let options = Options { access: Access::Look, migrate: Migrate::Check, connections: 1, ..Options::default() };
    let read = async {
        let store = punctual_store::connect(url.expose(), options).await.ok()?;
        let definitions = store.topics().await;
        let _ = store.close().await;
        let queued =
            definitions.ok()?.into_iter().filter(|definition| matches!(definition.route, Route::Bullmq { .. }));
        Some(queued.map(|definition| definition.name.as_str().to_owned()).collect())
    };
    tokio::time::timeout(PATIENCE, read).await.ok().flatten()
}

fn zone_data(config: &Config) -> Check {
    match ZoneDatabase::current(config.tzdir.as_deref()) {
        Ok(zones) => Check::ok("zone data", format!("{} ({})", zones.version(), zones.source())),
        Err(error) => Check::failed("zone data", error.to_string(), "mend or remove PUNCTUAL_TZDIR"),
    }
}

fn write_table(out: &mut impl Write, checks: &[Check]) -> std::io::Result<()> {
    for check in checks {
        let state = match check.state {
            State::Ok => "ok",
            State::Note => "note",
            State::Failed => "FAILED",
        };
        writeln!(out, "{state:<7} {:<14} {}", check.name, check.found)?;
        if let Some(advice) = &check.advice {
            writeln!(out, "{:<7} {:<14} → {advice}", "", "")?;
        }
    }
    Ok(())
}
