//! Coordination: which of the nodes that share a store leads.
//!
//! One node evaluates schedules, the others stand by. That spares work, and nothing else rests on it: whoever believes
//! that it leads writes by transactions in which each instant fires once, so two leaders for a moment do no harm.

use std::time::Duration;

use async_trait::async_trait;

/// Who leads.
#[async_trait]
pub trait Coordination: Send + Sync {
    /// Takes the lead if nobody has it, or keeps it.
    ///
    /// # Errors
    /// When nobody can tell who leads. This node does not then.
    async fn lead(&self) -> Result<Standing, CoordinationError>;

    /// Lets go of the lead, if this node has it.
    ///
    /// # Errors
    /// When nobody could be told: the lead ends with its lease.
    async fn resign(&self) -> Result<(), CoordinationError>;
}

/// Where this node stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It leads, and need not ask again: there are no others.
    LeadsAlone,
    /// It leads for this long, counted from before it asked, unless it asks again.
    Leads(Duration),
    /// Another node leads for this long, unless that one asks again: to ask sooner is in vain, as long as nobody resigns.
    Follows(Duration),
}

impl Standing {
    /// Whether this node leads.
    pub fn leads(self) -> bool {
        !matches!(self, Self::Follows(_))
    }
}

/// Nobody can tell who leads.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it is not known who leads: {0}")]
pub struct CoordinationError(pub String);

/// The only node of its store always leads.
pub struct Alone;

#[async_trait]
impl Coordination for Alone {
    async fn lead(&self) -> Result<Standing, CoordinationError> {
        Ok(Standing::LeadsAlone)
    }

    async fn resign(&self) -> Result<(), CoordinationError> {
        Ok(())
    }
}
