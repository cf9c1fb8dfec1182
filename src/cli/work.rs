//! `punctual pause` and `punctual resume`: whether a running node works.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;

use super::output::print;
use super::task::CommonArgs;

/// Stops the work of the node at PUNCTUAL_URL: it neither claims nor fires, and still takes tasks.
/// What runs is finished, or handed back.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  punctual pause                                          this machine's node
  punctual pause --url http://node-2:7878                 one of several; the others go on")]
pub(super) struct PauseArgs {
    #[command(flatten)]
    common: CommonArgs,
}

/// Has the node at PUNCTUAL_URL work again, also one that was started with `serve --paused`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  punctual serve --paused                                 take tasks, run none
  punctual resume                                         now run them")]
pub(super) struct ResumeArgs {
    #[command(flatten)]
    common: CommonArgs,
}

impl PauseArgs {
    pub(super) async fn run(self) -> Result<ExitCode> {
        command(self.common, "pause").await
    }
}

impl ResumeArgs {
    pub(super) async fn run(self) -> Result<ExitCode> {
        command(self.common, "resume").await
    }
}

async fn command(common: CommonArgs, what: &str) -> Result<ExitCode> {
    let answer = common.client.connect()?.post(&[what], json!({})).await?;
    if common.json {
        print(&answer.text)?;
    } else if answer.json()?["paused"] == true {
        print("the node is paused: nothing fires and nothing runs there until `punctual resume`")?;
    } else {
        print("the node works")?;
    }
    Ok(ExitCode::SUCCESS)
}
