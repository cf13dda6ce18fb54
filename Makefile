# cutroom: `make help` lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help
GO ?= go
# The version is the tag of the commit: 1.2.3, or 1.2.3-4-gabcdef0 four commits later.
VERSION ?= $(patsubst v%,%,$(shell git describe --tags --always --dirty 2>/dev/null || echo unknown))
LDFLAGS := -s -w -X main.release=$(VERSION) -X main.commit=$(shell git rev-parse --short HEAD 2>/dev/null || echo unknown)
MEDIA := $(CUTROOM_MEDIA_DIR)

.PHONY: help
help: ## list the targets
	@grep -hsE '^[a-z0-9-]+:.*## ' Makefile | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

.PHONY: build
build: ## build both programs, static, into bin/
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

.PHONY: setup
setup: ## install what the service needs (ffmpeg, espeak-ng) from Debian's packages
	@scripts/setup.sh run

.PHONY: demo
demo: setup build ## run the main job end to end on generated media; results in demo-output/
	bin/sandbox demo

.PHONY: sandbox
sandbox: setup build ## run the whole system on this machine, without any account
	bin/sandbox

.PHONY: test
test: ## install what the tests need and run all but the long ones
	@scripts/setup.sh test
	scripts/test.sh

.PHONY: test-long
test-long: ## faults of the provider at every step, random crashes in every shape, a failover, 8 replicas; minutes
	@scripts/setup.sh test
	scripts/test.sh long
	@if command -v npm >/dev/null; then $(MAKE) clients; else echo "no npm: generated clients are not tested"; fi

.PHONY: test-s3
test-s3: ## all that stores objects, on MinIO, which takes minutes to build, once
	@scripts/setup.sh test
	scripts/test.sh s3

.PHONY: test-short
test-short: setup ## the unit tests alone, on SQLite
	$(GO) test -short ./cmd/... ./internal/...

.PHONY: admin-app
admin-app: ## rebuild the admin web app (needs Node; the result is committed)
	cd web && npm ci && npm run admin

.PHONY: player-app
player-app: ## rebuild the sandbox's studio, use it in Chromium and audit it (needs Node; the result is committed)
	cd web && npm ci && npm run player
	$(GO) test -count=1 ./internal/sandbox/player

.PHONY: clean
clean: ## remove what the targets above made
	rm -rf bin dist demo-output sandbox-data storage

# Checks.

# mk/lint.mod pins the versions of the linters and mk/lint.sum their sources, so that
# no checksum database is asked.
LINTERS := .tools/lint
# The database of known vulnerabilities; a mirror will do.
GOVULNDB ?= https://vuln.go.dev

$(LINTERS): mk/lint.mod mk/lint.sum
	$(GO) build -modfile=mk/lint.mod -o $@/ tool
	@touch $@

.PHONY: lint
lint: $(LINTERS) ## gofmt, go vet, staticcheck, deadcode, licences and known vulnerabilities; any finding fails
	@test -z "$$(gofmt -l cmd deploy internal test | tee -a /dev/stderr)"
	$(GO) vet ./...
	$(LINTERS)/staticcheck ./...
	@# Tests count as callers: a function that only tests call is test support.
	@test -z "$$($(LINTERS)/deadcode -test ./... | tee -a /dev/stderr)"
	scripts/licenses.sh
	@if curl -sfo /dev/null -m 10 $(GOVULNDB)/index/db.json; then $(LINTERS)/govulncheck -db $(GOVULNDB) ./...; \
		else echo "lint: $(GOVULNDB) cannot be reached: known vulnerabilities were not checked"; fi

# Needs Node; no other target does but admin-app.
.PHONY: lint-openapi
lint-openapi: ## check the API description with redocly and spectral (needs Node)
	REDOCLY_TELEMETRY=off npx --yes @redocly/cli@2.77.0 lint --config mk/redocly.yaml internal/httpapi/openapi.yaml
	npx --yes @stoplight/spectral-cli@6.16.3 lint --ruleset mk/spectral.yaml --fail-severity hint internal/httpapi/openapi.yaml

# The generators' versions are pinned in web/package-lock.json and test/clients/go/go.mod.
.PHONY: clients
clients: ## generate TypeScript and Go clients from the API description; each makes a film (needs Node)
	cd web && npm ci && npm run clients
	cd test/clients/go && $(GO) generate . && $(GO) vet . && $(GO) build -o film .
	CUTROOM_TEST_CLIENTS=1 $(GO) run ./test/rerun -count=1 -timeout 5m ./test/clients

FUZZTIME ?= 5m

.PHONY: fuzz
fuzz: ## fuzz each target for FUZZTIME (default 5m)
	@scripts/fuzz.sh $(FUZZTIME)

# promtool and amtool are unpacked from Debian's packages, not installed, so that
# no daemon starts.
PROMTOOL := .tools/prometheus/usr/bin/promtool

$(PROMTOOL):
	mkdir -p .tools/prometheus
	cd .tools/prometheus && apt-get download prometheus prometheus-alertmanager && \
		for deb in *.deb; do dpkg -x "$$deb" . && rm "$$deb"; done

.PHONY: check-alerts
check-alerts: $(PROMTOOL) ## check the alert rules, their unit tests and the route with Prometheus's own tools
	cd deploy && ../$(PROMTOOL) check config --syntax-only prometheus.yml && ../$(PROMTOOL) check rules alerts.yml && \
		../$(PROMTOOL) test rules alerts_test.yml && ../$(dir $(PROMTOOL))amtool check-config alertmanager.yml

.PHONY: try-operations
try-operations: build ## do what docs/operations.md says without containers; on a machine that may be thrown away
	scripts/try-operations.sh

# Measurements.

# docs/capacity.md is computed from the figures of docs/benchmarks.md.
CAPACITY = $(GO) test ./deploy -run Capacity -count=1 -update

.PHONY: bench-api
bench-api: ## measure the API's speed and its memory under uploads; writes its section of docs/benchmarks.md
	$(GO) run ./internal/dbtest/withpg $(GO) run ./test/bench-api $(BENCH_FLAGS)
	$(CAPACITY)

# Jobs of the year; ten million take 20 GB of disk while they are made, and minutes.
BENCH_ADMIN_JOBS ?= 10000000

.PHONY: bench-admin
bench-admin: ## reports, submits, polls and claims on a database with a year of jobs; writes its section of docs/benchmarks.md
	$(GO) run ./test/bench-api -year $(BENCH_ADMIN_JOBS)

# Runs of each measurement; the best counts. Two take 20 minutes on two quiet cores.
BENCH_RENDER_RUNS ?= 2

.PHONY: bench-render
bench-render: ## the render engine beside one single-graph ffmpeg command; writes its section of docs/benchmarks.md
	$(GO) run ./test/bench-render -runs $(BENCH_RENDER_RUNS)
	$(CAPACITY)

# Length of a simulated film: figures shorter than a second are mostly overhead.
BENCH_SCALE ?= 1s
# One table alone, which writes to no page: BENCH_SCALE_FLAGS="-bench-scale-only film".
BENCH_SCALE_FLAGS ?=

.PHONY: bench-scale
bench-scale: build ## rendering on 1 to 64 workers, long queues and two replicas; writes its section of docs/benchmarks.md
	CUTROOM_BIN=$(CURDIR)/bin/cutroom CUTROOM_TEST_DB=postgres scripts/s3.sh run $(GO) run ./internal/dbtest/withpg \
		$(GO) test ./internal/render -run TestBenchmarkScale -count=1 -timeout 20m -bench-scale $(BENCH_SCALE) $(BENCH_SCALE_FLAGS) -v
	$(CAPACITY)

# In memory if possible, so that the benchmark does not measure the disk.
STORE_TMP := $(if $(wildcard /dev/shm/.),/dev/shm,$(or $(TMPDIR),/tmp))

.PHONY: bench-store
bench-store: ## 500 MB to and from a real S3 server, beside the plain SDK; writes its section of docs/benchmarks.md
	TMPDIR=$(STORE_TMP) scripts/s3.sh run $(GO) run ./internal/objectstore/storebench -report docs/benchmarks.md


# Separations: the long run against crashes, the fault matrix and the speed of the queue.

# A million take a night on two cores. FIRST is the seed of the first.
SCHEDULES ?= 1000000
FIRST ?= 1

.PHONY: simulate
simulate: ## SCHEDULES schedules of two replicas on one database, with faults; any of them can be replayed
	$(GO) test ./internal/simulation -run TestSchedules -count=1 -timeout 0 -v -args \
		-schedules=$(SCHEDULES) -first=$(FIRST) -processes=$(shell nproc)

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

.PHONY: drill-hang
drill-hang: build ## stop one of two replicas behind the given nginx for 20 s, under load, and time every answer
	@test -x /usr/sbin/nginx || apt-get install -y -qq --no-install-recommends nginx-light
	CUTROOM_DRILL=1 CUTROOM_BIN=$(CURDIR)/bin/cutroom CUTROOM_TEST_DB=postgres $(GO) run ./internal/dbtest/withpg \
		$(GO) test ./test/drill -run TestHungReplica -count=1 -v

# How long each outage lasts.
DRILL_OUTAGES ?= 90s 5m

.PHONY: drill-standby
drill-standby: build ## stop a synchronous standby under renders and separations, for DRILL_OUTAGES; no job may fail
	CUTROOM_DRILL_OUTAGES="$(DRILL_OUTAGES)" CUTROOM_BIN=$(CURDIR)/bin/cutroom CUTROOM_TEST_DB=postgres \
		$(GO) test ./test/drill -run TestStoppedStandby -count=1 -timeout 40m -v

.PHONY: drill-backup
drill-backup: build ## archive the log, back up, restore and verify a cluster of its own; a tampered ledger must be noticed
	scripts/drill-backup.sh

.PHONY: fault-matrix
fault-matrix: build ## fail every step of the provider in every way and write docs/separation.md's tables
	CUTROOM_BIN=$(CURDIR)/bin/cutroom $(GO) test ./test/matrix -count=1 -timeout 40m -update

.PHONY: bench-queue
bench-queue: ## claims per second on both databases; writes its section of docs/benchmarks.md
	$(GO) test ./internal/separation -run TestBenchmarkQueue -count=1 -timeout 30m -bench-queue $(BENCH_QUEUE) -v

# Releases.

.PHONY: release
release: ## static binaries, Debian packages, SBOM, provenance and signed checksums of VERSION=1.2.3 in dist/1.2.3
	@scripts/release.sh $(VERSION)

DEBIAN ?= trixie

.PHONY: test-package
test-package: ## install, upgrade and remove the Debian package on a bare Debian (DEBIAN=bookworm or trixie; as root)
	scripts/fresh.sh $(DEBIAN) deploy/package/try.sh
