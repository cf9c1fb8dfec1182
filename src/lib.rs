//! Punctual: the service, and the same scheduler as a library.
//!
//! To schedule work inside a program of your own, begin with [`Punctual`]. [`main_with`] is a whole service
//! binary, to which plugins of one's own can be given. The rest is the service: HTTP, command line and
//! configuration around the store and the actors; `main`, the tests and the benches use what is public of it.

mod bench;
mod binary;
pub mod cli;
mod clock;
pub mod config;
mod coordination;
mod dashboard;
mod delivery;
mod engine;
mod feed;
mod http;
mod inspect;
mod keyring;
mod library;
mod plugins;
mod pulse;
mod redis;
mod retry_after;
mod routes;
pub mod service;
mod store_time;
mod telegraph;
mod telemetry;
mod templates;
mod tls;
mod topics;
mod wake;

/// The examples of these pages run as they are written.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../docs/routes.md")]
    struct Routes;

    #[doc = include_str!("../docs/notifications.md")]
    struct Notifications;
}

pub use binary::main_with;
pub use clock::SystemClock;
pub use library::{BuildError, Builder, CallersTransaction, Error, NewSchedule, NewTask, Punctual};

pub use plugins::{BadPlugin, Plugins};
pub use punctual_domain::clock::Clock;
pub use punctual_domain::id::{ScheduleId, TaskId};
pub use punctual_domain::invalid::{FieldError, Invalid};
pub use punctual_domain::json::Json;
pub use punctual_domain::retry::{Backoff, Growth, RetryPolicy};
pub use punctual_domain::schedule::{Definition, MisfirePolicy, OverlapPolicy, Rhythm, Schedule};
pub use punctual_domain::store::{Created, Page, ScheduleFilter, Span, TaskFilter, TaskWithAttempts};
pub use punctual_domain::task::{AttemptOutcome, AttemptRecord, Task, TaskStatus};
pub use punctual_domain::topic::Topic;
pub use punctual_sdk::{Attempt, Handler, Outcome, Plugin, async_trait};
