//! `punctual topic …`: what serves which topics, how fast, and whether at all.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use reqwest::StatusCode;
use serde_json::{Map, Value, json};

use super::client::{Answer, Client, Refused};
use super::named;
use super::output::{Facts, Table, field, print};
use super::task::{BackoffArgs, CommonArgs, read_text};
use super::{hidden, when};
use crate::config::Secret;

/// Definitions of topics of a running service: what serves their tasks.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  punctual topic put resize --route pull --concurrency 10
  punctual topic put 'mail.*' --webhook https://example.com/hook --secret @hook.secret
  punctual topic pause 'mail.*'")]
pub(super) struct TopicArgs {
    #[command(subcommand)]
    command: TopicCommand,
}

#[derive(Debug, clap::Subcommand)]
enum TopicCommand {
    /// Lists definitions of topics
    List {
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Shows the definition of a topic
    Show(OneArgs),
    /// Writes the definition of a topic; what it was before is replaced
    Put(Box<PutArgs>),
    /// Deletes the definition of a topic; its tasks follow the next longest match
    Delete(OneArgs),
    /// Lets the tasks of a topic wait
    Pause(OneArgs),
    /// Lets the tasks of a topic run again
    Resume(OneArgs),
}

#[derive(Debug, clap::Args)]
struct OneArgs {
    /// The topic, or a prefix such as 'mail.*'
    #[arg(value_parser = topic)]
    name: String,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Debug, clap::Args)]
struct PutArgs {
    /// The topic, or a prefix such as 'mail.*'
    #[arg(value_parser = topic)]
    name: String,
    /// What serves it; for a webhook say --webhook URL, for a BullMQ queue --queue NAME; a new topic is an event (only
    /// announced) if nothing is said
    #[arg(long, value_name = "TYPE", value_parser = ["handler", "pull", "event"], conflicts_with_all = ["webhook", "queue"])]
    route: Option<String>,
    /// Serve it by a webhook to this address
    #[arg(long, value_name = "URL", requires = "secrets", conflicts_with = "queue")]
    webhook: Option<String>,
    /// What signs a webhook; @FILE reads a file, - reads stdin; two sign twice, for a rotation
    #[arg(long = "secret", value_name = "S", requires = "webhook", value_parser = hidden)]
    secrets: Vec<Secret>,
    /// Serve it by the workers of this BullMQ queue
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    /// The prefix of that queue's keys in Redis
    #[arg(long, value_name = "NAME", requires = "queue")]
    prefix: Option<String>,
    /// How many attempts at once, per node; of a pull topic in all
    #[arg(long, value_name = "N")]
    concurrency: Option<u64>,
    /// How many attempts per second
    #[arg(long, value_name = "F")]
    rate: Option<f64>,
    /// How many attempts a task has in all, where it does not say so itself
    #[arg(long, value_name = "N")]
    attempts: Option<u64>,
    #[command(flatten)]
    backoff: BackoffArgs,
    /// The time limit of one attempt, where a task does not say so itself: 30s, 5m
    #[arg(long, value_name = "D", value_parser = when::duration)]
    timeout: Option<Duration>,
    /// How long ended tasks are kept
    #[arg(long, value_name = "N")]
    retention_days: Option<u64>,
    /// Let its tasks wait
    #[arg(long)]
    paused: bool,
    #[command(flatten)]
    common: CommonArgs,
}

impl TopicArgs {
    pub(super) async fn run(self) -> Result<ExitCode> {
        match self.command {
            TopicCommand::List { common } => list(&common).await?,
            TopicCommand::Show(OneArgs { name, common }) => {
                show(&common.client.connect()?.get(&["topics", &name], &[]).await?, common.json)?;
            }
            TopicCommand::Put(args) => args.run().await?,
            TopicCommand::Delete(OneArgs { name, common }) => {
                common.client.connect()?.delete(&["topics", &name]).await?;
                if !common.json {
                    print(&format!("deleted {name}"))?;
                }
            }
            TopicCommand::Pause(args) => args.call("pause").await?,
            TopicCommand::Resume(args) => args.call("resume").await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl OneArgs {
    async fn call(self, what: &str) -> Result<()> {
        let answer = self.common.client.connect()?.post(&["topics", &self.name, what], json!({})).await?;
        show(&answer, self.common.json)
    }
}

impl PutArgs {
    async fn run(self) -> Result<()> {
        let body = self.body()?;
        let client = self.common.client.connect()?;
        let says_route = body.get("route").is_some();
        let before = if says_route { None } else { route_of(&client, &self.name).await? };
        if let Some(before) = &before {
            lose_none(&self.name, before)?;
        }
        let answer = client.put(&["topics", &self.name], body).await?;
        show(&answer, self.common.json)?;
        if !says_route && before.is_none() && answer.json()?["route"]["type"] == "event" {
            eprintln!("warning: {UNSERVED}");
        }
        Ok(())
    }

    fn body(&self) -> Result<Value> {
        let mut body = Map::new();
        let mut add = |name: &str, value: Option<Value>| body.extend(value.map(|value| (name.to_owned(), value)));
        add("route", self.route()?);
        add("concurrency", self.concurrency.map(Value::from));
        add("ratePerSecond", self.rate.map(Value::from));
        add("timeoutSeconds", self.timeout.map(|timeout| timeout.as_secs().into()));
        add("retentionDays", self.retention_days.map(Value::from));
        add("paused", self.paused.then_some(true.into()));
        let mut retry = Map::new();
        retry.extend(self.attempts.map(|attempts| ("attempts".to_owned(), attempts.into())));
        retry.extend(self.backoff.value().map(|backoff| ("backoff".to_owned(), backoff)));
        add("retry", (!retry.is_empty()).then_some(retry.into()));
        Ok(body.into())
    }

    fn route(&self) -> Result<Option<Value>> {
        if let Some(url) = &self.webhook {
            let read = |secret: &Secret| Ok(read_text(secret.expose())?.trim_end().to_owned());
            let secrets = self.secrets.iter().map(read).collect::<Result<Vec<_>>>()?;
            return Ok(Some(json!({"type": "webhook", "url": url, "secrets": secrets})));
        }
        if let Some(queue) = &self.queue {
            return Ok(Some(json!({"type": "bullmq", "queue": queue, "prefix": self.prefix})));
        }
        Ok(self.route.as_ref().map(|kind| json!({"type": kind})))
    }
}

fn topic(text: &str) -> Result<String, String> {
    named(text, "give a topic, or a prefix such as 'mail.*'; `punctual topic list` shows those that are defined")
}

/// The route a topic has, by its own definition or by that of a prefix; `None` if it has neither.
async fn route_of(client: &Client, name: &str) -> Result<Option<Value>> {
    let is_missing = |refused: &Refused| refused.status == StatusCode::NOT_FOUND;
    match client.get(&["topics", name], &[]).await {
        Ok(answer) => Ok(Some(answer.json()?["route"].take())),
        Err(error) if error.downcast_ref().is_some_and(is_missing) => route_above(client, name).await,
        Err(error) => Err(error),
    }
}

/// The route that a topic has by the longest prefix that is defined.
async fn route_above(client: &Client, name: &str) -> Result<Option<Value>> {
    let mut topics = client.all(&["topics"]).await?.json()?;
    let prefix = |topic: &Value| Some(topic["name"].as_str()?.strip_suffix('*')?.to_owned());
    let above = topics["items"].as_array_mut().into_iter().flatten();
    let above = above.filter_map(|topic| Some((prefix(topic).filter(|prefix| name.starts_with(prefix))?.len(), topic)));
    Ok(above.max_by_key(|(length, _)| *length).map(|(_, topic)| topic["route"].take()))
}

/// What somebody should know who did not say who is to run the tasks.
const UNSERVED: &str = "nobody runs its tasks, they are only announced when they are due, and completed; to have them run, say \
                        --route pull, --webhook URL or --queue NAME (--route event says that this is meant)";

/// Refuses to replace a route by none: its tasks would complete without anybody having run them, and the secrets of a webhook
/// would be gone. A handler stays by itself.
fn lose_none(name: &str, before: &Value) -> Result<()> {
    let kind = field(&before["type"]);
    let flags = match &*kind {
        "event" | "handler" => return Ok(()),
        "webhook" => format!("--webhook '{}' --secret S` with each of its secrets", field(&before["url"])),
        "bullmq" => format!("--queue '{}' --prefix '{}'`", field(&before["queue"]), field(&before["prefix"])),
        other => format!("--route {other}`"),
    };
    bail!(
        "nothing was changed: {name} has the route {kind}, and what is not said is replaced by its default; `{flags} keeps it, \
         `--route event` gives it up: nobody would run its tasks"
    );
}

async fn list(common: &CommonArgs) -> Result<()> {
    let answer = common.client.connect()?.all(&["topics"]).await?;
    if common.json {
        return print(&answer.text);
    }
    let found = answer.json()?;
    let mut table = Table::new(["NAME", "ROUTE", "CONCURRENCY", "RATE", "STATE"]).right(&[2, 3]);
    for topic in found["items"].as_array().into_iter().flatten() {
        table.row([
            field(&topic["name"]),
            field(&topic["route"]["type"]),
            field(&topic["concurrency"]),
            field(&topic["ratePerSecond"]),
            if topic["paused"] == true { "paused" } else { "works" }.to_owned(),
        ]);
    }
    print(&if table.is_empty() { "no topics".to_owned() } else { table.text() })
}

fn show(answer: &Answer, json: bool) -> Result<()> {
    if json {
        return print(&answer.text);
    }
    let topic = answer.json()?;
    let some = |value: &Value| (!value.is_null()).then(|| field(value));
    let mut facts = Facts::default();
    facts.add("name", field(&topic["name"]));
    facts.add("route", field(&topic["route"]["type"]));
    facts.add_some("url", some(&topic["route"]["url"]));
    facts.add_some("queue", some(&topic["route"]["queue"]));
    facts.add("state", if topic["paused"] == true { "paused" } else { "works" });
    facts.add("concurrency", field(&topic["concurrency"]));
    facts.add_some("rate", some(&topic["ratePerSecond"]).map(|rate| format!("{rate} per second")));
    facts.add_some("attempts", some(&topic["retry"]["attempts"]));
    facts.add_some("timeout", some(&topic["timeoutSeconds"]).map(|seconds| format!("{seconds} s")));
    facts.add_some("retention", some(&topic["retentionDays"]).map(|days| format!("{days} days")));
    for warning in topic["warnings"].as_array().into_iter().flatten() {
        facts.add("warning", field(warning));
    }
    print(&facts.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_given_up_only_by_saying_so() {
        for (before, part) in [
            (
                json!({"type": "pull"}),
                "the route pull, and what is not said is replaced by its default; `--route pull` keeps it",
            ),
            (
                json!({"type": "webhook", "url": "https://example.com/a?b"}),
                "`--webhook 'https://example.com/a?b' --secret S` with each of its secrets keeps it",
            ),
            (json!({"type": "bullmq", "queue": "jobs", "prefix": "acme"}), "`--queue 'jobs' --prefix 'acme'` keeps it"),
        ] {
            let refusal = lose_none("resize", &before).unwrap_err().to_string();
            assert!(refusal.contains(part), "{refusal}");
        }
        for same in ["event", "handler"] {
            assert!(lose_none("resize", &json!({"type": same})).is_ok());
        }
    }
}
