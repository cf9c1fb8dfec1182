//! What a Punctual plugin is written against, and all it needs.
//!
//! A plugin is a crate that implements [`Plugin`]: a name and the [`Handler`]s of its topics. A handler performs one
//! [`Attempt`] at a time and answers with an [`Outcome`]:
//!
//! ```
//! use punctual_sdk::{Attempt, Handler, Outcome, Plugin, async_trait};
//!
//! struct Greet;
//!
//! #[async_trait]
//! impl Handler for Greet {
//!     async fn handle(&self, attempt: Attempt) -> Outcome {
//!         Outcome::completed_with(format!("hello, attempt {}", attempt.number))
//!     }
//! }
//!
//! struct Greeting;
//!
//! impl Plugin for Greeting {
//!     fn name(&self) -> &'static str {
//!         "greeting"
//!     }
//!
//!     fn handlers(&self) -> Vec<(&'static str, Box<dyn Handler>)> {
//!         vec![("greeting.say", Box::new(Greet))]
//!     }
//! }
//! ```
//!
//! # Reading the payload
//!
//! [`Attempt::payload_as`] reads the payload as any type that serde can read. A payload of the wrong shape stays wrong, so
//! say that trying again would not help:
//!
//! ```
//! use punctual_sdk::{Attempt, Outcome};
//! use serde::Deserialize;
//!
//! #[derive(Deserialize)]
//! #[serde(rename_all = "camelCase")]
//! struct Rectangle {
//!     width: u64,
//!     height: u64,
//! }
//!
//! fn area(attempt: &Attempt) -> Outcome {
//!     match attempt.payload_as::<Rectangle>() {
//!         Ok(Rectangle { width, height }) => Outcome::completed_with(width * height),
//!         Err(error) => Outcome::FailedForGood { error: error.to_string() },
//!     }
//! }
//!
//! assert!(matches!(area(&Attempt::sample("area", r#"{"width":6,"height":7}"#)), Outcome::Completed { .. }));
//! assert!(matches!(area(&Attempt::sample("area", r#"{"width":6}"#)), Outcome::FailedForGood { .. }));
//! ```
//!
//! # Working with `?`
//!
//! Put the work into a function of its own that ends in a `Result<Outcome, E>`. `.into()` makes an outcome of it: an error
//! is a failed attempt, and the task's retry policy decides what follows.
//!
//! ```
//! use punctual_sdk::{Attempt, Handler, Outcome, async_trait};
//!
//! struct Sum;
//!
//! impl Sum {
//!     async fn sum(&self, attempt: &Attempt) -> Result<Outcome, Box<dyn std::error::Error + Send + Sync>> {
//!         let numbers: Vec<String> = attempt.payload_as()?;
//!         let mut sum = 0;
//!         for number in numbers {
//!             sum += number.parse::<i64>()?;
//!         }
//!         Ok(Outcome::completed_with(sum))
//!     }
//! }
//!
//! #[async_trait]
//! impl Handler for Sum {
//!     async fn handle(&self, attempt: Attempt) -> Outcome {
//!         self.sum(&attempt).await.into()
//!     }
//! }
//! ```
//!
//! # Doing it once
//!
//! A task is attempted at least once: after a crash, or when a lease was lost, it is handed out again.
//! [`Attempt::task_id`] is the same each time, so use it as the key of whatever must not happen twice: a unique column, or
//! the idempotency key of a call.
//!
//! ```
//! use punctual_sdk::{Attempt, Outcome};
//!
//! struct Mail;
//!
//! impl Mail {
//!     /// Sends a message, unless one with the same key was sent before.
//!     async fn send(&self, key: &str, to: &str) -> Result<(), std::io::Error> {
//!         println!("{key}: to {to}");
//!         Ok(())
//!     }
//! }
//!
//! async fn remind(mail: &Mail, attempt: &Attempt) -> Result<Outcome, Box<dyn std::error::Error + Send + Sync>> {
//!     let to: String = attempt.payload_as()?;
//!     mail.send(&attempt.task_id.to_string(), &to).await?;
//!     Ok(Outcome::completed())
//! }
//! ```
//!
//! # Stopping
//!
//! [`Attempt::cancelled`] says that the attempt should end: its task was cancelled or has timed out, its lease was lost, or
//! the node is stopping. Whoever works for long listens to it and returns soon; what is still at work a moment later is
//! dropped at its next `await`. What a stopping node interrupts is handed back and attempted again, unless the handler
//! answers that it has completed.
//!
//! ```
//! use punctual_sdk::{Attempt, Outcome};
//!
//! async fn import(attempt: &Attempt, rows: Vec<String>) -> Outcome {
//!     for row in rows {
//!         if attempt.cancelled.run_until_cancelled(store(row)).await.is_none() {
//!             return Outcome::Cancelled;
//!         }
//!     }
//!     Outcome::completed()
//! }
//!
//! async fn store(row: String) {
//!     println!("{row}");
//! }
//! ```
//!
//! # Testing
//!
//! [`Attempt::sample`] makes an attempt for a handler's test; `plugins/echo` has one to copy.
#![deny(missing_docs)]

mod arrival;
mod attempt;
mod blocking;
mod context;
mod database;
pub mod engine;
mod migration;
mod new_task;
mod outcome;
mod plugin;
mod state_cell;

pub use arrival::Arrival;
pub use async_trait::async_trait;
pub use attempt::Attempt;
pub use blocking::blocking;
pub use context::Context;
pub use database::{Database, Either, Transaction};
pub use migration::Migration;
pub use new_task::{Due, EnqueueError, NewTask};
pub use outcome::Outcome;
pub use plugin::{Handler, Listener, Plugin};
pub use sqlx;
pub use state_cell::{StateCell, StateCellError};

/// Any error, as `?` makes it.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
