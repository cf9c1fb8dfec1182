//! A store on a fresh database, and the clock it goes by.

use std::ops::Deref;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use punctual_domain::clock::{Clock, FakeClock};
use punctual_domain::id::NodeId;
use punctual_domain::schedule::{Definition, Rhythm, Schedule};
use punctual_domain::task::NewTask;
use punctual_store::{ConnectError, Options, connect};
use sqlx::Connection;

use super::node::ZONES;
use super::{Database, NodeStore, topic};

/// A store on a fresh database, as one node has it, and the clock it goes by.
pub(crate) struct World {
    node: NodeStore,
    /// The clock of every store that this world opened, unless it was reopened on the database's own.
    pub(crate) clock: FakeClock,
    /// Where the data is.
    pub(crate) database: Database,
}

impl Deref for World {
    type Target = NodeStore;

    fn deref(&self) -> &NodeStore {
        &self.node
    }
}

impl World {
    pub(super) async fn open(
        database: Database,
        store_clock: Option<FakeClock>,
        clock: FakeClock,
    ) -> Result<Self, ConnectError> {
        let store = connect(&database.url(), options(store_clock)).await?;
        Ok(Self { node: NodeStore { id: NodeId::generate(), store }, clock, database })
    }

    /// What the clock shows.
    pub(crate) fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    /// Moves the clock.
    pub(crate) fn advance(&self, by: TimeDelta) {
        self.clock.advance(by);
    }

    /// Moves the clock by whole seconds.
    pub(crate) fn advance_secs(&self, seconds: i64) {
        self.advance(TimeDelta::seconds(seconds));
    }

    /// The instant so many seconds from now.
    pub(crate) fn in_secs(&self, seconds: i64) -> DateTime<Utc> {
        self.now() + TimeDelta::seconds(seconds)
    }

    /// Another node: on PostgreSQL with connections of its own, on SQLite, which serves one process, with the same store.
    pub(crate) async fn another_node(&self) -> NodeStore {
        let store = match &self.database {
            Database::Sqlite { .. } => self.store.clone(),
            Database::Postgres { .. } | Database::Pooled { .. } => {
                let options = Options { connections: 3, ..options(Some(self.clock.clone())) };
                connect(&self.database.url(), options).await.expect("another store")
            }
        };
        NodeStore { id: NodeId::generate(), store }
    }

    /// Eight nodes, this one not among them.
    pub(crate) async fn eight_nodes(&self) -> Vec<NodeStore> {
        let mut nodes = Vec::new();
        for _ in 0..8 {
            nodes.push(self.another_node().await);
        }
        nodes
    }

    /// Drops the store and connects again: a restart, and another node.
    pub(crate) async fn reopen(self) -> Self {
        let Self { node, clock, database } = self;
        drop(node);
        Self::open(database, Some(clock.clone()), clock).await.expect("the store opens again")
    }

    /// Drops the store and connects again without a clock that takes the place of the database's own.
    pub(crate) async fn reopen_on_the_databases_clock(self) -> Self {
        let Self { node, clock, database } = self;
        drop(node);
        Self::open(database, None, clock).await.expect("the store opens again")
    }

    /// Drops the store, and leaves the database.
    pub(crate) fn close(self) -> Database {
        self.database
    }

    /// Writes tasks in a transaction of the caller's own, and ends it.
    pub(crate) async fn insert_in_own_transaction(&self, tasks: Vec<NewTask>, end: End) {
        match &self.database {
            Database::Sqlite { .. } => {
                let mut connection = self.database.sqlite_connection().await;
                let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.unwrap();
                punctual_store::sqlite::insert_tasks(&mut transaction, tasks, self.now()).await.unwrap();
                match end {
                    End::Commit => transaction.commit().await.unwrap(),
                    End::RollBack => transaction.rollback().await.unwrap(),
                }
            }
            Database::Postgres { .. } | Database::Pooled { .. } => {
                let mut connection = self.database.postgres_connection().await;
                let mut transaction = connection.begin().await.unwrap();
                punctual_store::postgres::insert_tasks(&mut transaction, tasks, Some(self.now())).await.unwrap();
                match end {
                    End::Commit => transaction.commit().await.unwrap(),
                    End::RollBack => transaction.rollback().await.unwrap(),
                }
            }
        }
    }

    /// A schedule that fires every minute from now on, written.
    pub(crate) async fn every_minute(&self, name: &str) -> Schedule {
        let schedule = self.unwritten(name);
        self.create_schedule(&schedule).await.unwrap();
        schedule
    }

    /// A schedule that fires every minute from now on, not written yet.
    pub(crate) fn unwritten(&self, name: &str) -> Schedule {
        let definition = Definition::new(name, Rhythm::Every(60_000), "UTC", &topic("report"));
        Schedule::new(definition, self.now(), &ZONES).unwrap()
    }
}

/// How a caller's own transaction ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Commit,
    RollBack,
}

/// Options for a test's store: a clock of its own, and few connections, for many tests run side by side.
pub(crate) fn options(clock: Option<FakeClock>) -> Options {
    Options { clock: clock.map(|clock| Arc::new(clock) as Arc<dyn Clock>), connections: 4, ..Options::default() }
}
