//! What `/metrics` shows, read as Prometheus would.

use std::collections::BTreeMap;

/// The samples of one scrape.
#[derive(Debug)]
pub struct Samples {
    /// Names and kinds, from the `# TYPE` lines.
    pub kinds: BTreeMap<String, String>,
    values: BTreeMap<String, f64>,
}

impl Samples {
    pub fn of(text: &str) -> Self {
        let mut samples = Self { kinds: BTreeMap::new(), values: BTreeMap::new() };
        for line in text.lines() {
            if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').unwrap();
                let again = samples.kinds.insert(name.to_owned(), kind.to_owned());
                assert_eq!(again, None, "{name} is described twice");
            } else if !line.starts_with('#') && !line.is_empty() {
                let (series, value) = line.rsplit_once(' ').unwrap();
                let again = samples.values.insert(series.to_owned(), value.parse().unwrap());
                assert_eq!(again, None, "{series} stands twice");
            }
        }
        samples
    }

    /// The value of a series, such as `name{label="value"}`, with its labels in any order.
    pub fn value(&self, series: &str) -> Option<f64> {
        let wanted = Self::parts(series);
        self.values.iter().find(|(known, _)| Self::parts(known) == wanted).map(|(_, value)| *value)
    }

    /// The values of a label of a metric.
    pub fn labels(&self, name: &str, label: &str) -> Vec<String> {
        let of_metric = self.values.keys().filter(|series| Self::parts(series).0 == name);
        let mut values: Vec<_> = of_metric
            .filter_map(|series| Self::parts(series).1.iter().find_map(|part| part.strip_prefix(&format!("{label}="))))
            .map(|value| value.trim_matches('"').to_owned())
            .collect();
        values.sort();
        values.dedup();
        values
    }

    fn parts(series: &str) -> (&str, Vec<&str>) {
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let mut labels: Vec<_> = labels.trim_end_matches('}').split(',').filter(|label| !label.is_empty()).collect();
        labels.sort_unstable();
        (name, labels)
    }
}
