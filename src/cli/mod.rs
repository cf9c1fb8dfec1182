//! The command line: one file per command. Results go to stdout, everything else to stderr.

mod audit;
mod backup;
mod bench;
mod calendar;
mod client;
mod config;
mod demo;
mod doctor;
mod events;
mod key;
mod look;
mod migrate;
mod new_plugin;
pub mod next;
mod nodes;
mod outbox;
mod output;
mod prove;
mod schedule;
mod serve;
mod simulate;
mod task;
mod template;
mod topic;
mod tz;
pub(crate) mod when;
mod why;
mod work;

use std::convert::Infallible;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::config::{Config, Loaded, Secret, Sources};
use crate::plugins::Plugins;

/// The scheduler that fires work on time, once, and can prove it.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

const EXAMPLES: &str = "\
Examples:
  punctual serve                                         SQLite, API on 127.0.0.1:7878
  punctual serve --database postgres://me@localhost/app  PostgreSQL, for any number of nodes
  punctual demo                                          sample data, thrown away at the end
  punctual config check                                  all errors of the configuration
  punctual doctor                                        is everything in place?
  punctual next '0 9 * * 1-5' --tz America/Mexico_City   the next instants
  punctual task add echo --payload '{\"hello\": \"world\"}'
  punctual schedule add nightly --cron '30 2 * * *' --tz America/New_York --topic report
  punctual prove --from -24h                             did everything fire, once?
  punctual why nightly                                   why did it not?
  punctual events --topic 'report.*'                     what happens, as it happens

Commands on tasks, schedules, calendars, topics, messages, changes, keys and nodes, events, pause,
resume, prove, why and simulate ask the service at PUNCTUAL_URL (http://127.0.0.1:7878) with the
API key in PUNCTUAL_TOKEN, if it needs one.

Exit codes: 0 ok, 1 refused or failed, 2 usage.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the service
    Serve(serve::ServeArgs),
    /// Runs the service on a throw-away database, with sample data at work
    Demo(demo::DemoArgs),
    /// Brings the database's schema up to date
    Migrate(migrate::MigrateArgs),
    /// Prints the next instants of a cron expression
    Next(next::NextArgs),
    /// Makes, lists and revokes API keys
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// Checks or shows the configuration
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Checks the database, Redis, the clock and the zone data
    Doctor(doctor::DoctorArgs),
    /// Makes, lists and changes tasks of a running service
    Task(Box<task::TaskArgs>),
    /// Makes, lists and changes schedules of a running service
    Schedule(Box<schedule::ScheduleArgs>),
    /// Writes and lists the days on which schedules do not fire
    Calendar(calendar::CalendarArgs),
    /// Writes and lists what serves which topics
    Topic(topic::TopicArgs),
    /// Follows what happens, as it happens
    Events(events::EventsArgs),
    /// Lists messages on their way out, and has failed ones sent again
    Outbox(outbox::OutboxArgs),
    /// Lists who changed what
    Audit(audit::AuditArgs),
    /// Lists the nodes that share the database
    Nodes(nodes::NodesArgs),
    /// Stops the work of a running node
    Pause(work::PauseArgs),
    /// Has a paused node work again
    Resume(work::ResumeArgs),
    /// Shows the messages that plugins send, before anything is sent
    Template(template::TemplateArgs),
    /// Writes a crate to begin a plugin with
    NewPlugin(new_plugin::NewPluginArgs),
    /// Proves that everything fired that should have, once
    Prove(prove::ProveArgs),
    /// Says why a task, an execution or a schedule has not run
    Why(why::WhyArgs),
    /// Tells what all schedules would do in a stretch of time
    Simulate(simulate::SimulateArgs),
    /// Compares releases of time zone data
    #[command(subcommand)]
    Tz(tz::TzCommand),
    /// Copies the database into a file, also while a service uses it
    Backup(backup::BackupArgs),
    /// Makes a database of a backup
    Restore(backup::RestoreArgs),
    /// Measures this build on this database
    Bench(bench::BenchArgs),
    /// Prints the description of the HTTP API, OpenAPI 3.1
    Openapi,
    /// Prints what makes a shell complete these commands
    Completions(CompletionsArgs),
}

impl Cli {
    /// Does what the command says, in a binary with these plugins.
    ///
    /// # Errors
    /// When it was refused or failed.
    pub async fn run(self, plugins: Plugins) -> Result<ExitCode> {
        match self.command {
            None => {
                Self::command().print_help()?;
                Ok(ExitCode::SUCCESS)
            }
            Some(Command::Serve(args)) => args.run(plugins).await,
            Some(Command::Demo(args)) => args.run(plugins).await,
            Some(Command::Migrate(args)) => args.run(plugins).await,
            Some(Command::Next(args)) => run_next(&args),
            Some(Command::Key(command)) => command.run(plugins).await,
            Some(Command::Config(command)) => command.run(plugins),
            Some(Command::Doctor(args)) => args.run(plugins).await,
            Some(Command::Task(args)) => args.run().await,
            Some(Command::Schedule(args)) => args.run().await,
            Some(Command::Calendar(args)) => args.run().await,
            Some(Command::Topic(args)) => args.run().await,
            Some(Command::Events(args)) => args.run().await,
            Some(Command::Outbox(args)) => args.run().await,
            Some(Command::Audit(args)) => args.run().await,
            Some(Command::Nodes(args)) => args.run().await,
            Some(Command::Pause(args)) => args.run().await,
            Some(Command::Resume(args)) => args.run().await,
            Some(Command::Template(args)) => args.run(&plugins),
            Some(Command::NewPlugin(args)) => args.run(),
            Some(Command::Prove(args)) => args.run(plugins).await,
            Some(Command::Why(args)) => args.run(plugins).await,
            Some(Command::Simulate(args)) => args.run(plugins).await,
            Some(Command::Tz(command)) => command.run(plugins).await,
            Some(Command::Backup(args)) => args.run(plugins).await,
            Some(Command::Restore(args)) => args.run(plugins).await,
            Some(Command::Bench(args)) => args.run(plugins).await,
            Some(Command::Openapi) => {
                let routes = crate::http::PluginRoutes::of(plugins.all())?;
                output::print(&serde_json::to_string_pretty(&crate::http::openapi_document(&routes))?)?;
                Ok(ExitCode::SUCCESS)
            }
            Some(Command::Completions(args)) => args.run(),
        }
    }
}

/// Where the configuration comes from, for commands that need one.
#[derive(Debug, Args)]
struct ConfigArgs {
    /// The configuration file [default: config/punctual.toml, if it is there]
    #[arg(long, value_name = "F")]
    config: Option<PathBuf>,
    /// The database, sqlite://FILE or postgres://USER:PASSWORD@HOST/DATABASE
    #[arg(long, value_name = "URL", value_parser = url)]
    database: Option<Secret>,
    /// Redis, redis://HOST
    #[arg(long, value_name = "URL", value_parser = url)]
    redis: Option<Secret>,
}

impl ConfigArgs {
    fn sources(&self, plugins: Plugins) -> Sources {
        let flags = [("database.url", "--database", &self.database), ("redis.url", "--redis", &self.redis)];
        let flags =
            flags.into_iter().filter_map(|(key, flag, value)| Some((key, flag, value.as_ref()?.expose().to_owned())));
        let flags = flags.collect();
        Sources { file: self.config.clone(), flags, ..Sources::of_process(plugins) }
    }

    fn load(&self, plugins: Plugins) -> Result<Loaded> {
        Ok(Config::load(&self.sources(plugins))?)
    }
}

/// Prints what makes a shell complete these commands.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  punctual completions bash > ~/.local/share/bash-completion/completions/punctual
  punctual completions zsh > \"${fpath[1]}/_punctual\"
  punctual completions fish > ~/.config/fish/completions/punctual.fish")]
struct CompletionsArgs {
    /// The shell
    shell: clap_complete::Shell,
}

impl CompletionsArgs {
    fn run(self) -> Result<ExitCode> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "punctual", &mut script);
        output::print(&String::from_utf8_lossy(&script))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn run_next(args: &next::NextArgs) -> Result<ExitCode> {
    use punctual_domain::clock::Clock;
    let zones = when::zones()?;
    let now = crate::SystemClock::new().now();
    next::run(args, &zones, now, std::io::stdin().lock(), std::io::stdout().lock())?;
    Ok(ExitCode::SUCCESS)
}

/// A secret, as it was given.
fn hidden(text: &str) -> Result<Secret, Infallible> {
    Ok(Secret::hidden(text))
}

/// A URL that may have a password in it, as it was given.
fn url(text: &str) -> Result<Secret, Infallible> {
    Ok(Secret::url(text))
}

/// What somebody named. Whoever names nothing is told what to name.
fn named(text: &str, advice: &str) -> Result<String, String> {
    if text.trim().is_empty() { Err(advice.to_owned()) } else { Ok(text.to_owned()) }
}

/// The schedule that somebody named, by its name or its id.
fn named_schedule(text: &str) -> Result<String, String> {
    named(text, "give the name or id of a schedule; `punctual schedule list` shows those there are")
}

#[cfg(test)]
mod tests {
    use punctual_domain::fire::FireStatus;
    use punctual_domain::task::TaskStatus;

    use super::*;

    /// How wide help is where nobody says how wide the terminal is.
    const WIDTH: usize = 100;

    /// A command in pieces would be pasted in pieces.
    fn check_examples(command: &clap::Command) {
        let help = command.clone().term_width(WIDTH).render_long_help().to_string();
        for line in command.get_after_help().map(ToString::to_string).unwrap_or_default().lines() {
            assert!(help.lines().any(|shown| shown == line), "`{}` breaks {line:?}", command.get_name());
        }
        command.get_subcommands().for_each(check_examples);
    }

    /// What is not said is not sent: the service decides, and help says how.
    fn check_limits(command: &clap::Command) {
        for arg in command.get_arguments().filter(|arg| arg.get_id() == "limit") {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            let default = format!("[default: {}]", crate::http::query::DEFAULT_LIMIT);
            assert!(help.ends_with(&default), "`{}`: {help}", command.get_name());
        }
        command.get_subcommands().for_each(check_limits);
    }

    #[test]
    fn the_length_of_a_page_is_what_help_says() {
        check_limits(&Cli::command());
    }

    #[test]
    fn every_status_of_an_execution_can_be_asked_for_by_help() {
        let cli = Cli::command();
        let executions = cli.find_subcommand("schedule").and_then(|schedule| schedule.find_subcommand("executions"));
        let mut arguments = executions.unwrap().get_arguments();
        let status = arguments.find(|arg| arg.get_id() == "status").and_then(clap::Arg::get_help).unwrap().to_string();
        let of_tasks = TaskStatus::ALL.map(FireStatus::Task);
        for known in of_tasks.into_iter().chain([FireStatus::Skipped, FireStatus::Dispatched]) {
            assert!(status.contains(known.as_str()), "{}: {status}", known.as_str());
        }
    }

    #[test]
    fn no_line_of_an_example_is_broken() {
        let mut command = Cli::command();
        command.build();
        check_examples(&command);
    }
}
