//! What a Punctual plugin is written against, and all it needs.
//!
//! A plugin is a crate that implements [`Plugin`]: a name and the [`Handler`]s of its topics.
//! A handler performs one [`Attempt`] at a time and answers with an [`Outcome`]:
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
#![deny(missing_docs)]

mod attempt;
mod outcome;
mod plugin;

pub use async_trait::async_trait;
pub use attempt::Attempt;
pub use outcome::Outcome;
pub use plugin::{Handler, Plugin};
