//! Placeholder.

pub mod cli;
