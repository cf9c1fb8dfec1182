//! The metrics of this process, ready to be scraped.
//!
//! Whoever counts something does so through the `metrics` crate, which knows one recorder per process. Ours is installed
//! when the first service starts; a program that brought its own keeps it, and `/metrics` then has nothing but zeros.

use std::fmt::Write;
use std::sync::OnceLock;
use std::time::Duration;

use metrics::{Label, counter, gauge, histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio_util::task::AbortOnDropHandle;

use super::metric::{Kind, METRICS, Metric};

/// How long samples of histograms wait to be sorted into their buckets; until then each takes some bytes.
const UPKEEP: Duration = Duration::from_secs(1);

/// Renders the metrics of this process.
pub(crate) struct Exporter(PrometheusHandle);

impl Exporter {
    /// The exporter of this process; the first call installs its recorder.
    pub(crate) fn of_process() -> &'static Self {
        static EXPORTER: OnceLock<Exporter> = OnceLock::new();
        EXPORTER.get_or_init(Self::install)
    }

    fn install() -> Self {
        let recorder = builder().build_recorder();
        let handle = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("another recorder of metrics was installed before ours, and gets them");
        }
        METRICS.iter().for_each(begin);
        Self(handle)
    }

    /// Everything, in the text format of Prometheus. A metric that has no series yet shows its kind all the same.
    pub(crate) fn render(&self) -> String {
        let mut text = self.0.render();
        for Metric { name, kind, about, .. } in METRICS {
            let kind = kind.as_str();
            if !text.contains(&format!("# TYPE {name} {kind}\n")) {
                // To write into memory cannot fail.
                let _ = write!(text, "# HELP {name} {about}\n# TYPE {name} {kind}\n\n");
            }
        }
        text
    }

    /// Sorts samples into their buckets now and then, for as long as the answer is kept.
    pub(crate) fn keep_up(&'static self) -> AbortOnDropHandle<()> {
        AbortOnDropHandle::new(tokio::spawn(async move {
            loop {
                tokio::time::sleep(UPKEEP).await;
                self.0.run_upkeep();
            }
        }))
    }
}

fn builder() -> PrometheusBuilder {
    METRICS.iter().fold(PrometheusBuilder::new(), |builder, Metric { name, kind, .. }| match kind {
        Kind::Histogram(buckets) => builder
            .set_buckets_for_metric(Matcher::Full((*name).to_owned()), buckets)
            .unwrap_or_else(|error| unreachable!("the buckets of {name} are refused: {error}")),
        Kind::Counter | Kind::Gauge => builder,
    })
}

/// Describes a metric, and makes the series that are there from the start.
fn begin(metric: &Metric) {
    let Metric { name, kind, labels, about, from_the_start } = *metric;
    match kind {
        Kind::Counter => metrics::describe_counter!(name, about),
        Kind::Gauge => metrics::describe_gauge!(name, about),
        Kind::Histogram(_) => metrics::describe_histogram!(name, about),
    }
    for values in from_the_start {
        let labels: Vec<_> =
            labels.iter().zip(*values).map(|(label, value)| Label::from_static_parts(label, value)).collect();
        match kind {
            Kind::Counter => counter!(name, labels).absolute(0),
            Kind::Gauge => gauge!(name, labels).set(if name.ends_with("_info") { 1.0 } else { 0.0 }),
            Kind::Histogram(_) => drop(histogram!(name, labels)),
        }
    }
}
