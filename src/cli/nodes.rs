//! `punctual nodes`: the processes that share the database.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::Value;

use super::output::{Clockface, Table, field, print};
use super::task::CommonArgs;
use super::when;

/// Lists the nodes that share the database of a running service.
#[derive(Debug, clap::Args)]
pub(super) struct NodesArgs {
    #[command(flatten)]
    common: CommonArgs,
}

impl NodesArgs {
    pub(super) async fn run(self) -> Result<ExitCode> {
        let answer = self.common.client.connect()?.all(&["nodes"]).await?;
        if self.common.json {
            print(&answer.text)?;
            return Ok(ExitCode::SUCCESS);
        }
        let clockface = Clockface::new(when::zones()?);
        let mut table = Table::new(["ID", "VERSION", "ZONE DATA", "LISTENS ON", "STATE", "LEADS", "STARTED", "SEEN"]);
        for node in answer.json()?["items"].as_array().into_iter().flatten() {
            table.row([
                field(&node["id"]),
                field(&node["version"]),
                field(&node["tzVersion"]),
                field(&node["listen"]),
                state(node).to_owned(),
                if node["leader"] == true { "yes" } else { "" }.to_owned(),
                clockface.show_field(&node["startedAt"], "UTC").unwrap_or_default(),
                clockface.show_field(&node["seenAt"], "UTC").unwrap_or_default(),
            ]);
        }
        print(&table.text())?;
        Ok(ExitCode::SUCCESS)
    }
}

fn state(node: &Value) -> &'static str {
    match (&node["silent"], &node["paused"]) {
        (Value::Bool(true), _) => "silent",
        (_, Value::Bool(true)) => "paused",
        _ => "works",
    }
}
