# What a developer and CI run. Each target is one line; the work is in scripts/.

# Cargo would look for make's jobserver in these, and complain that it may not use it.
unexport MAKEFLAGS MFLAGS

.PHONY: help test soak fuzz-api bench fmt lint

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 10

test: ## Set everything up, then run what CI runs: format, clippy, tests on every backend, docs
	@exec scripts/with-servers scripts/test </dev/null

soak: ## Run the long tests as well; ends within an hour
	@exec scripts/with-servers scripts/soak </dev/null

fuzz-api: ## Call the API in every way that its description allows and forbids, on both databases
	@exec scripts/with-servers scripts/fuzz-api </dev/null

bench: ## Measure
	@exec scripts/with-servers cargo bench --workspace </dev/null

fmt: ## Format the code
	@cargo fmt --all

lint: ## Check format, clippy and docs; needs no servers
	@scripts/test format clippy docs
