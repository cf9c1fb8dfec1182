//! How fast the next instant of a cron schedule is found, and how croner alone compares.

use std::hint::black_box;

use chrono::{DateTime, NaiveDateTime, Utc};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use punctual_domain::time::{DstPolicy, Expression, Recurrence, ZoneDatabase};

const CASES: [(&str, &str); 4] = [
    ("*/15 * * * *", "America/New_York"),
    ("30 2 * * 1-5", "America/New_York"),
    ("0 9 LW * *", "Europe/Paris"),
    ("0 0 29 2 *", "America/New_York"),
];

/// Instants an hour and some seconds apart, so that every time of day and of year is met.
fn instants() -> impl Iterator<Item = DateTime<Utc>> {
    (0..).map(|hour| DateTime::from_timestamp(1_767_225_600 + hour % 8_760 * 3_607, 0).unwrap())
}

fn next_after(criterion: &mut Criterion) {
    let zones = ZoneDatabase::bundled();
    let mut group = criterion.benchmark_group("next_after");
    group.throughput(Throughput::Elements(1));
    for (expression, zone) in CASES {
        let recurrence = Recurrence::Cron {
            expression: Expression::parse(expression).unwrap(),
            zone: zones.zone(zone).unwrap(),
            dst: DstPolicy::default(),
        };
        let mut instants = instants();
        group.bench_function(format!("{expression} {zone}"), |bencher| {
            bencher.iter(|| recurrence.next_after(black_box(instants.next().unwrap())));
        });
    }
    group.finish();
}

/// croner's own search over local time, without any zone: the floor it would give us.
fn croner_without_zone(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("croner_without_zone");
    group.throughput(Throughput::Elements(1));
    for (expression, _) in CASES {
        let cron: croner::Cron = expression.parse().unwrap();
        let mut locals = instants().map(|instant| instant.naive_utc());
        group.bench_function(expression, |bencher| {
            bencher.iter(|| -> NaiveDateTime {
                let local = black_box(locals.next().unwrap());
                cron.find_next_occurrence(&local, false).unwrap()
            });
        });
    }
    group.finish();
}

fn parse(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("parse");
    group.throughput(Throughput::Elements(1));
    for (expression, _) in CASES {
        group.bench_function(expression, |bencher| {
            bencher.iter(|| Expression::parse(black_box(expression)).unwrap());
        });
    }
    group.finish();
}

criterion_group!(benches, next_after, croner_without_zone, parse);
criterion_main!(benches);
