//! The configuration: every value, its default, and what makes it valid.
//!
//! Values come from [`Sources`] as text and are read once, here. All errors are collected, each with the key, variable
//! or flag it came from, so that one run shows everything there is to mend.

mod error;
mod key;
mod secret;
mod source;
mod value;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use error::{ConfigError, ConfigErrors};
use lettre::message::Mailbox;
use punctual_domain::time::ZoneDatabase;
use punctual_domain::topic::TopicDefinition;
pub use secret::Secret;
pub use source::{DEFAULT_FILE, Source, Sources};
pub use value::Network;

use crate::delivery::explicit_smtp_url;
use crate::http;
use crate::plugins::Plugins;
use crate::routes::address;
use key::{KEYS, Key};
use source::{Text, Texts};
use value::Unit;

/// Everything that can be configured.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the API and the dashboard listen.
    pub listen: SocketAddr,
    /// Where metrics listen, if not there.
    pub metrics_listen: Option<SocketAddr>,
    /// What is logged.
    pub log: String,
    /// A folder of zone data to consider.
    pub tzdir: Option<PathBuf>,
    /// The safety net of claiming.
    pub poll_interval: Duration,
    /// The most tasks taken by one claim.
    pub max_tasks_per_poll: u32,
    /// How long a claim lasts.
    pub lease: Duration,
    /// How often claims are renewed.
    pub heartbeat: Duration,
    /// How long leadership lasts.
    pub leader_lease: Duration,
    /// How often leadership is renewed.
    pub leader_heartbeat: Duration,
    /// How often hand-overs and leases are checked.
    pub reconcile: Duration,
    /// How late an instant just fires.
    pub misfire_threshold: Duration,
    /// Requests per second and API key.
    pub rate_limit: u32,
    /// How long a stopping service may finish what it has begun.
    pub drain: Duration,
    /// How many days ended tasks are kept.
    pub retention_days: u32,
    /// The database.
    pub database_url: Secret,
    /// Redis, if there is one.
    pub redis_url: Option<Secret>,
    /// Plugins that are turned on besides those that always are.
    pub plugins: Vec<String>,
    /// Private networks a webhook may reach.
    pub webhook_allow: Vec<Network>,
    /// How messages go out.
    pub notify: NotifyConfig,
    /// What plugins are told, by the names of variables.
    pub plugin_settings: BTreeMap<&'static str, Secret>,
    /// Topics that the file declares; written at every start.
    pub topics: Vec<DeclaredTopic>,
}

/// A topic that the configuration declares.
#[derive(Debug, Clone)]
pub struct DeclaredTopic {
    /// What it is, over its defaults.
    pub(crate) definition: TopicDefinition,
    /// Whether its route is said; else it is what it was, or only announced.
    pub(crate) says_route: bool,
    /// Whether it is said to be paused or not; else that stays as it was.
    pub(crate) says_paused: bool,
}

/// How messages go out.
#[derive(Debug, Clone)]
pub struct NotifyConfig {
    /// `log`, `smtp`, `resend`, `queue` or `webhook`.
    pub transport: &'static str,
    /// The SMTP server, with its password.
    pub smtp_url: Option<Secret>,
    /// The key for Resend.
    pub resend_api_key: Option<Secret>,
    /// Where Resend is.
    pub resend_url: String,
    /// Where messages go that are for a webhook.
    pub webhook_url: Option<Secret>,
    /// What signs those.
    pub webhook_secrets: Vec<Secret>,
    /// The queue for messages that go to one.
    pub queue: String,
    /// What its keys begin with.
    pub queue_prefix: String,
    /// The sender of e-mails.
    pub mail_from: Mailbox,
    /// Who gets alerts.
    pub admin_alert_email: Option<String>,
    /// Where alerts are sent as well.
    pub admin_alert_webhook_url: Option<Secret>,
}

/// A configuration, and where each of its values came from.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// Every key with its value and source, fit to be shown.
    pub settings: Vec<Setting>,
    /// What is odd, but no error.
    pub warnings: Vec<String>,
}

/// One key as it is in force.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The key.
    pub name: &'static str,
    /// Its value, with secrets hidden; `None` if nothing is set.
    pub value: Option<String>,
    /// Where the value came from.
    pub source: Source,
}

impl Config {
    /// Reads all sources.
    ///
    /// # Errors
    /// Everything that is wrong, at once.
    pub fn load(sources: &Sources) -> Result<Loaded, ConfigErrors> {
        let mut errors = ConfigErrors::default();
        let mut warnings = Vec::new();
        let (texts, declared) = source::collect(sources, &mut errors, &mut warnings);
        let mut config = Reader { texts: &texts, errors: &mut errors, plugins: &sources.plugins }.config();
        for topic in declared {
            match http::declared_topic(&topic.name, &topic.json, &config.webhook_allow) {
                Ok(topic) => config.topics.push(topic),
                Err(refused) => refused.into_iter().for_each(|(field, message)| {
                    let origin = format!("topics.{:?}.{field} in {}", topic.name, topic.path.display());
                    errors.add(ConfigError { origin, value: None, expected: message });
                }),
            }
        }
        if !errors.0.is_empty() {
            return Err(errors);
        }
        let settings = KEYS
            .iter()
            .map(|key| match texts.get(key.name) {
                Some(Text { text, source }) => {
                    Setting { name: key.name, value: Some(key.shown(text)), source: source.clone() }
                }
                None => Setting { name: key.name, value: config.derived(key.name), source: Source::Default },
            })
            .collect();
        Ok(Loaded { config, settings, warnings })
    }

    /// What is in force for a key that nobody set and that follows from others.
    fn derived(&self, name: &str) -> Option<String> {
        match name {
            "metrics_listen" => Some(self.listen.to_string()),
            "heartbeat_seconds" => Some(format!("{:?}", self.heartbeat)),
            "notify.transport" => Some(self.notify.transport.to_owned()),
            _ => None,
        }
    }
}

/// Reads values out of texts. A text that is refused is noted, and the default read in its place, so that reading goes on.
struct Reader<'a> {
    texts: &'a Texts,
    errors: &'a mut ConfigErrors,
    plugins: &'a Plugins,
}

impl Reader<'_> {
    fn config(mut self) -> Config {
        const SECOND: Duration = Duration::from_secs(1);
        const HOUR: Duration = Duration::from_secs(3600);
        const DAY: Duration = Duration::from_secs(86_400);
        let seconds = |text: &str| value::duration(text, Unit::Seconds, SECOND..=HOUR);

        let plugins = self.plugins.names();
        let lease = self.required("lease_seconds", seconds);
        let leader_lease = self.required("leader_lease_seconds", seconds);
        let webhook_allow = self.required("webhook.allow", |text| value::list(text, value::network));
        let config = Config {
            notify: self.notify(&webhook_allow),
            listen: self.required("listen", value::address),
            metrics_listen: self.optional("metrics_listen", value::address),
            log: self.required("log", log_filter),
            tzdir: self.optional("tzdir", value::folder),
            poll_interval: self.required("poll_interval_ms", |text| {
                value::duration(text, Unit::Milliseconds, Duration::from_millis(100)..=DAY)
            }),
            max_tasks_per_poll: self.required("max_tasks_per_poll", |text| value::whole(text, 1..=10_000)),
            lease,
            heartbeat: self.optional("heartbeat_seconds", sub_seconds).unwrap_or(lease / 3),
            leader_lease,
            leader_heartbeat: self.required("leader_heartbeat_seconds", sub_seconds),
            reconcile: self.required("reconcile_seconds", seconds),
            misfire_threshold: self
                .required("misfire_threshold_seconds", |text| value::duration(text, Unit::Seconds, SECOND..=DAY)),
            rate_limit: self.required("rate_limit", |text| value::whole(text, 1..=1_000_000)),
            drain: self.required("drain_seconds", |text| value::duration(text, Unit::Seconds, Duration::ZERO..=HOUR)),
            retention_days: self.required("retention_days", |text| value::whole(text, 1..=36_500)),
            database_url: self.required("database.url", value::database_url),
            redis_url: self.optional("redis.url", |text| value::url(text, &["redis", "rediss"])),
            plugins: self.required("plugins.enabled", |text| value::list(text, |name| plugin(name, &plugins))),
            webhook_allow,
            plugin_settings: self.plugin_settings(),
            topics: Vec::new(),
        };
        self.check_shorter("heartbeat_seconds", config.heartbeat, "lease_seconds", config.lease);
        self.check_shorter(
            "leader_heartbeat_seconds",
            config.leader_heartbeat,
            "leader_lease_seconds",
            config.leader_lease,
        );
        config
    }

    fn notify(&mut self, webhook_allow: &[Network]) -> NotifyConfig {
        const TRANSPORTS: [&str; 5] = ["log", "smtp", "resend", "queue", "webhook"];
        let transport = self.optional("notify.transport", |text| value::one_of(text, &TRANSPORTS));
        let smtp_url =
            self.optional("notify.smtp_url", |text| explicit_smtp_url(text).map(|url| Secret::hidden(url.as_str())));
        let resend_api_key = self.optional("notify.resend_api_key", |text| Ok(Secret::hidden(text)));
        let hidden_url = |text: &str| address::check_url(text, webhook_allow).map(|url| Secret::hidden(url.as_str()));
        let webhook_url = self.optional("notify.webhook_url", hidden_url);
        let admin_alert_webhook_url = self.optional("notify.admin_alert_webhook_url", hidden_url);
        let webhook_secrets = self.required("notify.webhook_secrets", value::webhook_secrets);
        let needed = match transport {
            Some("smtp") if smtp_url.is_none() => Some("SMTP_URL"),
            Some("resend") if resend_api_key.is_none() => Some("RESEND_API_KEY"),
            Some("queue") if !self.texts.contains_key("redis.url") => Some("REDIS_URL"),
            Some("webhook") if webhook_url.is_none() => Some("NOTIFY_WEBHOOK_URL"),
            _ => None,
        };
        if let Some(needed) = needed {
            self.refuse("notify.transport", format!("{needed} to be set with it"));
        }
        for (name, url) in
            [("notify.webhook_url", &webhook_url), ("notify.admin_alert_webhook_url", &admin_alert_webhook_url)]
        {
            if url.is_some() && webhook_secrets.is_empty() {
                self.refuse(name, "NOTIFY_WEBHOOK_SECRETS to be set with it".into());
            }
        }
        let set_up = match (&smtp_url, &resend_api_key) {
            (Some(_), _) => "smtp",
            (None, Some(_)) => "resend",
            (None, None) => "log",
        };
        NotifyConfig {
            transport: transport.unwrap_or(set_up),
            smtp_url,
            resend_api_key,
            resend_url: self.required("notify.resend_url", value::web_address),
            webhook_url,
            webhook_secrets,
            queue: self.required("notify.queue", value::queue_name),
            queue_prefix: self.required("notify.queue_prefix", value::queue_name),
            mail_from: self.required("notify.mail_from", value::mailbox),
            admin_alert_email: self.optional("notify.admin_alert_email", value::mail_address),
            admin_alert_webhook_url,
        }
    }

    /// What plugins are told, by the names of variables.
    fn plugin_settings(&mut self) -> BTreeMap<&'static str, Secret> {
        type Check = fn(&str) -> Result<(), String>;
        let zone: Check = |text| ZoneDatabase::bundled().zone(text).map(drop).map_err(|error| error.to_string());
        let text: Check = |_| Ok(());
        let url: Check = |text| value::web_address(text).map(drop);
        let email: Check = |text| value::mail_address(text).map(drop);
        let checks = [
            ("notify.admin_alert_email", email),
            ("signup.dashboard_url", url),
            ("signup.alert_email", email),
            ("operations.timezone", zone),
            ("clearpath.lab_integration_model", text),
            ("clearpath.lab_api_url", url),
            ("clearpath.lab_api_key", text),
        ];
        let mut settings = BTreeMap::new();
        for (name, check) in checks {
            let said = self.optional(name, |text| check(text).map(|()| Secret::hidden(text)));
            if let (Some(key), Some(said)) = (Key::named(name), said) {
                settings.insert(key.variable, said);
            }
        }
        settings
    }

    fn required<T>(&mut self, name: &'static str, parse: impl Fn(&str) -> Result<T, String>) -> T {
        self.optional(name, &parse).unwrap_or_else(|| {
            let default = Key::named(name).and_then(|key| key.default).unwrap_or_default();
            parse(default).unwrap_or_else(|error| unreachable!("the default of {name} is refused: {error}"))
        })
    }

    fn optional<T>(&mut self, name: &'static str, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        match parse(&self.texts.get(name)?.text) {
            Ok(value) => Some(value),
            Err(expected) => {
                self.refuse(name, expected);
                None
            }
        }
    }

    fn check_shorter(&mut self, name: &'static str, value: Duration, longer_name: &'static str, longer: Duration) {
        if value >= longer {
            let culprit = if self.rank(name) < self.rank(longer_name) { longer_name } else { name };
            let expected = format!("{name} ({value:?}) to be shorter than {longer_name} ({longer:?})");
            self.refuse(culprit, expected);
        }
    }

    /// How deliberate a value is: of two that do not fit together, the more deliberate one is named.
    fn rank(&self, name: &str) -> u8 {
        match self.texts.get(name).map(|text| &text.source) {
            None | Some(Source::Default) => 0,
            Some(Source::File(_)) => 1,
            Some(Source::Variable(_)) => 2,
            Some(Source::Flag(_)) => 3,
        }
    }

    fn refuse(&mut self, name: &'static str, expected: String) {
        if let (Some(key), Some(Text { text, source })) = (Key::named(name), self.texts.get(name)) {
            let origin = match source {
                Source::File(path) => format!("{name} in {}", path.display()),
                Source::Default => name.to_owned(),
                Source::Variable(_) | Source::Flag(_) => source.to_string(),
            };
            self.errors.add(ConfigError { origin, value: Some(format!("{:?}", key.shown(text))), expected });
        }
    }
}

fn sub_seconds(text: &str) -> Result<Duration, String> {
    value::duration(text, Unit::Seconds, Duration::from_millis(100)..=Duration::from_secs(3600))
}

fn log_filter(text: &str) -> Result<String, String> {
    // A word that is no level would be a module's name, and let nothing else through.
    let is_word =
        |part: &str| !part.contains(['=', ':', '[']) && part.parse::<tracing::level_filters::LevelFilter>().is_err();
    // A blank beside a comma would belong to the name.
    let parts: Vec<_> = text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    let filter = parts.join(",");
    match filter.parse::<tracing_subscriber::EnvFilter>() {
        Ok(_) if !parts.iter().any(|part| is_word(part)) => Ok(filter),
        _ => Err("a level such as `info`, or levels by module such as `warn,punctual=debug`".into()),
    }
}

fn plugin(text: &str, known: &[&str]) -> Result<String, String> {
    if known.contains(&text) {
        Ok(text.to_owned())
    } else {
        Err(format!("names of linked plugins, and {text:?} is none; there are: {}", known.join(", ")))
    }
}

#[cfg(test)]
#[path = "config/tests.rs"]
mod tests;
