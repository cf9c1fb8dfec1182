-- Records that a plugin's migration was applied.
INSERT INTO punctual_plugin_migrations (plugin, number, name, checksum, applied_at) VALUES ($1, $2, $3, $4, $5)
