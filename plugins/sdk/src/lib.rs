//! What a Punctual plugin is written against, and all it needs.
//!
//! A plugin is a crate that implements [`Plugin`]: a name, and the [`Handler`]s of its topics. A handler performs one
//! [`Attempt`] at a time and answers with an [`Outcome`]. What follows leads from an empty folder to a plugin that runs.
//!
//! # Make a crate
//!
//! In the folder `plugins/`, beside `sdk`, make a folder `greeting` with a `Cargo.toml`:
//!
//! ```toml
//! [package]
//! name = "punctual-greeting"
//! version = "0.1.0"
//! edition = "2024"
//!
//! [dependencies]
//! punctual-sdk = { path = "../sdk" }
//!
//! [dev-dependencies]
//! punctual-testing = { path = "../testing" }
//! serde_json = "1"
//! tokio = { version = "1", features = ["macros", "rt-multi-thread"] }
//! ```
//!
//! and a `src/lib.rs`. This is the whole of `plugins/echo/src/lib.rs`, the smallest plugin, and one to copy:
//!
//! ```ignore
#![doc = include_str!("../../echo/src/lib.rs")]
//! ```
//!
//! `cargo test` in that folder runs its tests on the real engine.
//!
//! # Link it
//!
//! In the `Cargo.toml` at the top, add the folder to `members` and `default-members` of `[workspace]`, and
//! `punctual-greeting = { path = "plugins/greeting" }` to `[dependencies]`. In `src/plugins.rs`, add a line to the list:
//!
//! ```ignore
//! fn ours() -> Vec<Box<dyn Plugin>> {
//!     vec![Box::new(punctual_echo::Echo), Box::new(punctual_greeting::Greeting)]
//! }
//! ```
//!
//! A linked plugin is off until it is named: `PUNCTUAL_PLUGINS=greeting`, or `enabled = ["greeting"]` under `[plugins]` in the
//! configuration. From then on a task of its topic is its handler's.
//!
//! # Reading the payload, and working with `?`
//!
//! A handler is an `async fn` that takes an [`Attempt`] and ends in an [`Outcome`], or in a `Result` with one. An error
//! is a failed attempt, with the error's text; the task's retry policy decides what follows. [`Attempt::payload_as`] reads
//! the payload as any type that serde can read:
//!
//! ```
//! use punctual_sdk::{Attempt, Error, Handler, Outcome};
//! use serde::Deserialize;
//!
//! #[derive(Deserialize)]
//! #[serde(rename_all = "camelCase")]
//! struct Rectangle {
//!     width: u64,
//!     height: u64,
//! }
//!
//! async fn area(attempt: Attempt) -> Result<Outcome, Error> {
//!     let Rectangle { width, height } = attempt.payload_as()?;
//!     let area = width.checked_mul(height).ok_or("too large for us")?;
//!     Ok(Outcome::completed_with(area))
//! }
//!
//! # #[tokio::main]
//! # async fn main() {
//! let outcome = area.handle(Attempt::sample("area", r#"{"width":6,"height":7}"#)).await;
//! assert!(matches!(outcome, Outcome::Completed { result: Some(area) } if area.get() == "42"));
//! let outcome = area.handle(Attempt::sample("area", r#"{"width":6}"#)).await;
//! assert!(matches!(outcome, Outcome::Failed { error } if error.contains("missing field `height`")));
//! # }
//! ```
//!
//! A handler that has something to hold, such as a client, implements [`Handler`] on a type of its own.
//!
//! # Saying how it ended
//!
//! | the outcome | the task |
//! |---|---|
//! | [`Outcome::completed()`], [`Outcome::completed_with(result)`](Outcome::completed_with) | has completed; the result is kept, up to 64 KiB of JSON (a larger one fails the attempt) |
//! | an error, or [`Outcome::failed(error)`](Outcome::failed) | is tried again as its retry policy says, or has failed |
//! | [`Outcome::RetryAfter`] | is tried again after this delay instead, if attempts are left |
//! | [`Outcome::Snoozed`] | is tried again after this delay, and this attempt does not count |
//! | [`Outcome::FailedForGood`] | has failed, whatever attempts are left |
//! | [`Outcome::Cancelled`] | is cancelled |
//! | a panic | as an error; it hurts nobody else |
//! | nothing within the task's time limit | as an error |
//!
//! A task has one attempt unless it, or its topic, says otherwise.
//!
//! ```
//! use std::time::Duration;
//!
//! use punctual_sdk::{Attempt, Error, Outcome};
//!
//! async fn deliver(attempt: Attempt) -> Result<Outcome, Error> {
//!     // What is malformed today is malformed tomorrow.
//!     let Ok(status) = attempt.payload_as::<u16>() else {
//!         return Ok(Outcome::FailedForGood { error: "the payload is not a status".into() });
//!     };
//!     Ok(match status {
//!         200 => Outcome::completed(),
//!         429 => Outcome::RetryAfter { delay: Duration::from_secs(60), error: "too many requests".into() },
//!         503 => Outcome::Snoozed { delay: Duration::from_secs(600) },
//!         other => return Err(format!("answered {other}").into()),
//!     })
//! }
//! # let _ = deliver;
//! ```
//!
//! # Doing it once
//!
//! A task is attempted *at least* once: after a crash, or when a lease was lost, it is handed out again. Two values of the
//! [`Attempt`] keep its effect to one:
//!
//! - [`task_id`](Attempt::task_id) is the same on every attempt. Use it as the key of whatever must not happen twice: a unique
//!   column, or the idempotency key of a call.
//! - [`epoch`](Attempt::epoch) is larger on every later attempt. Where an older attempt that was thought dead may still be
//!   writing, store the epoch with what is written and refuse a smaller one.
//!
//! ```
//! use punctual_sdk::{Attempt, Error, Outcome, on_either, sqlx};
//!
//! async fn charge(attempt: Attempt) -> Result<Outcome, Error> {
//!     let cents: i64 = attempt.payload_as()?;
//!     let charge = "INSERT INTO billing_charges (task_id, cents, epoch) VALUES ($1, $2, $3)
//!                   ON CONFLICT (task_id) DO UPDATE SET epoch = $3 WHERE billing_charges.epoch <= $3";
//!     let id = attempt.task_id.to_string();
//!     let charged = on_either!(attempt.database(), |pool| {
//!         sqlx::query(charge).bind(&id).bind(cents).bind(attempt.epoch).execute(pool).await?.rows_affected()
//!     });
//!     Ok(if charged == 1 { Outcome::completed() } else { Outcome::Cancelled })
//! }
//! # let _ = charge;
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
//! use punctual_sdk::{Attempt, Error, Outcome};
//!
//! async fn import(attempt: Attempt) -> Result<Outcome, Error> {
//!     for row in attempt.payload_as::<Vec<String>>()? {
//!         if attempt.cancelled.run_until_cancelled(store(row)).await.is_none() {
//!             return Ok(Outcome::Cancelled);
//!         }
//!     }
//!     Ok(Outcome::completed())
//! }
//!
//! async fn store(row: String) {
//!     println!("{row}");
//! }
//! # let _ = import;
//! ```
//!
//! # Work that blocks
//!
//! A thread that computes for long, reads files or waits inside a library that is not async is missing elsewhere. [`blocking`]
//! moves such work to threads of its own. A panic in it is the attempt's.
//!
//! ```
//! use punctual_sdk::{Attempt, Error, Outcome, blocking};
//!
//! async fn measure(attempt: Attempt) -> Result<Outcome, Error> {
//!     let path: String = attempt.payload_as()?;
//!     let text = blocking(move || std::fs::read_to_string(path)).await?;
//!     Ok(Outcome::completed_with(text.len()))
//! }
//! # let _ = measure;
//! ```
//!
//! # Remembering: state cells
//!
//! [`Attempt::state_cell`] is one value, of any type that serde can write and read, that all attempts of a plugin on all nodes
//! share: when it last ran, how far it came.
//!
//! ```
//! use punctual_sdk::{Attempt, Error, Outcome};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Default, Serialize, Deserialize)]
//! struct Visits {
//!     count: u64,
//! }
//!
//! async fn visit(attempt: Attempt) -> Result<Outcome, Error> {
//!     let visits = attempt.state_cell::<Visits>("visits");
//!     let before = visits.get().await?.unwrap_or_default();
//!     // Others may visit at the same time: `update` counts them all, which `get` and then `set` would not.
//!     let after = visits.update(|visits| Visits { count: visits.unwrap_or_default().count + 1 }).await?;
//!     Ok(Outcome::completed_with((before.count, after.count)))
//! }
//! # let _ = visit;
//! ```
//!
//! # The database, and tasks in one's own transaction
//!
//! [`Plugin::migrations`] makes the plugin's own tables when the service starts; let their names begin with the plugin's.
//! [`Attempt::database`] is the way to them: SQLite or PostgreSQL, whichever Punctual itself uses, through [`sqlx`]. Where one
//! statement will do for both, [`on_either!`] runs it; write its parameters as `$1`, `$2`. Name the columns that you read: why, says
//! [`Migration`].
//!
//! [`Transaction::enqueue`] writes tasks in the same transaction: a commit makes both so, a rollback neither.
//!
//! ```
//! use std::time::Duration;
//!
//! use punctual_sdk::{Attempt, Error, Handler, Migration, NewTask, Outcome, Plugin, on_either, sqlx};
//!
//! struct Signup;
//!
//! impl Plugin for Signup {
//!     fn name(&self) -> &'static str {
//!         "signup"
//!     }
//!
//!     fn handlers(&self) -> Vec<(&'static str, Box<dyn Handler>)> {
//!         vec![("signup.begin", Box::new(begin)), ("signup.remind", Box::new(remind))]
//!     }
//!
//!     fn migrations(&self) -> Vec<Migration> {
//!         let sessions = "CREATE TABLE signup_sessions (task_id TEXT PRIMARY KEY, email TEXT NOT NULL)";
//!         vec![Migration { name: "1_sessions", sqlite: sessions, postgres: sessions }]
//!     }
//! }
//!
//! async fn begin(attempt: Attempt) -> Result<Outcome, Error> {
//!     let email: String = attempt.payload_as()?;
//!     let id = attempt.task_id.to_string();
//!     let mut transaction = attempt.database().begin().await?;
//!     let insert = "INSERT INTO signup_sessions (task_id, email) VALUES ($1, $2) ON CONFLICT DO NOTHING";
//!     on_either!(transaction, |connection| {
//!         sqlx::query(insert).bind(&id).bind(&email).execute(connection).await?;
//!     });
//!     transaction.enqueue(NewTask::new("signup.remind").payload(&id).after(Duration::from_secs(3600)).dedupe_key(&id)).await?;
//!     transaction.commit().await?;
//!     Ok(Outcome::completed())
//! }
//!
//! async fn remind(attempt: Attempt) -> Result<Outcome, Error> {
//!     let id: String = attempt.payload_as()?;
//!     let select = "SELECT email FROM signup_sessions WHERE task_id = $1";
//!     let email: Option<String> =
//!         on_either!(attempt.database(), |pool| sqlx::query_scalar(select).bind(id).fetch_optional(pool).await?);
//!     Ok(Outcome::completed_with(email))
//! }
//!
//! # #[tokio::main]
//! # async fn main() {
//! let punctual = punctual_testing::start(Signup).await;
//! punctual.run("signup.begin", "ada@example.com").await;
//! punctual.advance(Duration::from_secs(3600)).await;
//! # }
//! ```
//!
//! On SQLite one connection writes at a time, in the whole node. A transaction therefore waits in line for its turn, and must
//! not keep it: an attempt that has one open for more than three seconds is dropped and has failed. Call others before it
//! or after it; use no state cell inside it. Read through the transaction while it is open.
//!
//! # Messages
//!
//! [`Attempt::notifier`] sends messages to people: by e-mail, or by whatever the configuration puts in its place. What they
//! say comes from the plugin's own [`Template`]s, best kept as files, whose gaps are checked. There are two ways:
//!
//! - [`Notifier::enqueue`] writes the message in the handler's own transaction. It is sent once that is committed, and tried
//!   again until it is out or somebody has to look after it.
//! - [`Notifier::deliver`] sends it now, and answers what the provider calls it, or why it could not be sent. The handler
//!   decides what follows.
//!
//! Either way a message is known by its dedupe key, for good: whatever is repeated, it goes out once. (After a crash in the
//! middle of sending it can go out twice, with the same `Message-ID`.)
//!
//! ```
//! use punctual_sdk::{Attempt, Error, Handler, Message, Outcome, Plugin, Template};
//! use serde_json::json;
//!
//! struct Greeting;
//!
//! impl Plugin for Greeting {
//!     fn name(&self) -> &'static str {
//!         "greeting"
//!     }
//!
//!     fn handlers(&self) -> Vec<(&'static str, Box<dyn Handler>)> {
//!         vec![("greeting.send", Box::new(send))]
//!     }
//!
//!     fn templates(&self) -> Vec<Template> {
//!         vec![Template {
//!             slug: "greeting-hello",
//!             subject: "Hello, {{ name }}",
//!             text: "Good to see you, {{ name }}.\n", // or include_str!("../templates/hello.txt")
//!             html: None,
//!             sample: r#"{"name": "Ada"}"#,
//!         }]
//!     }
//! }
//!
//! async fn send(attempt: Attempt) -> Result<Outcome, Error> {
//!     let email: String = attempt.payload_as()?;
//!     let name = email.split('@').next();
//!     let message = Message::new(&email, format!("greeting-hello__{email}")).template("greeting-hello", json!({"name": name}));
//!     let provider_id = attempt.notifier().deliver(message).await?;
//!     Ok(Outcome::completed_with(provider_id))
//! }
//!
//! # #[tokio::main]
//! # async fn main() {
//! let punctual = punctual_testing::start(Greeting).await;
//! punctual.run("greeting.send", "ada@example.com").await;
//! punctual.run("greeting.send", "ada@example.com").await;
//! let [message] = punctual.messages().await.try_into().unwrap();
//! assert_eq!((message.recipient.as_str(), message.subject.as_str()), ("ada@example.com", "Hello, ada"));
//! # }
//! ```
//!
//! # HTTP routes
//!
//! [`Plugin::routes`] names what can be called under `/api/v1/plugins/<name>`: an `async fn` that takes a [`Request`] and ends in an
//! [`Answer`] or a [`Problem`]. API keys and roles, limits, `Idempotency-Key`s, the audit log and the OpenAPI document are the
//! service's; the route says what it takes and answers. [`Fields`] reads bodies and parameters and refuses everything
//! that is wrong with them at once. [`Request::commit`] keeps the answer in the transaction of what it tells, so that a call that
//! is repeated is answered again and done once.
//!
//! ```
//! use punctual_sdk::{Answer, Fields, Handler, Migration, Plugin, Problem, Request, Route, Schema, on_either, sqlx};
//! use serde_json::json;
//!
//! struct Guests;
//!
//! impl Plugin for Guests {
//!     fn name(&self) -> &'static str {
//!         "guests"
//!     }
//!
//!     fn handlers(&self) -> Vec<(&'static str, Box<dyn Handler>)> {
//!         Vec::new()
//!     }
//!
//!     fn routes(&self) -> Vec<Route> {
//!         let name = Schema::object([("name", Schema::text())]);
//!         vec![
//!             Route::post("/entries", sign)
//!                 .named("signGuestBook", "Signs the guest book")
//!                 .takes(name.clone(), json!({"name": "Ada"}))
//!                 .answers(201, "The entry", name),
//!         ]
//!     }
//!
//!     fn migrations(&self) -> Vec<Migration> {
//!         let entries = "CREATE TABLE guests_entries (name TEXT NOT NULL)";
//!         vec![Migration { name: "1_entries", sqlite: entries, postgres: entries }]
//!     }
//! }
//!
//! async fn sign(request: Request) -> Result<Answer, Problem> {
//!     let mut fields = request.fields();
//!     let name = fields.needs("name", Fields::text);
//!     fields.finish()?;
//!     let mut transaction = request.database().begin().await?;
//!     on_either!(transaction, |connection| {
//!         sqlx::query("INSERT INTO guests_entries VALUES ($1)").bind(&name).execute(connection).await?;
//!     });
//!     request.commit(transaction, Answer::created(json!({ "name": name }))?).await
//! }
//!
//! # #[tokio::main]
//! # async fn main() {
//! let punctual = punctual_testing::start(Guests).await;
//! let signed = punctual.post("/entries", json!({"name": "Ada"})).await;
//! assert_eq!((signed.status, signed.text("name")), (201, "Ada"));
//! assert_eq!(punctual.post("/entries", json!({"nmae": "Ada"})).await.bad_fields(), ["name", "nmae"]);
//! # }
//! ```
//!
//! # What a plugin brings, and what it is told
//!
//! [`Plugin::schedules`] and [`Plugin::topics`] are made once and belong to whoever operates the service from then on.
//! [`Context::setting`] is what the configuration says, [`Context::zone`] a time zone with the rules that the service goes by.
//!
//! # Listening
//!
//! [`Plugin::listeners`] names who wants to hear of attempts that begin, on whatever topics, served by whomever: an `async fn`
//! that takes an [`Arrival`]. On a topic whose route is `event`, which nobody serves, the listeners are the work: the
//! attempt waits for them, and an error of theirs fails it. Elsewhere they are told beside the attempt, and what goes wrong is
//! logged.
//!
//! ```
//! use punctual_sdk::{Arrival, Error, Handler, Listener, Plugin};
//! use punctual_testing::TaskStatus;
//!
//! struct Bell;
//!
//! impl Plugin for Bell {
//!     fn name(&self) -> &'static str {
//!         "bell"
//!     }
//!
//!     fn handlers(&self) -> Vec<(&'static str, Box<dyn Handler>)> {
//!         Vec::new()
//!     }
//!
//!     fn listeners(&self) -> Vec<(&'static str, Box<dyn Listener>)> {
//!         vec![("door.*", Box::new(ring))]
//!     }
//! }
//!
//! async fn ring(arrival: Arrival) -> Result<(), Error> {
//!     let visitor: String = arrival.payload_as()?;
//!     println!("{} at {}: {visitor}", arrival.alias(), arrival.fired_at);
//!     Ok(())
//! }
//!
//! # #[tokio::main]
//! # async fn main() {
//! let punctual = punctual_testing::start(Bell).await;
//! assert_eq!(punctual.run("door.front", "Ada").await.status, TaskStatus::Completed);
//! assert_eq!(punctual.run("door.front", 7).await.status, TaskStatus::Failed);
//! # }
//! ```
//!
//! # Looking after it
//!
//! A plugin that can tell when something is wrong does so by a [`HealthCheck`]. Every node looks once a minute; what one finds is
//! an alert to whoever operates the service, once an hour at the most.
//!
//! ```
//! use chrono::{DateTime, TimeDelta, Utc};
//! use punctual_sdk::{Context, Error, Handler, HealthCheck, Plugin, Trouble, on_either, sqlx};
//!
//! struct Parcels;
//!
//! impl Plugin for Parcels {
//!     fn name(&self) -> &'static str {
//!         "parcels"
//!     }
//!
//!     fn handlers(&self) -> Vec<(&'static str, Box<dyn Handler>)> {
//!         Vec::new()
//!     }
//!
//!     fn health_checks(&self) -> Vec<(&'static str, Box<dyn HealthCheck>)> {
//!         vec![("parcels_lost", Box::new(look_for_lost))]
//!     }
//! }
//!
//! async fn look_for_lost(context: Context, now: DateTime<Utc>) -> Result<Option<Trouble>, Error> {
//!     let lost = "SELECT count(*) FROM parcels WHERE sent_at < $1";
//!     let lost: i64 = on_either!(context.database(), |pool| {
//!         sqlx::query_scalar(lost).bind(now - TimeDelta::days(30)).fetch_one(pool).await?
//!     });
//!     let trouble = Trouble { subject: format!("{lost} parcels are lost"), text: "Ask the carrier.".into() };
//!     Ok((lost > 0).then_some(trouble))
//! }
//! # let _ = Parcels;
//! ```
//!
//! # Testing
//!
//! `punctual_testing::start` runs a plugin on the engine that runs it in the service, with a database in memory, and a clock
//! that stands still until the test moves it. `run` writes a task and answers it once it has ended or was put off; `advance`
//! moves the clock, and everything that is due on the way is done when it returns. A task that never ends fails the test.
//!
//! ```
//! use std::time::Duration;
//!
//! use punctual_sdk::{Attempt, Handler, NewTask, Outcome, Plugin};
//! use punctual_testing::{AttemptOutcome, TaskStatus};
//!
//! struct Stubborn;
//!
//! impl Plugin for Stubborn {
//!     fn name(&self) -> &'static str {
//!         "stubborn"
//!     }
//!
//!     fn handlers(&self) -> Vec<(&'static str, Box<dyn Handler>)> {
//!         vec![("stubborn", Box::new(refuse_once))]
//!     }
//! }
//!
//! async fn refuse_once(attempt: Attempt) -> Outcome {
//!     match attempt.number {
//!         1 => Outcome::RetryAfter { delay: Duration::from_secs(60), error: "no".into() },
//!         _ => Outcome::completed_with("well then"),
//!     }
//! }
//!
//! # #[tokio::main]
//! # async fn main() {
//! let punctual = punctual_testing::start(Stubborn).await;
//! let id = punctual.enqueue(NewTask::new("stubborn").attempts(2)).await;
//! let task = punctual.task(id).await;
//! assert_eq!((task.status, task.error.as_deref()), (TaskStatus::Pending, Some("no")));
//!
//! punctual.advance(Duration::from_secs(60)).await;
//! let task = punctual.task(id).await;
//! assert_eq!((task.status, task.result), (TaskStatus::Completed, "well then".into()));
//! assert_eq!(task.outcomes, [AttemptOutcome::Failed, AttemptOutcome::Completed]);
//! # }
//! ```
//!
//! [`Attempt::sample`] makes an attempt without an engine, for handlers that need no more than their payload.
#![deny(missing_docs)]

// The guide outside of the crate is true as well.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/plugins.md")]
struct Guide;

mod answer;
mod arrival;
mod attempt;
mod blocking;
mod context;
mod database;
mod defaults;
pub mod engine;
mod fields;
mod health;
mod job;
mod message;
mod migration;
mod new_task;
mod notifier;
mod outcome;
mod plugin;
mod problem;
mod request;
mod route;
mod row;
mod schema;
mod state_cell;
mod template;
mod zone;

pub use answer::{Answer, AnswerContent, Page, exactly, shown};
pub use arrival::Arrival;
pub use async_trait::async_trait;
pub use attempt::Attempt;
pub use blocking::blocking;
pub use context::Context;
pub use database::{Database, Either, Savepoint, Transaction};
pub use defaults::{DefaultSchedule, DefaultTopic};
pub use fields::Fields;
pub use health::{HealthCheck, Trouble};
pub use job::{Job, run_job};
pub use message::{Channel, Message};
pub use migration::Migration;
pub use new_task::{Due, EnqueueError, NewTask};
pub use notifier::{Notifier, NotifyError};
pub use outcome::Outcome;
pub use plugin::{Handler, Listener, Plugin};
pub use problem::{FieldError, Problem, ProblemKind};
pub use request::Request;
pub use route::{Method, Role, Route, RouteHandler};
pub use schema::Schema;
pub use sqlx;
pub use state_cell::{StateCell, StateCellError};
pub use template::{Rendered, Template, TemplateError};
pub use zone::Zone;

/// Any error, as `?` makes it.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
