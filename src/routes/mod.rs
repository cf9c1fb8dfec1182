//! What serves a topic besides handlers.

pub(crate) mod address;
pub(crate) mod bullmq;
pub(crate) mod courier;
pub(crate) mod pull;
pub(crate) mod signature;
pub(crate) mod webhook;
