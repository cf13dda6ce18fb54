# Runs of each measurement; the best counts.
BENCH_RENDER_RUNS ?= 3

.PHONY: bench-render
bench-render: ## the render engine beside one single-graph ffmpeg command; writes docs/benchmarks.md
	$(GO) run ./test/bench-render -runs $(BENCH_RENDER_RUNS)
