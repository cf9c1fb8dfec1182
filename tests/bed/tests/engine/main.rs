//! The engine when handlers, nodes and the database misbehave: the real binary with the plugin `bed`, killed, stalled and starved.
//!
//! Figures are printed: `make soak` shows them, does more of everything, and holds the figures to their bounds.

// Each test binary uses its own part of it.
#[allow(dead_code, unused_imports, unreachable_pub)]
#[path = "../../../support/mod.rs"]
mod support;

mod bed;
mod chaos;
mod cluster;
mod fairness;
mod fencing;
mod handlers;
mod idle;
mod leading;
mod leases;
mod mail;
mod mail_of_plugins;
mod outage;
mod overlap;
mod postgres;
mod stopping;
