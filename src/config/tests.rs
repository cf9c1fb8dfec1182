use std::path::Path;

use super::*;

fn environment(variables: &[(&str, &str)]) -> Sources {
    let environment = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Sources { environment, ..Sources::default() }
}

fn with_file(content: &str) -> (tempfile::TempDir, Sources) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.toml");
    std::fs::write(&path, content).unwrap();
    (folder, Sources { file: Some(path), ..Sources::default() })
}

fn setting(loaded: &Loaded, name: &str) -> (Option<String>, Source) {
    let setting = loaded.settings.iter().find(|setting| setting.name == name).unwrap();
    (setting.value.clone(), setting.source.clone())
}

fn errors(sources: &Sources) -> Vec<String> {
    Config::load(sources).unwrap_err().0.iter().map(ToString::to_string).collect()
}

#[test]
fn nothing_said_is_the_table_of_defaults() {
    let Loaded { config, warnings, .. } = Config::load(&Sources::default()).unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:7878");
    assert_eq!(config.database_url.expose(), "sqlite://punctual.db");
    assert_eq!(config.poll_interval, Duration::from_secs(900));
    assert_eq!((config.lease, config.heartbeat), (Duration::from_secs(30), Duration::from_secs(10)));
    assert_eq!((config.leader_lease, config.leader_heartbeat), (Duration::from_secs(15), Duration::from_secs(5)));
    assert_eq!(config.notify.transport, "log");
    assert!(config.redis_url.is_none() && config.plugins.is_empty() && warnings.is_empty());
}

#[test]
fn flags_win_over_the_environment_over_the_file_over_defaults() {
    let (_folder, mut sources) = with_file("lease_seconds = 60\nlisten = \"127.0.0.1:1\"\nrate_limit = 5");
    sources.environment = environment(&[("PUNCTUAL_LISTEN", "127.0.0.1:2"), ("PUNCTUAL_RATE_LIMIT", "6")]).environment;
    sources.flags.push(("listen", "--listen", "127.0.0.1:3".into()));
    let loaded = Config::load(&sources).unwrap();
    assert_eq!(setting(&loaded, "listen"), (Some("127.0.0.1:3".into()), Source::Flag("--listen")));
    assert_eq!(setting(&loaded, "rate_limit").1, Source::Variable("PUNCTUAL_RATE_LIMIT".into()));
    assert_eq!(setting(&loaded, "lease_seconds").1, Source::File(sources.file.unwrap()));
    assert_eq!(setting(&loaded, "drain_seconds").1, Source::Default);
    assert_eq!(setting(&loaded, "heartbeat_seconds").0.unwrap(), "20s", "a third of the lease");
}

#[test]
fn all_errors_come_at_once_with_where_they_came_from() {
    let (_folder, mut sources) = with_file("lease_seconds = \"1 fortnight\"\nbogus = 1\n[redis]\nuri = \"x\"");
    sources.environment = environment(&[("PUNCTUAL_LISTEN", "nonsense"), ("POLL_INTERVAL_MS", "-1")]).environment;
    sources.flags.push(("database.url", "--database", "mysql://me:swordfish@db/x".into()));
    let errors = errors(&sources);
    let all = errors.join("\n");
    assert_eq!(errors.len(), 6, "{all}");
    for expected in [
        "PUNCTUAL_LISTEN is \"nonsense\", expected an address and port",
        "POLL_INTERVAL_MS is \"-1\", expected milliseconds",
        "lease_seconds in ",
        "bogus in ",
        "redis.uri in ",
        "--database is \"mysql://me:***@db/x\", expected a URL that begins with sqlite://",
    ] {
        assert!(all.contains(expected), "{expected}\n{all}");
    }
    assert!(!all.contains("swordfish"));
}

#[test]
fn a_named_file_must_be_there_and_be_toml() {
    let sources = Sources { file: Some("/nowhere/punctual.toml".into()), ..Sources::default() };
    assert!(errors(&sources)[0].contains("/nowhere/punctual.toml cannot be read"));
    let (_folder, sources) = with_file("listen = ");
    assert!(errors(&sources)[0].contains("is not TOML"));
    // The line itself may hold a password.
    let (_folder, sources) = with_file("[database]\nurl = \"postgres://me:swordfish@db/x\" junk");
    let error = &errors(&sources)[0];
    assert!(error.contains("(line 2, column 38)") && !error.contains("swordfish"), "{error}");
}

#[test]
fn what_is_almost_a_key_and_what_is_no_table_is_named() {
    let (_folder, sources) = with_file("lisen = \"x\"\nunheard_of = 1\n[redis]\nuri = \"x\"\n[topics]\nx = 1\n");
    let errors = errors(&sources);
    for part in ["did you mean listen?", "did you mean redis.url?", "topics.\"x\" in ", "is a number, expected a table"]
    {
        assert!(errors.iter().any(|error| error.contains(part)), "{part}: {errors:?}");
    }
    assert!(
        errors.iter().any(|error| error.starts_with("unheard_of") && error.ends_with("is not a key")),
        "{errors:?}"
    );
}

#[test]
fn heartbeats_are_shorter_than_leases() {
    let sources = environment(&[("PUNCTUAL_HEARTBEAT_SECONDS", "30"), ("PUNCTUAL_LEADER_LEASE_SECONDS", "2")]);
    let errors = errors(&sources);
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(errors[0].starts_with("PUNCTUAL_HEARTBEAT_SECONDS is \"30\""), "{errors:?}");
    assert!(errors[1].starts_with("PUNCTUAL_LEADER_LEASE_SECONDS is \"2\""), "{errors:?}");
}

#[test]
fn unknown_variables_of_ours_are_a_warning_and_empty_ones_are_not_set() {
    let sources = environment(&[("PUNCTUAL_LISTN", "x"), ("PUNCTUAL_URL", "http://x"), ("REDIS_URL", "")]);
    let loaded = Config::load(&sources).unwrap();
    assert_eq!(loaded.warnings.len(), 1);
    assert!(loaded.warnings[0].contains("PUNCTUAL_LISTN"));
    assert!(loaded.warnings[0].ends_with("; did you mean PUNCTUAL_LISTEN?"), "{:?}", loaded.warnings);
    assert!(loaded.config.redis_url.is_none());
}

#[test]
fn every_key_can_be_set_by_its_general_name_too() {
    let sources = environment(&[("DATABASE_URL", "sqlite://a.db"), ("PUNCTUAL_DATABASE_URL", "sqlite://b.db")]);
    assert_eq!(Config::load(&sources).unwrap().config.database_url.expose(), "sqlite://b.db");
}

#[test]
fn a_word_that_is_no_level_is_not_taken_for_a_module() {
    for wrong in ["nonsense", "inof", "warn,punctuall", "info,foo=bar=baz"] {
        let errors = errors(&environment(&[("PUNCTUAL_LOG", wrong)]));
        assert!(errors.len() == 1 && errors[0].contains("a level such as `info`"), "{wrong}: {errors:?}");
    }
    for (right, meant) in [
        ("info", "info"),
        ("WARN", "WARN"),
        ("off ", "off"),
        ("warn, punctual=debug", "warn,punctual=debug"),
        ("punctual_store::sqlite=trace, error,", "punctual_store::sqlite=trace,error"),
    ] {
        assert_eq!(Config::load(&environment(&[("PUNCTUAL_LOG", right)])).unwrap().config.log, meant);
    }
}

#[test]
fn an_unknown_plugin_is_refused_with_the_known_ones() {
    let errors = errors(&environment(&[("PUNCTUAL_PLUGINS", "echo,mystery")]));
    assert!(errors[0].contains("\"mystery\" is none") && errors[0].contains("there are: echo"), "{errors:?}");
}

#[test]
fn a_transport_needs_what_it_sends_with() {
    let errors = errors(&environment(&[("NOTIFY_TRANSPORT", "smtp")]));
    assert!(errors[0].contains("SMTP_URL to be set"), "{errors:?}");
    let hook = ("NOTIFY_WEBHOOK_URL", "https://example.com/swordfish");
    for (set, expected) in [
        (vec![("NOTIFY_TRANSPORT", "webhook")], "NOTIFY_WEBHOOK_URL to be set"),
        (vec![hook], "NOTIFY_WEBHOOK_SECRETS to be set"),
        (vec![("ADMIN_ALERT_WEBHOOK_URL", hook.1)], "NOTIFY_WEBHOOK_SECRETS to be set"),
        (vec![hook, ("NOTIFY_WEBHOOK_SECRETS", "short")], "at least 8 characters"),
        (vec![hook, ("NOTIFY_WEBHOOK_SECRETS", "swordfish1,swordfish2,swordfish3")], "one or two secrets"),
        (vec![("NOTIFY_WEBHOOK_URL", "http://10.0.0.1/"), ("NOTIFY_WEBHOOK_SECRETS", "swordfish")], "webhook.allow"),
    ] {
        let errors = self::errors(&environment(&set));
        assert!(errors[0].contains(expected) && !errors[0].contains("swordfish"), "{errors:?}");
    }
    let loaded = Config::load(&environment(&[("SMTP_URL", "smtp://me:swordfish@mail")])).unwrap();
    assert_eq!(loaded.config.notify.transport, "smtp");
    assert!(!format!("{loaded:?}").contains("swordfish"));
}

#[test]
fn secrets_are_hidden_wherever_a_configuration_is_printed() {
    let sources = environment(&[
        ("DATABASE_URL", "postgres://me:swordfish@db/app"),
        ("REDIS_URL", "redis://:swordfish@cache"),
        ("SMTP_URL", "smtp://me:swordfish@mail"),
        ("RESEND_API_KEY", "swordfish"),
        ("LAB_API_KEY", "swordfish"),
    ]);
    let loaded = Config::load(&sources).unwrap();
    assert!(!format!("{loaded:?}").contains("swordfish"), "{loaded:?}");
    assert_eq!(setting(&loaded, "database.url").0.unwrap(), "postgres://me:***@db/app");
    assert_eq!(setting(&loaded, "notify.resend_api_key").0.unwrap(), "***");
}

#[test]
fn a_secret_that_is_not_set_is_not_shown_as_if_it_were() {
    let loaded = Config::load(&Sources::default()).unwrap();
    for Setting { name, value, .. } in &loaded.settings {
        assert!(value.as_ref().is_none_or(|value| !value.contains("***")), "{name}: {value:?}");
    }
}

#[test]
fn the_shipped_file_is_valid_and_changes_nothing() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(DEFAULT_FILE);
    let shipped = Config::load(&Sources { file: Some(path), ..Sources::default() }).unwrap();
    let plain = Config::load(&Sources::default()).unwrap();
    assert_eq!(format!("{:?}", shipped.config), format!("{:?}", plain.config));
}

#[test]
fn topics_are_declared_as_the_api_takes_them() {
    let (_folder, sources) = with_file(
        "[topics.\"mail.*\"]\nroute = { type = \"pull\" }\nconcurrency = 7\nrate_per_second = 2.5\n\
         retry = { attempts = 3, backoff = { max_delay = 60000 } }\npaused = true\n[topics.other]\n",
    );
    let topics = Config::load(&sources).unwrap().config.topics;
    assert_eq!(topics.len(), 2);
    let mail = &topics[0].definition;
    assert_eq!((mail.name.as_str(), mail.concurrency, mail.rate_per_second), ("mail.*", 7, Some(2.5)));
    assert!(mail.paused && topics[0].says_paused && topics[0].says_route && !topics[1].says_route);
    assert_eq!(mail.retry.unwrap().backoff.max_delay, 60_000);

    let (_folder, sources) = with_file(
        "[topics.\"a b\"]\nconcurrency = 0\n[topics.hook.route]\ntype = \"webhook\"\nurl = \"http://10.0.0.1\"\n\
         secrets = [\"swordfish\"]\n",
    );
    let all = errors(&sources).join("\n");
    for expected in ["topics.\"a b\".name in ", "topics.\"a b\".concurrency in ", "topics.\"hook\".route.url in "] {
        assert!(all.contains(expected), "{expected}\n{all}");
    }
    assert!(!all.contains("swordfish"), "{all}");
}
