//! `punctual bench`: measures this build on this database, in a scratch schema or file that is removed after.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use super::ConfigArgs;
use crate::bench::{Bench, Drain, Enqueue, Figure, Latency, Precision, Value};
use crate::plugins::Plugins;

/// Measures this build on this database, in a scratch schema or file that is removed after.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  punctual bench drain                                         SQLite, beside the configured file
  punctual bench drain --database postgres://me@localhost/app --runs 5
  punctual bench enqueue --producers 100 --json")]
pub(super) struct BenchArgs {
    #[command(subcommand)]
    workload: Workload,
}

#[derive(Debug, clap::Subcommand)]
enum Workload {
    /// Claims, runs and settles due tasks that do nothing, as fast as it goes
    Drain {
        #[command(flatten)]
        shape: Shape,
        /// How many tasks are due
        #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
        tasks: u64,
        /// How many more are due only tomorrow
        #[arg(long, default_value_t = 0)]
        future: u64,
        /// How many have ended before
        #[arg(long, default_value_t = 0)]
        history: u64,
    },
    /// Writes tasks, each call answered after its commit
    Enqueue {
        #[command(flatten)]
        shape: Shape,
        /// How many tasks are written
        #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
        tasks: u64,
        /// How many callers write at a time
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=10_000))]
        producers: u64,
        /// How many tasks each call writes
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
        per_call: u64,
    },
    /// From the call that writes a task to the first line of its handler
    Latency {
        #[command(flatten)]
        shape: Shape,
        /// How many tasks are written
        #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
        tasks: u64,
        /// How many milliseconds lie between two
        #[arg(long, default_value_t = 10, value_name = "MS")]
        gap: u64,
    },
    /// How late tasks begin that are due at random instants
    Precision {
        #[command(flatten)]
        shape: Shape,
        /// How many tasks become due
        #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
        tasks: u64,
        /// Within how many seconds
        #[arg(long, default_value_t = 20, value_name = "S")]
        span: u64,
    },
}

/// How the measured engine runs, how often, and how that is told.
#[derive(Debug, clap::Args)]
struct Shape {
    #[command(flatten)]
    config: ConfigArgs,
    /// How many runs; several are told by their median and spread
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: u32,
    /// The most tasks one claim takes (MAX_TASKS_PER_POLL)
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    batch: u32,
    /// The topic's concurrency
    #[arg(long, default_value_t = 4_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    concurrency: u32,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

impl BenchArgs {
    pub(super) async fn run(self, plugins: Plugins) -> Result<ExitCode> {
        let shape = self.workload.shape();
        let database_url = shape.config.load(plugins)?.config.database_url.expose().to_owned();
        let bench = Bench { database_url, max_tasks_per_poll: shape.batch, concurrency: shape.concurrency };
        let mut figures = Vec::new();
        for run in 1..=shape.runs {
            progress(&format!("run {run} of {}…", shape.runs));
            let figure = self.workload.run(&bench).await;
            progress("");
            figures.push(figure?);
        }
        let summary = Summary::of(&figures);
        let mut out = std::io::stdout().lock();
        if shape.json {
            writeln!(out, "{}", serde_json::to_string(&summary)?)?;
        } else {
            write!(out, "{}", summary.to_text())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Workload {
    fn shape(&self) -> &Shape {
        match self {
            Self::Drain { shape, .. }
            | Self::Enqueue { shape, .. }
            | Self::Latency { shape, .. }
            | Self::Precision { shape, .. } => shape,
        }
    }

    async fn run(&self, bench: &Bench) -> Result<Figure> {
        match *self {
            Self::Drain { tasks, future, history, .. } => Drain { tasks, future, history }.run(bench).await,
            Self::Enqueue { tasks, producers, per_call, .. } => Enqueue { tasks, producers, per_call }.run(bench).await,
            Self::Latency { tasks, gap, .. } => Latency { tasks, gap: Duration::from_millis(gap) }.run(bench).await,
            Self::Precision { tasks, span, .. } => {
                Precision { tasks, span: Duration::from_secs(span) }.run(bench).await
            }
        }
    }
}

/// Shows how far it is on a terminal, and stays quiet in a pipe.
fn progress(text: &str) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        // A terminal that is gone needs no progress.
        let _ = write!(stderr, "\r\x1b[K{text}").and_then(|()| stderr.flush());
    }
}

/// All runs of a workload: the median, and how far they spread.
#[derive(Debug, Serialize)]
struct Summary {
    peer: &'static str,
    workload: &'static str,
    n: u64,
    value: Value,
    unit: &'static str,
    config: String,
    runs: usize,
    min: Value,
    max: Value,
}

impl Summary {
    fn of(figures: &[Figure]) -> Self {
        let Figure { workload, n, unit, ref config, .. } = figures[0];
        let values: Vec<_> = figures.iter().map(|figure| figure.value).collect();
        Self {
            peer: "punctual",
            workload,
            n,
            value: each(&values, |sorted| {
                let middle = sorted.len() / 2;
                if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
            }),
            unit,
            config: config.clone(),
            runs: figures.len(),
            min: each(&values, |sorted| sorted[0]),
            max: each(&values, |sorted| sorted[sorted.len() - 1]),
        }
    }

    fn to_text(&self) -> String {
        let Self { workload, n, unit, config, runs, .. } = self;
        let mut text = format!("{workload}, {n} tasks, {runs} {}, {config}\n", if *runs == 1 { "run" } else { "runs" });
        for (name, value, min, max) in lines(self.value, self.min, self.max) {
            let spread = if *runs > 1 { format!("  ({min} to {max})") } else { String::new() };
            text += &format!("  {name:<6} {value} {unit}{spread}\n");
        }
        text
    }
}

/// The lines of a table: name, median, smallest, largest.
fn lines(value: Value, min: Value, max: Value) -> Vec<(&'static str, f64, f64, f64)> {
    match (value, min, max) {
        (Value::Rate(value), Value::Rate(min), Value::Rate(max)) => vec![("rate", value, min, max)],
        (
            Value::Waits { p50, p95, p99, max },
            Value::Waits { p50: p50_min, p95: p95_min, p99: p99_min, max: max_min },
            Value::Waits { p50: p50_max, p95: p95_max, p99: p99_max, max: max_max },
        ) => vec![
            ("p50", p50, p50_min, p50_max),
            ("p95", p95, p95_min, p95_max),
            ("p99", p99, p99_min, p99_max),
            ("max", max, max_min, max_max),
        ],
        _ => unreachable!("all runs of a workload measure the same"),
    }
}

/// One value out of all, for each number in them by itself; `choose` gets them sorted.
fn each(values: &[Value], choose: impl Fn(&[f64]) -> f64) -> Value {
    let choose_of = |read: &dyn Fn(&Value) -> f64| {
        let mut numbers: Vec<_> = values.iter().map(read).collect();
        numbers.sort_unstable_by(f64::total_cmp);
        choose(&numbers)
    };
    match values[0] {
        Value::Rate(_) => Value::Rate(choose_of(&|value| match value {
            Value::Rate(rate) => *rate,
            Value::Waits { .. } => f64::NAN,
        })),
        Value::Waits { .. } => {
            let part = |read: fn(&[f64; 4]) -> f64| {
                choose_of(&|value| match value {
                    Value::Waits { p50, p95, p99, max } => read(&[*p50, *p95, *p99, *max]),
                    Value::Rate(_) => f64::NAN,
                })
            };
            Value::Waits { p50: part(|w| w[0]), p95: part(|w| w[1]), p99: part(|w| w[2]), max: part(|w| w[3]) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_runs_are_told_by_median_and_spread() {
        let figure = |rate| Figure {
            workload: "drain",
            n: 10,
            value: Value::Rate(rate),
            unit: "tasks/s",
            config: "sqlite".into(),
        };
        let summary = Summary::of(&[figure(3.0), figure(1.0), figure(2.0)]);
        assert_eq!((summary.value, summary.min, summary.max), (Value::Rate(2.0), Value::Rate(1.0), Value::Rate(3.0)));
        assert_eq!(summary.to_text(), "drain, 10 tasks, 3 runs, sqlite\n  rate   2 tasks/s  (1 to 3)\n");
        assert_eq!(Summary::of(&[figure(1.0), figure(2.0)]).value, Value::Rate(1.5));
    }
}
