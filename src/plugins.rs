//! The linked plugins, one line each. A plugin is off until the configuration names it; `echo` is always on.

use std::collections::BTreeSet;

use punctual_domain::store::{MigrationError, Plugins};
use punctual_domain::topic::{TopicError, TopicPattern};
use punctual_sdk::Plugin;

const ALWAYS_ON: [&str; 1] = ["echo"];

fn linked() -> Vec<Box<dyn Plugin>> {
    vec![Box::new(punctual_echo::Echo)]
}

/// The names of all linked plugins.
pub(crate) fn names() -> Vec<&'static str> {
    linked().iter().map(|plugin| plugin.name()).collect()
}

/// The plugins that are on: those named, and those that always are.
pub(crate) fn enabled(named: &[String]) -> Vec<Box<dyn Plugin>> {
    let mut plugins = linked();
    plugins.retain(|plugin| ALWAYS_ON.contains(&plugin.name()) || named.iter().any(|name| name == plugin.name()));
    plugins
}

/// The topics that the plugins have handlers for.
pub(crate) fn topics(plugins: &[Box<dyn Plugin>]) -> BTreeSet<&'static str> {
    plugins.iter().flat_map(|plugin| plugin.handlers()).map(|(topic, _)| topic).collect()
}

/// A plugin that has a handler or a listener for what cannot be a topic.
#[derive(Debug, thiserror::Error)]
#[error("the plugin {plugin} cannot be used: {error}")]
pub struct BadPlugin {
    /// Its name.
    plugin: &'static str,
    /// Why.
    error: TopicError,
}

/// The same, as names of definitions.
///
/// # Errors
/// When a plugin has a handler or a listener for what cannot be a topic.
pub(crate) fn patterns(plugins: &[Box<dyn Plugin>]) -> Result<BTreeSet<TopicPattern>, BadPlugin> {
    let pattern_of = |plugin: &'static str, topic: &str| topic.parse().map_err(|error| BadPlugin { plugin, error });
    for plugin in plugins {
        for (topics, _) in plugin.listeners() {
            if topics != EVERY_TOPIC {
                pattern_of(plugin.name(), topics)?;
            }
        }
    }
    plugins
        .iter()
        .flat_map(|plugin| plugin.handlers().into_iter().map(|(topic, _)| pattern_of(plugin.name(), topic)))
        .collect()
}

/// What a listener says that wants to hear of all topics.
const EVERY_TOPIC: &str = "*";

/// Applies the plugins' migrations.
///
/// # Errors
/// When one cannot be applied.
pub(crate) async fn migrate<S: Plugins + ?Sized>(store: &S, plugins: &[Box<dyn Plugin>]) -> Result<(), MigrationError> {
    for plugin in plugins {
        store.migrate_plugin(plugin.name(), &plugin.migrations()).await?;
    }
    Ok(())
}

/// The plugins' migrations that were not applied yet, as `plugin/migration`.
///
/// # Errors
/// When one was applied in another form.
pub(crate) async fn missing_migrations<S: Plugins + ?Sized>(
    store: &S,
    plugins: &[Box<dyn Plugin>],
) -> Result<Vec<String>, MigrationError> {
    let mut missing = Vec::new();
    for plugin in plugins {
        let names = store.missing_migrations(plugin.name(), &plugin.migrations()).await?;
        missing.extend(names.into_iter().map(|name| format!("{}/{name}", plugin.name())));
    }
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Deaf;

    impl Plugin for Deaf {
        fn name(&self) -> &'static str {
            "deaf"
        }

        fn handlers(&self) -> Vec<(&'static str, Box<dyn punctual_sdk::Handler>)> {
            Vec::new()
        }

        fn listeners(&self) -> Vec<(&'static str, Box<dyn punctual_sdk::Listener>)> {
            let nothing = |_: punctual_sdk::Arrival| async { Ok(()) };
            ["*", "some.*", "some.*.where"].map(|topics| (topics, Box::new(nothing) as _)).into()
        }
    }

    #[test]
    fn what_cannot_be_listened_to_is_refused_with_its_plugin() {
        let refused = patterns(&[Box::new(Deaf)]).unwrap_err().to_string();
        assert!(refused.starts_with(r#"the plugin deaf cannot be used: "some.*.where" is not a topic"#), "{refused}");
    }

    struct Broken;

    impl Plugin for Broken {
        fn name(&self) -> &'static str {
            "broken"
        }

        fn handlers(&self) -> Vec<(&'static str, Box<dyn punctual_sdk::Handler>)> {
            punctual_echo::Echo.handlers().into_iter().map(|(_, handler)| ("two words", handler)).collect()
        }
    }

    #[test]
    fn what_cannot_be_a_topic_is_refused_with_its_plugin() {
        let refused = patterns(&[Box::new(punctual_echo::Echo), Box::new(Broken)]).unwrap_err().to_string();
        assert!(refused.starts_with(r#"the plugin broken cannot be used: "two words" is not a topic"#), "{refused}");
    }

    #[test]
    fn every_linked_plugin_can_be_used() {
        assert_eq!(patterns(&linked()).unwrap().len(), topics(&linked()).len());
    }

    #[test]
    fn echo_is_on_without_being_named() {
        assert_eq!(topics(&enabled(&[])), BTreeSet::from(["echo"]));
    }
}
