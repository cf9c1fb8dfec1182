//! `punctual template …`: what plugins send, before anything is sent.

use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::{Map, Value};

use super::output::{Facts, Table, print};
use crate::plugins::Plugins;
use crate::templates::Templates;

/// The messages that the plugins of this binary send.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  punctual template list
  punctual template preview signup-reminder-early
  punctual template preview signup-reminder-early \\
      --values '{\"resumeUrl\": \"https://example.com\"}'
  punctual template preview signup-reminder-early --html > preview.html")]
pub(super) struct TemplateArgs {
    #[command(subcommand)]
    command: TemplateCommand,
}

#[derive(Debug, clap::Subcommand)]
enum TemplateCommand {
    /// Lists templates, with the subject that their sample makes
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Shows a template filled with its sample, or with other values
    Preview {
        /// Its name, or PLUGIN/NAME
        name: String,
        /// Values for its gaps, a JSON object; by default its sample
        #[arg(long, value_name = "JSON")]
        values: Option<String>,
        /// Print the HTML and nothing else, for a browser
        #[arg(long, conflicts_with = "json")]
        html: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

impl TemplateArgs {
    pub(super) fn run(self, plugins: &Plugins) -> Result<ExitCode> {
        let templates = Templates::of(plugins.all())?;
        match self.command {
            TemplateCommand::List { json } => list(&templates, json)?,
            TemplateCommand::Preview { name, values, html, json } => {
                let values = values.map(|text| serde_json::from_str::<Map<String, Value>>(&text)).transpose();
                let preview = templates.preview(&name, values.context("--values is not a JSON object")?)?;
                if json {
                    print(&serde_json::to_string(&preview)?)?;
                } else if html {
                    let html = preview.rendered.html.with_context(|| format!("the template {name} has no HTML"))?;
                    print(&html)?;
                } else {
                    let mut facts = Facts::default();
                    facts.add("template", format!("{}/{}", preview.plugin, preview.slug));
                    facts.add("subject", &preview.rendered.subject);
                    facts.add("html", if preview.rendered.html.is_some() { "yes, see --html" } else { "no" });
                    print(&format!("{}\n\n{}", facts.text(), preview.rendered.text))?;
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn list(templates: &Templates, json: bool) -> Result<()> {
    let previews = templates.previews()?;
    if json {
        return print(&serde_json::json!({ "items": previews }).to_string());
    }
    let mut table = Table::new(["PLUGIN", "TEMPLATE", "SUBJECT"]);
    for preview in previews {
        table.row([preview.plugin.to_owned(), preview.slug.to_owned(), preview.rendered.subject]);
    }
    print(&if table.is_empty() { "no templates".to_owned() } else { table.text() })
}
