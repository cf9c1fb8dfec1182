-- Removes what is known of rates that were not used for long: they are full again, as one that is not there is.
DELETE FROM punctual_pull_rates
WHERE rowid IN (SELECT rowid FROM punctual_pull_rates WHERE refilled_at < ?1 LIMIT ?2)
