//! PostgreSQL: many nodes, one truth.
