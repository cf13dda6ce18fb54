# Separations: the long run against crashes, the fault matrix and the speed of the queue.

SOAK_KILLS ?= 200
BENCH_QUEUE ?= 5s

.PHONY: soak
soak: build ## separations against SOAK_KILLS crashes on two replicas, then a while on SQLite
	CUTROOM_BIN=$(CURDIR)/bin/cutroom CUTROOM_TEST_DB=postgres CUTROOM_SOAK_KILLS=$(SOAK_KILLS) \
		$(GO) test ./test/soak -count=1 -v -timeout 90m
	CUTROOM_BIN=$(CURDIR)/bin/cutroom CUTROOM_TEST_DB=postgres CUTROOM_TEST_BUCKET=1 CUTROOM_SOAK_SECONDS=120 \
		$(GO) test ./test/soak -count=1 -v -timeout 30m
	CUTROOM_BIN=$(CURDIR)/bin/cutroom CUTROOM_TEST_DB=sqlite CUTROOM_SOAK_SECONDS=120 \
		$(GO) test ./test/soak -count=1 -v -timeout 30m

.PHONY: fault-matrix
fault-matrix: build ## fail every step of the provider in every way and write docs/separation.md's tables
	CUTROOM_BIN=$(CURDIR)/bin/cutroom $(GO) test ./test/matrix -count=1 -timeout 40m -update

.PHONY: bench-queue
bench-queue: ## claims per second on both databases; writes its section of docs/benchmarks.md
	$(GO) test ./internal/separation -run TestBenchmarkQueue -count=1 -timeout 30m -bench-queue $(BENCH_QUEUE) -v
