//! `punctual why`: why has it not run?

use std::process::ExitCode;

use anyhow::Result;

use super::look::{Look, LookArgs};
use super::named;
use super::output::print;
use crate::inspect::why::Report;
use crate::plugins::Plugins;

/// Says why a task has not run, why a fire made no task, or what a schedule waits for.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  punctual why 0199a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b     a task or an execution, by its id
  punctual why nightly-billing                          a schedule, by name or id, also deleted
  punctual why nightly-billing --database postgres://me@localhost/app")]
pub(super) struct WhyArgs {
    /// The id of a task or an execution, or the name or id of a schedule
    #[arg(value_parser = subject)]
    id: String,
    #[command(flatten)]
    look: LookArgs,
}

impl WhyArgs {
    pub(super) async fn run(self, plugins: Plugins) -> Result<ExitCode> {
        let (report, text) = match self.look.open(plugins).await? {
            Look::Service(client) => {
                let answer = client.get(&["why", &self.id], &[]).await?;
                (answer.read::<Report>()?, answer.text)
            }
            Look::Database(inspector, progress) => {
                let report = inspector.why(&self.id).await?;
                drop(progress);
                let text = serde_json::to_string(&report)?;
                (report, text)
            }
        };
        print(&if self.look.json { text } else { page(&report) })?;
        Ok(ExitCode::SUCCESS)
    }
}

fn subject(text: &str) -> Result<String, String> {
    named(text, "give the id of a task or an execution, or the name or id of a schedule")
}

fn page(report: &Report) -> String {
    let id = if report.id == report.name { String::new() } else { format!(" {}", report.id) };
    let mut text = format!("{}{id}, {}: {}\n", report.kind, report.name, report.status);
    for reason in &report.reasons {
        text.push_str(&format!("  - {}\n", reason.message));
    }
    text
}
