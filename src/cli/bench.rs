//! `punctual bench`: measures this build on this database, in a scratch schema or file that is removed after.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use super::ConfigArgs;
use crate::bench::{
    Bench, Burst, Drain, End, Enqueue, Failover, Figures, Latency, Precision, Progress, Recurring, Tick, Value,
};
use crate::plugins::Plugins;

/// Measures this build on this database, in a scratch schema or file that is removed after.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  punctual bench drain                                         SQLite, beside the configured file
  punctual bench drain --database postgres://me@localhost/app --runs 5
  punctual bench enqueue --producers 100 --json
  punctual bench recurring --schedules 1000 --seconds 60
  punctual bench failover --end kill --lease 15 --database postgres://me@localhost/app \\
      --redis redis://localhost")]
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
    /// Writes tasks as a program does through the library, each call answered after its commit
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
    /// Whether schedules that fire every second all do, and how late their tasks begin; fails if one does not
    Recurring {
        #[command(flatten)]
        shape: Shape,
        /// How many schedules there are
        #[arg(long, visible_alias = "tasks", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
        schedules: u64,
        /// For how many seconds they are measured
        #[arg(long, default_value_t = 60, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=3_600))]
        seconds: u64,
        /// All at the same instant of each second, instead of each from when it was written
        #[arg(long)]
        at_once: bool,
    },
    /// How long one leader takes over schedules that are all due at one instant, and how late their tasks begin
    Burst {
        #[command(flatten)]
        shape: Shape,
        /// How many schedules are due
        #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
        schedules: u64,
    },
    /// What deciding one second's schedules costs, beside those that are not due
    Tick {
        #[command(flatten)]
        shape: Shape,
        /// How many schedules are enabled; a multiple of those due
        #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
        schedules: u64,
        /// How many of them are due each second
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000))]
        due: u64,
        /// For how many seconds they are measured
        #[arg(long, default_value_t = 30, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=3_600))]
        seconds: u64,
    },
    /// How long nothing fires when the leader of two nodes ends; needs PostgreSQL, and uses Redis if there is one
    Failover {
        #[command(flatten)]
        shape: Shape,
        /// How the leader ends
        #[arg(long, value_enum, default_value_t = End::Kill)]
        end: End,
        /// How many seconds its lease lasts
        #[arg(long, default_value_t = 15, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=300))]
        lease: u32,
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
        let config = shape.config.load(plugins)?.config;
        let bench = Bench {
            database_url: config.database_url.expose().to_owned(),
            redis_url: config.redis_url,
            max_tasks_per_poll: shape.batch,
            concurrency: shape.concurrency,
            runs: shape.runs,
            progress: Progress::new(),
        };
        let figures = self.workload.run(&bench).await;
        bench.progress.clear();
        let summary = Summary::of(figures?);
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
            | Self::Precision { shape, .. }
            | Self::Recurring { shape, .. }
            | Self::Burst { shape, .. }
            | Self::Tick { shape, .. }
            | Self::Failover { shape, .. } => shape,
        }
    }

    async fn run(&self, bench: &Bench) -> Result<Figures> {
        match *self {
            Self::Drain { tasks, future, history, .. } => Drain { tasks, future, history }.run(bench).await,
            Self::Enqueue { tasks, producers, per_call, .. } => Enqueue { tasks, producers, per_call }.run(bench).await,
            Self::Latency { tasks, gap, .. } => Latency { tasks, gap: Duration::from_millis(gap) }.run(bench).await,
            Self::Precision { tasks, span, .. } => {
                Precision { tasks, span: Duration::from_secs(span) }.run(bench).await
            }
            Self::Recurring { schedules, seconds, at_once, .. } => {
                Recurring { schedules, seconds, at_once }.run(bench).await
            }
            Self::Burst { schedules, .. } => Burst { schedules }.run(bench).await,
            Self::Tick { schedules, due, seconds, .. } => Tick { schedules, due, seconds }.run(bench).await,
            Self::Failover { end, lease, .. } => Failover { end, lease }.run(bench).await,
        }
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
    fn of(Figures { workload, n, values, unit, config }: Figures) -> Self {
        Self {
            peer: "punctual",
            workload,
            n,
            value: each(&values, |sorted| {
                let middle = sorted.len() / 2;
                if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
            }),
            unit,
            config,
            runs: values.len(),
            min: each(&values, |sorted| sorted[0]),
            max: each(&values, |sorted| sorted[sorted.len() - 1]),
        }
    }

    fn to_text(&self) -> String {
        let Self { workload, n, unit, config, runs, .. } = self;
        let what = match *workload {
            "recurring" | "burst" | "tick" => "schedules",
            "failover" => "nodes",
            _ => "tasks",
        };
        let mut text =
            format!("{workload}, {n} {what}, {runs} {}, {config}\n", if *runs == 1 { "run" } else { "runs" });
        let spread = self.min.parts().into_iter().zip(self.max.parts());
        for ((name, value), ((_, min), (_, max))) in self.value.parts().into_iter().zip(spread) {
            let spread = if *runs > 1 { format!("  ({min} to {max})") } else { String::new() };
            let unit = match name {
                "rate" => *unit,
                "made" | "expected" => "fires",
                _ => "ms",
            };
            text += &format!("  {name:<8} {value} {unit}{spread}\n");
        }
        text
    }
}

/// One value out of all, for each number in them by itself; `choose` gets them sorted.
fn each(values: &[Value], choose: impl Fn(&[f64]) -> f64) -> Value {
    let all: Vec<_> = values.iter().map(Value::parts).collect();
    let chosen = all[0].iter().enumerate().map(|(i, (name, _))| {
        let mut numbers: Vec<_> = all.iter().map(|parts| parts[i].1).collect();
        numbers.sort_unstable_by(f64::total_cmp);
        (*name, choose(&numbers))
    });
    match values[0] {
        Value::Rate(_) => Value::Rate(chosen.map(|(_, rate)| rate).sum()),
        Value::Parts(_) => Value::Parts(chosen.collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_runs_are_told_by_median_and_spread() {
        let figures = |rates: &[f64]| Figures {
            workload: "drain",
            n: 10,
            values: rates.iter().copied().map(Value::Rate).collect(),
            unit: "tasks/s",
            config: "sqlite".into(),
        };
        let summary = Summary::of(figures(&[3.0, 1.0, 2.0]));
        assert_eq!(summary.to_text(), "drain, 10 tasks, 3 runs, sqlite\n  rate     2 tasks/s  (1 to 3)\n");
        assert_eq!((summary.value, summary.min, summary.max), (Value::Rate(2.0), Value::Rate(1.0), Value::Rate(3.0)));
        assert_eq!(Summary::of(figures(&[1.0, 2.0])).value, Value::Rate(1.5));
    }

    #[test]
    fn each_number_has_its_unit() {
        let summary = Summary::of(Figures {
            workload: "recurring",
            n: 2,
            values: vec![Value::Parts(vec![("made", 20.0), ("expected", 20.0), ("p50", 1.5)])],
            unit: "fires, ms",
            config: "sqlite".into(),
        });
        let text =
            "recurring, 2 schedules, 1 run, sqlite\n  made     20 fires\n  expected 20 fires\n  p50      1.5 ms\n";
        assert_eq!(summary.to_text(), text);
    }
}
