use std::fmt;
use std::sync::Arc;

use crate::engine::{Engine, Overstay};
use crate::{Database, Error, Notifier, StateCell, Zone};

/// What a plugin may use of the node it runs on: the database, state cells of its own, and what sends messages.
#[derive(Clone, Default)]
pub struct Context {
    plugin: &'static str,
    engine: Option<Arc<dyn Engine>>,
    overstay: Overstay,
}

impl Context {
    pub(crate) fn new(plugin: &'static str, engine: Arc<dyn Engine>) -> Self {
        Self { plugin, engine: Some(engine), overstay: Overstay::default() }
    }

    pub(crate) fn watched(&self) -> (Self, Overstay) {
        let overstay = match &self.engine {
            Some(engine) if engine.database().is_sqlite() => Overstay::new(),
            _ => Overstay::default(),
        };
        (Self { overstay: overstay.clone(), ..self.clone() }, overstay)
    }

    /// The name of the plugin.
    pub fn plugin(&self) -> &'static str {
        self.plugin
    }

    /// The database Punctual itself uses, for tables of the plugin's own.
    ///
    /// # Panics
    /// Where there is none, as in [`Attempt::sample`](crate::Attempt::sample).
    pub fn database(&self) -> Database {
        self.engine().database().clone().used_by(self.engine().clone(), self.overstay.clone())
    }

    /// The plugin's state cell of that name; other plugins' cells of the same name are others.
    ///
    /// # Panics
    /// Where there is no database.
    pub fn state_cell<T>(&self, name: &str) -> StateCell<T> {
        StateCell::new(format!("{}/{name}", self.plugin), self.engine().clone())
    }

    /// What sends messages for the plugin.
    ///
    /// # Panics
    /// Where there is no database.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(self.plugin, self.engine().clone())
    }

    /// What the configuration says, by the name of its variable, such as `DASHBOARD_URL`; `None` if nothing.
    ///
    /// # Panics
    /// Where there is no engine.
    pub fn setting(&self, variable: &str) -> Option<String> {
        self.engine().setting(variable).map(str::to_owned)
    }

    /// The zone of that IANA name, with the rules that the service itself goes by.
    ///
    /// # Errors
    /// When there is none; the text suggests another.
    ///
    /// # Panics
    /// Where there is no engine.
    pub fn zone(&self, name: &str) -> Result<Zone, Error> {
        Ok(Zone(self.engine().zone(name)?))
    }

    pub(crate) fn engine(&self) -> &Arc<dyn Engine> {
        self.engine.as_ref().expect(
            "there is no database behind `Attempt::sample`: run the handler with punctual_testing::start instead",
        )
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("plugin", &self.plugin).finish_non_exhaustive()
    }
}
