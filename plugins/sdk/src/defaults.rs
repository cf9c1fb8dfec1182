use std::time::Duration;

/// A schedule that a plugin brings. It is made once, and then belongs to whoever operates the service: edits stay, and one
/// that was deleted does not come back.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct DefaultSchedule {
    /// Unique among all schedules.
    pub name: &'static str,
    /// The topic of its tasks.
    pub topic: &'static str,
    /// When it fires, as a cron expression.
    pub cron: &'static str,
    /// The IANA zone that is read in.
    pub timezone: &'static str,
    /// What it is for.
    pub description: &'static str,
    /// How many attempts its tasks have in all.
    pub attempts: u32,
}

/// What the definition of a topic says at first, where nobody has written one. From then on it belongs to whoever operates
/// the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultTopic {
    /// The topic, or those that begin so (`operations.*`): one of the plugin's own.
    pub topic: &'static str,
    /// How many attempts tasks have in all.
    pub attempts: u32,
    /// The delay before the second attempt; it doubles from one to the next, up to an hour.
    pub backoff: Duration,
}
