//! What every behaviour needs: a fresh database, a clock that is moved by hand, and short words for the usual moves.

mod database;
mod node;
mod run;
mod task;
mod world;

pub(crate) use database::Database;
pub(crate) use node::{LEASE, NodeStore, ZONES, by_the_rules, counts, side_by_side};
pub(crate) use run::{BEGINNING, block_on, on_pooled, on_postgres, on_sqlite, postgres_server};
pub(crate) use task::{
    TaskBuilder, completed, deduplicated, failed, fresh, ids, map, newest_first, retried, snoozed, task, topic, written,
};
pub(crate) use world::{End, World, options};
