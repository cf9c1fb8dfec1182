//! The actor tree on a real store, with a clock that is moved by hand.

mod alerts;
mod counter;
mod downtime;
mod messages;
mod schedules;
mod support;
mod tasks;
mod year;
