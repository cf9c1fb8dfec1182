-- Tells all nodes that tasks were written; inside a transaction, once it commits.
SELECT pg_notify('punctual_tasks', '')
