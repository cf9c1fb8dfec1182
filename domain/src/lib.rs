//! Punctual's rules and ports: what a task, a schedule and a fire are, and what a store must do.
//!
//! No disk, no network and no clock in here. Decisions are pure functions; what carries them out is elsewhere.

pub mod alert;
pub mod audit;
pub mod calendar;
pub mod clock;
pub mod coordination;
pub mod delivery;
pub mod enqueue;
pub mod event;
pub mod fire;
pub mod hand_over;
pub mod id;
pub mod invalid;
pub mod json;
pub mod key;
pub mod lease;
pub mod news;
pub mod node;
pub mod notify;
pub mod outbox;
pub mod outlook;
pub mod proof;
pub mod rate;
pub mod retry;
pub mod schedule;
pub mod simulation;
pub mod store;
pub mod task;
pub mod time;
pub mod topic;
pub mod why;

pub use punctual_sdk::{Attempt, Outcome};
