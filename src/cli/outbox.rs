//! `punctual outbox …`: messages on their way out.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Value, json};

use super::client::Answer;
use super::named;
use super::output::{Clockface, Facts, Table, field, print, shortened};
use super::task::CommonArgs;
use super::when;

/// Messages of a running service: what handlers and alerts send.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  punctual outbox list --status failed                    what could not be sent, and why
  punctual outbox list --status pending                   what waits
  punctual outbox retry 0198c1d4-7bb1-7c64-9f1d-2a4c36b0f7aa")]
pub(super) struct OutboxArgs {
    #[command(subcommand)]
    command: OutboxCommand,
}

#[derive(Debug, clap::Subcommand)]
enum OutboxCommand {
    /// Lists messages, newest first
    List(ListArgs),
    /// Shows a message with what it says
    Show(OneArgs),
    /// Has a failed message sent again
    Retry(OneArgs),
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// pending, sent, failed
    #[arg(long, value_name = "S")]
    status: Option<String>,
    /// How many, 1 to 1000 [default: 50]
    #[arg(long, value_name = "N")]
    limit: Option<u32>,
    /// Where the page begins: nextCursor of the one before
    #[arg(long, value_name = "C")]
    cursor: Option<String>,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Debug, clap::Args)]
struct OneArgs {
    /// The message's id
    #[arg(value_parser = message_id)]
    id: String,
    #[command(flatten)]
    common: CommonArgs,
}

impl OutboxArgs {
    pub(super) async fn run(self) -> Result<ExitCode> {
        match self.command {
            OutboxCommand::List(args) => args.run().await?,
            OutboxCommand::Show(OneArgs { id, common }) => {
                show(&common.client.connect()?.get(&["outbox", &id], &[]).await?, common.json)?;
            }
            OutboxCommand::Retry(OneArgs { id, common }) => {
                show(&common.client.connect()?.post(&["outbox", &id, "retry"], json!({})).await?, common.json)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl ListArgs {
    async fn run(self) -> Result<()> {
        let query =
            [("status", self.status), ("limit", self.limit.map(|limit| limit.to_string())), ("cursor", self.cursor)];
        let answer = self.common.client.connect()?.get(&["outbox"], &query).await?;
        if self.common.json {
            return print(&answer.text);
        }
        let found = answer.json()?;
        let clockface = Clockface::new(when::zones()?);
        let heading = ["ID", "STATUS", "RECIPIENT", "SUBJECT", "THROUGH", "ATTEMPT", "WRITTEN", "ERROR"];
        let mut table = Table::new(heading).right(&[5]);
        for message in found["items"].as_array().into_iter().flatten() {
            table.row([
                field(&message["id"]),
                field(&message["status"]),
                field(&message["recipient"]),
                shortened(message["body"]["subject"].as_str().unwrap_or_default(), 40),
                field(&message["transport"]),
                field(&message["attempt"]),
                clockface.show_field(&message["createdAt"], "UTC").unwrap_or_default(),
                message["error"].as_str().map(|error| shortened(error, 60)).unwrap_or_default(),
            ]);
        }
        print(&table.page("no messages", &found))
    }
}

fn message_id(text: &str) -> Result<String, String> {
    named(text, "give a message's id; `punctual outbox list` shows them")
}

fn show(answer: &Answer, json: bool) -> Result<()> {
    if json {
        return print(&answer.text);
    }
    let message = answer.json()?;
    let clockface = Clockface::new(when::zones()?);
    let instant = |name: &str| clockface.show_field(&message[name], "UTC");
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let mut facts = Facts::default();
    facts.add("id", field(&message["id"]));
    facts.add("status", field(&message["status"]));
    facts.add("recipient", field(&message["recipient"]));
    facts.add("through", field(&message["transport"]));
    facts.add("attempt", field(&message["attempt"]));
    facts.add_some("next attempt", instant("nextAttemptAt"));
    facts.add_some("error", text(&message["error"]));
    facts.add_some("provider's id", text(&message["providerId"]));
    facts.add("dedupe key", field(&message["dedupeKey"]));
    facts.add_some("written", instant("createdAt"));
    facts.add_some("ended", instant("completedAt"));
    facts.add_some("subject", text(&message["body"]["subject"]));
    let mut page = facts.text();
    if let Some(said) = message["body"]["text"].as_str() {
        page.push_str(&format!("\n\n{said}"));
    }
    print(&page)
}
