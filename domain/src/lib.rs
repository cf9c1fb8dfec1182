//! Placeholder.

pub mod time;
