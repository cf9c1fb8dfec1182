//! Every metric: its name, its kind, its labels, and one sentence. What is not on this page is not exported.

use punctual_actors::OTHER_TOPICS;

/// One metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) labels: &'static [&'static str],
    pub(crate) about: &'static str,
    /// The series that are there before anything has happened: values for `labels`, in their order.
    pub(crate) from_the_start: &'static [&'static [&'static str]],
}

/// What kind of metric it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    /// With the upper bounds of its buckets.
    Histogram(&'static [f64]),
}

impl Kind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

/// From work that only computes to work that takes an hour.
const DURATION: Kind =
    Histogram(&[0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0]);
/// Fine where punctual is, coarse where it is not.
const LAG: Kind = Histogram(&[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0]);
/// Closer together where alerts are.
const RATIO: Kind = Histogram(&[0.01, 0.05, 0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0]);
/// From an answer out of memory to the longest deadline of a request.
const ANSWER: Kind = Histogram(&[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0]);

use Kind::{Counter, Gauge, Histogram};

const NONE: &[&[&str]] = &[];
/// The one series of a metric without labels.
const ONE: &[&[&str]] = &[&[]];

/// All of them.
#[rustfmt::skip]
pub(crate) const METRICS: &[Metric] = &[
    metric("punctual_schedule_lag_seconds", LAG, &[], ONE, "How long after their instant schedules were evaluated."),
    metric("punctual_schedule_overdue_seconds", Gauge, &[], ONE, "How far past the most overdue instant of an enabled schedule is, 0 if none is due."),
    metric("punctual_schedules_enabled", Gauge, &[], ONE, "Enabled schedules."),
    metric("punctual_fires_total", Counter, &["disposition"], &[&["fired"], &["skipped"]], "Instants of schedules that made a task, or were skipped."),
    metric("punctual_fires_missed_total", Counter, &["topic"], &[&[OTHER_TOPICS]], "Instants of enabled schedules that were over 30 s past without a fire."),
    metric("punctual_fires_duplicate_total", Counter, &[], ONE, "Instants of schedules found to have made more than one task."),
    metric("punctual_tasks_total", Counter, &["topic", "status", "origin"], NONE, "Ended tasks."),
    metric("punctual_tasks_undefined_total", Counter, &[], ONE, "Tasks taken for topics without a definition, which are only announced."),
    metric("punctual_task_duration_seconds", DURATION, &["topic"], NONE, "How long attempts took that ended by themselves."),
    metric("punctual_task_lag_seconds", LAG, &["topic"], NONE, "How long after their runAt attempts began."),
    metric("punctual_attempt_timeout_ratio", RATIO, &["topic"], NONE, "How much of their time limit attempts took."),
    metric("punctual_queue_depth", Gauge, &["topic", "origin"], NONE, "Tasks that are due and unclaimed."),
    metric("punctual_tasks_running", Gauge, &[], ONE, "Tasks that are being attempted, on all nodes."),
    metric("punctual_settle_backlog", Gauge, &[], ONE, "Outcomes that wait to be written; above 10000 nothing more is claimed."),
    metric("punctual_leader", Gauge, &[], ONE, "Whether this node evaluates the schedules."),
    metric("punctual_leader_changes_total", Counter, &[], ONE, "How often this node became the leader; not counted where there can be no other."),
    metric("punctual_leases_expired_total", Counter, &[], ONE, "Leases that ran out because their holder was gone."),
    metric("punctual_stale_settles_total", Counter, &[], ONE, "Outcomes that came after their lease was lost, and changed nothing."),
    metric("punctual_actor_restarts_total", Counter, &["actor"], &[&["settler"], &["claimer"], &["reconciler"], &["ticker"], &["elector"], &["notifier"], &["dispatcher"], &["slot"]], "Actors that failed and were started again."),
    metric("punctual_arrivals_dropped_total", Counter, &["plugin"], NONE, "Arrivals that a plugin's listener was too slow to hear of."),
    metric("punctual_outbox_depth", Gauge, &[], ONE, "Messages that wait to be sent."),
    metric("punctual_messages_total", Counter, &["transport", "status"], NONE, "Attempts to send messages: sent, to be retried, or failed for good."),
    metric("punctual_alerts_total", Counter, &["cause"], &[&["missed_fire"], &["failed_executions"], &["outbox_stuck"], &["leader_flapping"]], "Alerts that this node raised."),
    metric("punctual_hand_overs_total", Counter, &["result"], &[&["queued"], &["was_there"], &["healed"]], "Tasks handed to BullMQ queues: accepted, found there already, or put right by the look at all of them."),
    metric("punctual_tzdata_info", Gauge, &["version"], NONE, "The zone data this node uses; always 1."),
    metric("punctual_build_info", Gauge, &["version"], &[&[env!("CARGO_PKG_VERSION")]], "The version of this node; always 1."),
    metric("punctual_clock_offset_seconds", Gauge, &[], ONE, "How far the database's clock is ahead of this node's."),
    metric("punctual_database_up", Gauge, &[], ONE, "Whether the database answered; while it does not, what is counted in it is NaN."),
    metric("punctual_http_requests_total", Counter, &["method", "route", "status"], NONE, "Answered requests, by class of status."),
    metric("punctual_http_request_duration_seconds", ANSWER, &["method", "route"], NONE, "How long requests took until their answer began."),
    metric("punctual_workers", Gauge, &[], ONE, "Workers that claim or wait for tasks; there are at most 2048."),
    metric("punctual_event_streams", Gauge, &[], ONE, "Open streams of events; there are at most 256."),
    metric("punctual_event_streams_dropped_total", Counter, &[], ONE, "Streams of events that were dropped, most of them for not keeping up."),
    metric("punctual_http_requests_in_flight", Gauge, &[], ONE, "Requests being worked on; further ones than 1024 are told to come back."),
];

const fn metric(
    name: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    from_the_start: &'static [&'static [&'static str]],
    about: &'static str,
) -> Metric {
    Metric { name, kind, labels, about, from_the_start }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_metric_is_named_as_prometheus_wants_it() {
        for Metric { name, kind, labels, about, from_the_start } in METRICS {
            assert!(name.starts_with("punctual_") && about.ends_with('.'), "{name}");
            assert_eq!(name.ends_with("_total"), *kind == Counter, "{name}");
            assert!(from_the_start.iter().all(|values| values.len() == labels.len()), "{name}");
            if let Histogram(buckets) = kind {
                assert!(buckets.is_sorted() && labels.len() < 3, "{name}");
            }
        }
        let mut names: Vec<_> = METRICS.iter().map(|metric| metric.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), METRICS.len());
    }

    #[test]
    fn the_page_on_monitoring_lists_every_metric() {
        let row = |Metric { name, kind, labels, about, .. }: &Metric| {
            let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
            format!("| `{name}` | {} | {} | {about} |\n", kind.as_str(), labels.join(", "))
        };
        let table: String = METRICS.iter().map(row).collect();
        let page = include_str!("../../docs/monitoring.md");
        assert!(page.contains(&table), "write this into docs/monitoring.md:\n{table}");
    }

    #[test]
    fn alerts_and_the_dashboard_ask_for_nothing_that_is_not_exported() {
        for (file, text) in [
            ("alerts.yml", include_str!("../../config/alerts.yml")),
            ("alerts_test.yml", include_str!("../../config/alerts_test.yml")),
            ("grafana.json", include_str!("../../config/grafana.json")),
        ] {
            let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
            let asked: HashSet<_> = words.filter(|word| word.starts_with("punctual_")).collect();
            assert!(asked.len() > 10, "{file}");
            for name in asked {
                let is_exported = METRICS.iter().any(|metric| match metric.kind {
                    Histogram(_) => {
                        ["_bucket", "_count", "_sum"].iter().any(|part| name == format!("{}{part}", metric.name))
                    }
                    Counter | Gauge => name == metric.name,
                });
                let is_prose = file == "alerts.yml" && METRICS.iter().any(|metric| metric.name == name);
                assert!(is_exported || is_prose, "{file} asks for {name}");
            }
        }
    }

    #[test]
    fn the_dashboard_shows_every_metric() {
        let dashboard: serde_json::Value = serde_json::from_str(include_str!("../../config/grafana.json")).unwrap();
        let panels = dashboard["panels"].as_array().unwrap();
        let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
        let asked: String = targets.map(|target| target["expr"].as_str().unwrap()).collect::<Vec<_>>().join("\n");
        for Metric { name, .. } in METRICS {
            assert!(asked.contains(name), "{name}");
        }
        let mut ids: Vec<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
        ids.dedup();
        assert_eq!(ids.len(), panels.len());
    }

    #[test]
    fn every_alert_is_seen_firing_in_a_test() {
        let tests = include_str!("../../config/alerts_test.yml");
        let alerts =
            include_str!("../../config/alerts.yml").lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
        for alert in alerts {
            assert!(tests.contains(&format!("alertname=\"{alert}\"")), "{alert}");
        }
    }
}
