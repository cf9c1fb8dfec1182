//! `punctual calendar …`: named days on which schedules do not fire.

use std::process::ExitCode;

use anyhow::Result;
use chrono::NaiveDate;
use serde_json::{Value, json};

use super::named;
use super::output::{Facts, Table, field, print};
use super::task::CommonArgs;

/// Calendars of a running service: named days on which schedules do not fire.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  punctual calendar put holidays --date 2026-12-25 --date 2027-01-01
  punctual calendar put weekend --weekday sat --weekday sun
  punctual schedule edit nightly --exclude-calendar holidays")]
pub(super) struct CalendarArgs {
    #[command(subcommand)]
    command: CalendarCommand,
}

#[derive(Debug, clap::Subcommand)]
enum CalendarCommand {
    /// Lists calendars
    List {
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Shows a calendar with all its days
    Show {
        /// Its name
        #[arg(value_parser = calendar)]
        name: String,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Writes a calendar; what it was before is replaced
    Put {
        /// Its name
        #[arg(value_parser = calendar)]
        name: String,
        /// A single day, such as 2026-12-25; may be repeated
        #[arg(long = "date", value_name = "DAY", value_parser = day)]
        dates: Vec<String>,
        /// A day of every week, mon … sun; may be repeated
        #[arg(long = "weekday", value_name = "DAY")]
        weekdays: Vec<String>,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Deletes a calendar that no schedule names
    Delete {
        /// Its name
        #[arg(value_parser = calendar)]
        name: String,
        #[command(flatten)]
        common: CommonArgs,
    },
}

impl CalendarArgs {
    pub(super) async fn run(self) -> Result<ExitCode> {
        match self.command {
            CalendarCommand::List { common } => {
                let answer = common.client.connect()?.all(&["calendars"]).await?;
                if common.json {
                    print(&answer.text)?;
                    return Ok(ExitCode::SUCCESS);
                }
                let found = answer.json()?;
                let mut table = Table::new(["NAME", "WEEKDAYS", "DATES"]).right(&[2]);
                for calendar in found["items"].as_array().into_iter().flatten() {
                    let dates = calendar["dates"].as_array().map_or(0, Vec::len);
                    table.row([field(&calendar["name"]), list(&calendar["weekdays"]), dates.to_string()]);
                }
                print(&if table.is_empty() { "no calendars".to_owned() } else { table.text() })?;
            }
            CalendarCommand::Show { name, common } => {
                let answer = common.client.connect()?.get(&["calendars", &name], &[]).await?;
                show(&answer.text, &answer.json()?, common.json)?;
            }
            CalendarCommand::Put { name, dates, weekdays, common } => {
                let body = json!({"dates": dates, "weekdays": weekdays});
                let answer = common.client.connect()?.put(&["calendars", &name], body).await?;
                show(&answer.text, &answer.json()?, common.json)?;
            }
            CalendarCommand::Delete { name, common } => {
                common.client.connect()?.delete(&["calendars", &name]).await?;
                if !common.json {
                    print(&format!("deleted {name}"))?;
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn calendar(text: &str) -> Result<String, String> {
    named(text, "give the name of a calendar; `punctual calendar list` shows those there are")
}

fn day(text: &str) -> Result<String, String> {
    let is_day = text.len() == 10 && NaiveDate::parse_from_str(text, "%Y-%m-%d").is_ok();
    is_day.then(|| text.to_owned()).ok_or_else(|| "give a day such as 2026-12-25".to_owned())
}

fn show(text: &str, calendar: &Value, json: bool) -> Result<()> {
    if json {
        return print(text);
    }
    let mut facts = Facts::default();
    facts.add("name", field(&calendar["name"]));
    facts.add_some("weekdays", Some(list(&calendar["weekdays"])));
    facts.add_some("dates", Some(list(&calendar["dates"])));
    print(&facts.text())
}

fn list(value: &Value) -> String {
    value.as_array().map_or_else(String::new, |items| items.iter().map(field).collect::<Vec<_>>().join(", "))
}
