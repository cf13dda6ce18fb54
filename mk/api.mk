FUZZTIME ?= 5m

.PHONY: fuzz
fuzz: ## fuzz each target for FUZZTIME (default 5m)
	@scripts/fuzz.sh $(FUZZTIME)

.PHONY: bench-api
bench-api: ## measure the API's speed and its memory under uploads; writes its section of docs/benchmarks.md
	$(GO) run ./internal/dbtest/withpg $(GO) run ./test/bench-api $(BENCH_FLAGS)
