FUZZTIME ?= 5m

.PHONY: fuzz
fuzz: ## fuzz each target for FUZZTIME (default 5m)
	@scripts/fuzz.sh $(FUZZTIME)

.PHONY: bench-api
bench-api: ## measure the API's speed and its memory under uploads; writes its section of docs/benchmarks.md
	$(GO) run ./internal/dbtest/withpg $(GO) run ./test/bench-api $(BENCH_FLAGS)

# Jobs of the year; ten million take 20 GB of disk while they are made, and minutes.
BENCH_ADMIN_JOBS ?= 10000000

.PHONY: bench-admin
bench-admin: ## reports, submits, polls and claims on a database with a year of jobs; writes its section of docs/benchmarks.md
	$(GO) run ./test/bench-api -year $(BENCH_ADMIN_JOBS)
