-- Notes that instants up to ?2 are those of a clock that was ahead.
INSERT OR REPLACE INTO punctual_facts (name, value) VALUES ('clock_was_ahead', ?2)
