//! The published vectors: what must fire when, and what must be refused.

use chrono::{DateTime, Utc};
use punctual_domain::time::{DstPolicy, Expression, Recurrence, ZoneDatabase};
use serde::Deserialize;

const VECTORS: &str = include_str!("../../tests/testdata/cron_vectors.jsonl");
const INVALID: &str = include_str!("../../tests/testdata/cron_invalid.jsonl");

#[derive(Deserialize)]
struct Vector {
    id: String,
    expr: String,
    tz: String,
    after: DateTime<Utc>,
    next: Vec<DateTime<Utc>>,
    kind: String,
}

#[derive(Deserialize)]
struct Invalid {
    id: String,
    expr: String,
    tz: String,
    bad: String,
    kind: String,
}

fn lines<'a, T: Deserialize<'a>>(text: &'a str) -> Vec<T> {
    text.lines().map(|line| serde_json::from_str(line).expect("a line of test data")).collect()
}

#[test]
fn every_vector_fires_when_it_should() {
    let zones = ZoneDatabase::bundled();
    let vectors: Vec<Vector> = lines(VECTORS);
    assert_eq!(vectors.len(), 1_500);
    let mut failures = Vec::new();
    for vector in vectors {
        let recurrence = Recurrence::Cron {
            expression: Expression::parse(&vector.expr).unwrap_or_else(|error| panic!("{}: {error}", vector.id)),
            zone: zones.zone(&vector.tz).unwrap_or_else(|error| panic!("{}: {error}", vector.id)),
            dst: DstPolicy::default(),
        };
        let next: Vec<DateTime<Utc>> =
            recurrence.upcoming(vector.after).take(vector.next.len()).map(|fire| fire.at).collect();
        if next != vector.next {
            failures.push(format!(
                "{} {} {:?} {}: expected {:?}, found {next:?}",
                vector.id, vector.kind, vector.expr, vector.tz, vector.next
            ));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_invalid_pair_is_refused_for_its_faulty_half() {
    let zones = ZoneDatabase::bundled();
    let pairs: Vec<Invalid> = lines(INVALID);
    assert_eq!(pairs.len(), 183);
    for pair in pairs {
        let expression = Expression::parse(&pair.expr);
        let zone = zones.zone(&pair.tz);
        let context = format!("{} {} {:?} {:?}", pair.id, pair.kind, pair.expr, pair.tz);
        match pair.bad.as_str() {
            "expr" => {
                assert!(expression.is_err(), "{context} was accepted");
                assert!(zone.is_ok(), "{context}");
            }
            _ => {
                assert!(zone.is_err(), "{context} was accepted");
                assert!(expression.is_ok(), "{context}");
            }
        }
    }
}
