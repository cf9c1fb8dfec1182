//! `punctual audit …`: who changed what, and when.

use std::process::ExitCode;

use anyhow::Result;

use super::output::{Clockface, Table, field, print, shortened};
use super::task::{CommonArgs, read_instant};
use super::when;

/// The audit log of a running service: every change, with who made it. Where there are API keys it needs the role admin.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  punctual audit list --from -24h
  punctual audit list --actor deploy --action 'PUT /api/v1/topics/{name}'
  punctual audit list --target mail.send --limit 10")]
pub(super) struct AuditArgs {
    #[command(subcommand)]
    command: AuditCommand,
}

#[derive(Debug, clap::Subcommand)]
enum AuditCommand {
    /// Lists changes, newest first
    List(ListArgs),
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// By whom: a key's name, local, command line
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
    /// By the key of this id
    #[arg(long, value_name = "ID")]
    key_id: Option<String>,
    /// What, as the log has it, such as 'POST /api/v1/schedules/{id}/pause'
    #[arg(long, value_name = "ACTION")]
    action: Option<String>,
    /// To what: an id, or a name
    #[arg(long, value_name = "TARGET")]
    target: Option<String>,
    /// From this instant on: 2026-11-16T00:00:00Z, 2026-11-16 (read in --tz), -24h
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    from: Option<String>,
    /// Before this instant
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    to: Option<String>,
    /// The zone that times without an offset are read in, and times are shown in
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    tz: String,
    /// How many, 1 to 1000 [default: 50]
    #[arg(long, value_name = "N")]
    limit: Option<u32>,
    /// Where the page begins: nextCursor of the one before
    #[arg(long, value_name = "C")]
    cursor: Option<String>,
    #[command(flatten)]
    common: CommonArgs,
}

impl AuditArgs {
    pub(super) async fn run(self) -> Result<ExitCode> {
        match self.command {
            AuditCommand::List(args) => args.run().await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl ListArgs {
    async fn run(self) -> Result<()> {
        let query = [
            ("keyId", self.key_id),
            ("actor", self.actor),
            ("action", self.action),
            ("target", self.target),
            ("from", read_instant(&self.from, &self.tz)?),
            ("to", read_instant(&self.to, &self.tz)?),
            ("limit", self.limit.map(|limit| limit.to_string())),
            ("cursor", self.cursor),
        ];
        let answer = self.common.client.connect()?.get(&["audit"], &query).await?;
        if self.common.json {
            return print(&answer.text);
        }
        let found = answer.json()?;
        let clockface = Clockface::new(when::zones()?);
        let mut table = Table::new(["AT", "WHO", "DID", "TO WHAT", "ANSWER"]).right(&[4]);
        for entry in found["items"].as_array().into_iter().flatten() {
            table.row([
                clockface.show_field(&entry["at"], &self.tz).unwrap_or_default(),
                field(&entry["actor"]),
                field(&entry["action"]),
                shortened(entry["target"].as_str().unwrap_or_default(), 80),
                field(&entry["status"]),
            ]);
        }
        print(&table.page("no changes", &found))
    }
}
