//! Every key of the configuration: its names, its default, and one sentence.
//!
//! The table is the only list. `config/punctual.toml` is written from it, and a test holds the file to it.

/// One key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// In the file; what stands before a dot is the section.
    pub(crate) name: &'static str,
    /// In the environment.
    pub(crate) variable: &'static str,
    /// As it would be written in the file; `None` where nothing is the default.
    pub(crate) default: Option<&'static str>,
    /// What must not be shown of it.
    pub(crate) hide: Hide,
    /// What it does.
    pub(crate) about: &'static str,
}

/// What must not be shown of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hide {
    /// It may be shown.
    Nothing,
    /// The password inside a URL.
    Password,
    /// All of it.
    All,
}

use Hide::{All, Nothing, Password};

const fn key(
    name: &'static str,
    variable: &'static str,
    default: Option<&'static str>,
    hide: Hide,
    about: &'static str,
) -> Key {
    Key { name, variable, default, hide, about }
}

/// Every key, in the order of the file: those without a section first.
#[rustfmt::skip]
pub(crate) const KEYS: &[Key] = &[
    key("listen", "PUNCTUAL_LISTEN", Some("127.0.0.1:7878"), Nothing, "Where the API and the dashboard listen. Any address but loopback needs API keys."),
    key("metrics_listen", "PUNCTUAL_METRICS_LISTEN", None, Nothing, "An address of its own for /metrics, where no key is needed; the same as above if it is not set."),
    key("log", "PUNCTUAL_LOG", Some("info"), Nothing, "What is logged: a level, or levels by module such as `warn,punctual=debug`."),
    key("tzdir", "PUNCTUAL_TZDIR", None, Nothing, "A folder of compiled time zones; used if it is newer than the system's and the bundled ones."),
    key("poll_interval_ms", "POLL_INTERVAL_MS", Some("900000"), Nothing, "How often to look for due tasks even if nothing woke us: a safety net, due tasks do not wait for it."),
    key("max_tasks_per_poll", "MAX_TASKS_PER_POLL", Some("500"), Nothing, "The most tasks taken by one claim."),
    key("lease_seconds", "PUNCTUAL_LEASE_SECONDS", Some("30"), Nothing, "How long a claim on a task lasts unless it is renewed."),
    key("heartbeat_seconds", "PUNCTUAL_HEARTBEAT_SECONDS", None, Nothing, "How often claims are renewed; a third of the lease if it is not set."),
    key("leader_lease_seconds", "PUNCTUAL_LEADER_LEASE_SECONDS", Some("15"), Nothing, "How long leadership lasts unless it is renewed."),
    key("leader_heartbeat_seconds", "PUNCTUAL_LEADER_HEARTBEAT_SECONDS", Some("5"), Nothing, "How often leadership is renewed."),
    key("reconcile_seconds", "PUNCTUAL_RECONCILE_SECONDS", Some("5"), Nothing, "How often hand-overs and leases are checked."),
    key("misfire_threshold_seconds", "PUNCTUAL_MISFIRE_THRESHOLD_SECONDS", Some("30"), Nothing, "How late an instant of a schedule may be found and still just fire."),
    key("rate_limit", "PUNCTUAL_RATE_LIMIT", Some("1000"), Nothing, "Requests per second and API key, on each node; none are counted while there are no keys."),
    key("drain_seconds", "PUNCTUAL_DRAIN_SECONDS", Some("25"), Nothing, "How long a stopping service may finish what it has begun."),
    key("retention_days", "PUNCTUAL_RETENTION_DAYS", Some("30"), Nothing, "How long ended tasks, fires and attempts are kept."),
    key("database.url", "DATABASE_URL", Some("sqlite://punctual.db"), Password, "sqlite://FILE for one node, postgres://USER:PASSWORD@HOST/DATABASE for any number."),
    key("redis.url", "REDIS_URL", None, Password, "redis://HOST or rediss://HOST; optional, but needed to hand tasks to BullMQ queues."),
    key("plugins.enabled", "PUNCTUAL_PLUGINS", Some(""), Nothing, "Plugins to turn on; `echo` is always on."),
    key("webhook.allow", "PUNCTUAL_WEBHOOK_ALLOW", Some(""), Nothing, "Private networks a webhook may reach, such as 10.1.0.0/16."),
    key("notify.transport", "NOTIFY_TRANSPORT", None, Nothing, "How messages go out: log, smtp, resend, queue or webhook; by what is set below if not said, else log."),
    key("notify.smtp_url", "SMTP_URL", None, All, "smtps://USER:PASSWORD@HOST, or smtp:// with STARTTLS, which a password on another machine requires; ?tls=required, opportunistic or none says otherwise."),
    key("notify.resend_api_key", "RESEND_API_KEY", None, All, "The key for Resend."),
    key("notify.resend_url", "RESEND_URL", Some("https://api.resend.com"), Password, "Where Resend is."),
    key("notify.webhook_url", "NOTIFY_WEBHOOK_URL", None, All, "Where messages go whose transport or channel is webhook."),
    key("notify.webhook_secrets", "NOTIFY_WEBHOOK_SECRETS", Some(""), All, "What signs those, as Standard Webhooks describes; two during a rotation."),
    key("notify.queue", "NOTIFY_QUEUE", Some("notifications__email"), Nothing, "The BullMQ queue for messages whose transport or channel is queue."),
    key("notify.queue_prefix", "NOTIFY_QUEUE_PREFIX", Some("bull"), Nothing, "What the keys of that queue begin with in Redis."),
    key("notify.mail_from", "MAIL_FROM", Some("Punctual <punctual@localhost>"), Nothing, "The sender of e-mails; mail servers want one of your own domain."),
    key("notify.admin_alert_email", "ADMIN_ALERT_EMAIL", None, Nothing, "Who gets alerts, by the transport above; they are only logged if it is not set."),
    key("notify.admin_alert_webhook_url", "ADMIN_ALERT_WEBHOOK_URL", None, All, "Where alerts are sent as well, signed with webhook_secrets."),
    key("signup.dashboard_url", "DASHBOARD_URL", Some("https://app.leadmetrics.ai"), Password, "Where sign-up reminders lead to."),
    key("signup.alert_email", "SIGNUP_ALERT_EMAIL", None, Nothing, "Who hears of new sign-ups; nobody if it is not set."),
    key("operations.timezone", "PUNCTUAL_OPERATIONS_TIMEZONE", None, Nothing, "The organisation's time zone: all-day events without one of their own are at noon there; UTC if it is not set."),
    key("clearpath.lab_integration_model", "LAB_INTEGRATION_MODEL", None, Nothing, "How lab results come in; they are polled if it is `api`."),
    key("clearpath.lab_api_url", "LAB_API_URL", None, Password, "Where lab results are polled."),
    key("clearpath.lab_api_key", "LAB_API_KEY", None, All, "The key for polling them."),
];

/// Variables with our prefix that are not keys: how commands find a running service.
pub(crate) const OTHER_VARIABLES: [&str; 2] = ["PUNCTUAL_URL", "PUNCTUAL_TOKEN"];

impl Key {
    /// The key of that name in the file.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.name == name)
    }

    /// The variable by the general rule, `PUNCTUAL_<KEY>`.
    pub(crate) fn general_variable(&self) -> String {
        format!("PUNCTUAL_{}", self.name.replace('.', "_").to_ascii_uppercase())
    }

    /// Every variable that sets it; later ones win.
    pub(crate) fn variables(&self) -> Vec<String> {
        let general = self.general_variable();
        if general == self.variable { vec![general] } else { vec![self.variable.to_owned(), general] }
    }

    /// `text` as it may be shown.
    pub(crate) fn shown(&self, text: &str) -> String {
        match self.hide {
            // What is not set is no secret.
            _ if text.is_empty() => String::new(),
            Nothing => text.to_owned(),
            Password => super::Secret::url(text).to_string(),
            All => "***".to_owned(),
        }
    }
}

/// What the file says about topics, of which there are any number.
#[cfg(test)]
const TOPICS: &str = r#"
# Topics can be declared as the API takes them, with names such as rate_per_second. Each start writes them: this file wins
# over the API, but for whether a topic is paused, where it does not say.
# [topics."mail.*"]
# route = { type = "pull" }
# concurrency = 20
# rate_per_second = 100
"#;

/// The file that lists every key with its default.
#[cfg(test)]
pub(crate) fn reference_file() -> String {
    let mut file = String::from(
        "# Every key with its default. The environment wins over this file, flags win over both.\n\
         # Durations are numbers in the unit of the key, or texts such as \"500ms\", \"30s\", \"15m\", \"2h\", \"1d\".\n",
    );
    let mut section = "";
    for key in KEYS {
        let (in_section, name) = key.name.rsplit_once('.').unwrap_or(("", key.name));
        if in_section != section {
            section = in_section;
            file.push_str(&format!("\n[{section}]"));
        }
        let line = match key.default {
            None => format!("# {name} ="),
            Some("") => format!("{name} = []"),
            Some(number) if number.bytes().all(|byte| byte.is_ascii_digit()) => format!("{name} = {number}"),
            Some(text) => format!("{name} = {text:?}"),
        };
        file.push_str(&format!("\n# {} ({})\n{line}\n", key.about, key.variable));
    }
    file + TOPICS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_lists_every_key_with_its_default() {
        let file = include_str!("../../config/punctual.toml");
        assert_eq!(file, reference_file(), "write this into config/punctual.toml:\n{}", reference_file());
    }

    #[test]
    fn every_name_and_every_variable_stands_once() {
        let mut variables: Vec<_> = KEYS.iter().flat_map(Key::variables).collect();
        let count = variables.len();
        variables.sort();
        variables.dedup();
        assert_eq!(variables.len(), count);
        assert!(KEYS.iter().all(|key| Key::named(key.name) == Some(key)));
    }
}
