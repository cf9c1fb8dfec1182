//! The linked plugins, one line each. A plugin is off until the configuration names it; `echo` is always on.

use std::collections::BTreeSet;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn echo_is_on_without_being_named() {
        assert_eq!(topics(&enabled(&[])), BTreeSet::from(["echo"]));
    }
}
