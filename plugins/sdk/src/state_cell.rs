use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Error;
use crate::engine::Engine;

/// One value that a plugin remembers from attempt to attempt, on whichever node: when it last ran, how far it came.
///
/// All attempts and nodes see the same cell. [`update`](Self::update) is safe where several write at a time.
pub struct StateCell<T> {
    name: String,
    engine: Arc<dyn Engine>,
    holds: PhantomData<fn() -> T>,
}

/// Why a state cell could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StateCellError {
    /// What is stored does not have the shape asked for, or the new value cannot be written as JSON.
    #[error("the state cell {name}: {error}")]
    Shape {
        /// The cell.
        name: String,
        /// What is wrong.
        error: serde_json::Error,
    },
    /// The database did not do it.
    #[error(transparent)]
    Unavailable(Error),
}

impl<T> StateCell<T> {
    pub(crate) fn new(name: String, engine: Arc<dyn Engine>) -> Self {
        Self { name, engine, holds: PhantomData }
    }

    fn misshapen(&self, error: serde_json::Error) -> StateCellError {
        StateCellError::Shape { name: self.name.clone(), error }
    }
}

impl<T: Serialize + DeserializeOwned> StateCell<T> {
    /// The value, if one was ever set.
    ///
    /// # Errors
    /// When the database is away, or holds something that is not a `T`.
    pub async fn get(&self) -> Result<Option<T>, StateCellError> {
        Ok(self.read().await?.0)
    }

    /// Sets the value, whatever it was.
    ///
    /// # Errors
    /// When the database is away.
    pub async fn set(&self, value: &T) -> Result<(), StateCellError> {
        let text = serde_json::to_string(value).map_err(|error| self.misshapen(error))?;
        loop {
            let stored = self.engine.read_cell(&self.name).await.map_err(StateCellError::Unavailable)?;
            if self.write(text.clone(), stored.map_or(0, |(_, version)| version)).await? {
                return Ok(());
            }
        }
    }

    /// Makes the new value out of the old one, and answers it. Should somebody else write in between, `change` is asked
    /// again with what they wrote: it must do nothing but compute.
    ///
    /// # Errors
    /// When the database is away, or holds something that is not a `T`.
    pub async fn update(&self, change: impl Fn(Option<T>) -> T + Send + Sync) -> Result<T, StateCellError> {
        loop {
            let (stored, version) = self.read().await?;
            let value = change(stored);
            let text = serde_json::to_string(&value).map_err(|error| self.misshapen(error))?;
            if self.write(text, version).await? {
                return Ok(value);
            }
        }
    }

    async fn read(&self) -> Result<(Option<T>, u64), StateCellError> {
        match self.engine.read_cell(&self.name).await.map_err(StateCellError::Unavailable)? {
            Some((text, version)) => {
                let value = serde_json::from_str(&text).map_err(|error| self.misshapen(error))?;
                Ok((Some(value), version))
            }
            None => Ok((None, 0)),
        }
    }

    async fn write(&self, text: String, version: u64) -> Result<bool, StateCellError> {
        self.engine.write_cell(&self.name, text, version).await.map_err(StateCellError::Unavailable)
    }
}

impl<T> fmt::Debug for StateCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StateCell({})", self.name)
    }
}
