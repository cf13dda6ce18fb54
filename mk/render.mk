# Runs of each measurement; the best counts.
BENCH_RENDER_RUNS ?= 3

.PHONY: bench-render
bench-render: ## the render engine beside one single-graph ffmpeg command; writes its section of docs/benchmarks.md
	$(GO) run ./test/bench-render -runs $(BENCH_RENDER_RUNS)

# Length of a simulated film: figures shorter than a second are mostly overhead.
BENCH_SCALE ?= 1s
# One table alone, which writes to no page: BENCH_SCALE_FLAGS="-bench-scale-only film".
BENCH_SCALE_FLAGS ?=

.PHONY: bench-scale
bench-scale: build ## rendering on 1 to 64 workers, long queues and two replicas; writes its section of docs/benchmarks.md
	CUTROOM_BIN=$(CURDIR)/bin/cutroom CUTROOM_TEST_DB=postgres scripts/s3.sh run $(GO) run ./internal/dbtest/withpg \
		$(GO) test ./internal/render -run TestBenchmarkScale -count=1 -timeout 20m -bench-scale $(BENCH_SCALE) $(BENCH_SCALE_FLAGS) -v
