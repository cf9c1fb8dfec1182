//! SQLite: one node, nothing to install.
