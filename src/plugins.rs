//! The linked plugins: ours, one line each, and those a binary of somebody's own adds with [`main_with`](crate::main_with).
//! A plugin is off until the configuration names it; `echo` is always on.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use punctual_domain::store::{MigrationError, Plugins as StoredPlugins};
use punctual_domain::topic::{TopicError, TopicPattern};
use punctual_sdk::Plugin;

const ALWAYS_ON: [&str; 1] = ["echo"];

fn ours() -> Vec<Box<dyn Plugin>> {
    vec![
        Box::new(punctual_echo::Echo),
        Box::new(punctual_signup::Signup),
        Box::new(punctual_operations::Operations),
        Box::new(punctual_clearpath::Clearpath::default()),
    ]
}

/// All plugins that are part of this binary.
#[derive(Clone)]
pub struct Plugins(Vec<Arc<dyn Plugin>>);

impl Plugins {
    /// Those of Punctual, and `own`.
    ///
    /// # Errors
    /// When two have the same name: the configuration could not tell them apart.
    pub fn with(own: Vec<Box<dyn Plugin>>) -> Result<Self, BadPlugin> {
        Self::of(ours().into_iter().chain(own).map(Arc::from).collect())
    }

    /// These, and one more.
    ///
    /// # Errors
    /// When another has its name.
    pub(crate) fn and(&self, one: impl Plugin + 'static) -> Result<Self, BadPlugin> {
        let one: Arc<dyn Plugin> = Arc::new(one);
        Self::of(self.0.iter().cloned().chain([one]).collect())
    }

    fn of(plugins: Vec<Arc<dyn Plugin>>) -> Result<Self, BadPlugin> {
        let mut names = BTreeSet::new();
        match plugins.iter().find(|plugin| !names.insert(plugin.name())) {
            Some(second) => Err(BadPlugin::SameName(second.name())),
            None => Ok(Self(plugins)),
        }
    }

    /// Their names.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.0.iter().map(|plugin| plugin.name()).collect()
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[Arc<dyn Plugin>] {
        &self.0
    }

    /// Those that are on: those named, and those that always are.
    pub(crate) fn enabled(&self, named: &[String]) -> Vec<Arc<dyn Plugin>> {
        let is_on = |name: &str| ALWAYS_ON.contains(&name) || named.iter().any(|named| named == name);
        self.0.iter().filter(|plugin| is_on(plugin.name())).cloned().collect()
    }
}

/// Those of Punctual.
impl Default for Plugins {
    fn default() -> Self {
        Self(ours().into_iter().map(Arc::from).collect())
    }
}

impl fmt::Debug for Plugins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

/// The topics that the plugins have handlers for.
pub(crate) fn topics(plugins: &[Arc<dyn Plugin>]) -> BTreeSet<&'static str> {
    plugins.iter().flat_map(|plugin| plugin.handlers()).map(|(topic, _)| topic).collect()
}

/// A plugin that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadPlugin {
    /// It has a handler or a listener for what cannot be a topic.
    #[error("the plugin {plugin} cannot be used: {error}")]
    Topic {
        /// Its name.
        plugin: &'static str,
        /// Why.
        error: TopicError,
    },
    /// A template of its cannot be used.
    #[error("the plugin {plugin} cannot be used: {error}")]
    Template {
        /// Its name.
        plugin: &'static str,
        /// Why.
        error: String,
    },
    /// A route of its cannot be served.
    #[error("the plugin {plugin} cannot be used: {error}")]
    Route {
        /// Its name.
        plugin: &'static str,
        /// Why.
        error: String,
    },
    /// Another one has its name.
    #[error("two plugins have the name {0}")]
    SameName(&'static str),
}

/// The same, as names of definitions.
///
/// # Errors
/// When a plugin has a handler or a listener for what cannot be a topic.
pub(crate) fn patterns(plugins: &[Arc<dyn Plugin>]) -> Result<BTreeSet<TopicPattern>, BadPlugin> {
    let pattern_of =
        |plugin: &'static str, topic: &str| topic.parse().map_err(|error| BadPlugin::Topic { plugin, error });
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
pub(crate) async fn migrate<S: StoredPlugins + ?Sized>(
    store: &S,
    plugins: &[Arc<dyn Plugin>],
) -> Result<(), MigrationError> {
    for plugin in plugins {
        store.migrate_plugin(plugin.name(), &plugin.migrations()).await?;
    }
    Ok(())
}

/// The plugins' migrations that were not applied yet, as `plugin/migration`.
///
/// # Errors
/// When one was applied in another form.
pub(crate) async fn missing_migrations<S: StoredPlugins + ?Sized>(
    store: &S,
    plugins: &[Arc<dyn Plugin>],
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
        let refused = patterns(&[Arc::new(Deaf)]).unwrap_err().to_string();
        assert!(refused.starts_with(r#"the plugin deaf cannot be used: "some.*.where" is not a topic"#), "{refused}");
    }

    /// A plugin with this name and this topic.
    struct Own(&'static str, &'static str);

    impl Plugin for Own {
        fn name(&self) -> &'static str {
            self.0
        }

        fn handlers(&self) -> Vec<(&'static str, Box<dyn punctual_sdk::Handler>)> {
            punctual_echo::Echo.handlers().into_iter().map(|(_, handler)| (self.1, handler)).collect()
        }
    }

    fn with(name: &'static str, topic: &'static str) -> Result<Plugins, BadPlugin> {
        Plugins::with(vec![Box::new(Own(name, topic))])
    }

    #[test]
    fn what_cannot_be_a_topic_is_refused_with_its_plugin() {
        let plugins = with("broken", "two words").unwrap().enabled(&["broken".to_owned()]);
        let refused = patterns(&plugins).unwrap_err().to_string();
        assert!(refused.starts_with(r#"the plugin broken cannot be used: "two words" is not a topic"#), "{refused}");
    }

    #[test]
    fn every_plugin_of_ours_can_be_used() {
        let ours = Plugins::default().0;
        assert_eq!(patterns(&ours).unwrap().len(), topics(&ours).len());
    }

    #[test]
    fn echo_is_on_without_being_named_and_all_others_only_when_named() {
        let plugins = with("own", "own.topic").unwrap();
        assert_eq!(topics(&plugins.enabled(&[])), BTreeSet::from(["echo"]));
        assert_eq!(topics(&plugins.enabled(&["own".to_owned()])), BTreeSet::from(["echo", "own.topic"]));
    }

    #[test]
    fn two_plugins_of_one_name_are_refused() {
        assert_eq!(with("echo", "own.topic").unwrap_err().to_string(), "two plugins have the name echo");
    }
}
