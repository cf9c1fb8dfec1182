-- The migrations of a plugin that were applied, in order.
SELECT name, checksum FROM punctual_plugin_migrations WHERE plugin = $1 ORDER BY number
