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

# Counts the packages that go build -v names, and prints its other lines.
COUNT := /^[A-Za-z0-9_.\/-]+$$/ { if (++n % 50 == 0) print "build: " n " packages compiled"; fflush(); next } { print; fflush() }

.PHONY: build
build: ## build both static programs into bin/
	@set -o pipefail; CGO_ENABLED=0 $(GO) build -v -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/... 2>&1 | awk '$(COUNT)'

.PHONY: setup
setup: ## install ffmpeg and espeak-ng from Debian's packages
	@scripts/setup.sh run

# Packages are installed while the programs compile.
.PHONY: ready
ready:
	@echo "Installing packages and compiling, side by side. The first time takes minutes."
	@$(MAKE) --no-print-directory -j2 setup build

.PHONY: demo
demo: ready ## run the main job end to end on generated media; results in demo-output/
	bin/sandbox demo

PORT ?= 8080

.PHONY: sandbox
sandbox: ready ## run the whole system on this machine, with the API on PORT (default 8080); needs no accounts
	bin/sandbox --port $(PORT)

.PHONY: setup-test compile ready-test
setup-test:
	@scripts/setup.sh test
compile:
	@scripts/test.sh compile
ready-test:
	@$(MAKE) --no-print-directory -j2 setup-test compile

.PHONY: test
test: ready-test ## install the tests' dependencies and run all tests but the long ones
	COMPILED=1 scripts/test.sh

.PHONY: test-long
test-long: ready-test ## run the long tests: provider faults at every step, random crashes, a failover, 8 replicas
	COMPILED=1 scripts/test.sh long

.PHONY: test-s3
test-s3: ready-test ## run the tests of the object store on MinIO (the first run builds it, for minutes)
	COMPILED=1 scripts/test.sh s3

.PHONY: test-short
test-short: setup ## run the unit tests only, on SQLite
	$(GO) test -short ./cmd/... ./internal/...

.PHONY: admin-app
admin-app: ## rebuild the admin web app (needs Node; the result is committed)
	cd web && npm ci && npm run admin

.PHONY: player-app
player-app: ## rebuild the sandbox's studio and test it in Chromium (needs Node; the result is committed)
	cd web && npm ci && npm run player
	$(GO) test -count=1 ./internal/sandbox/player

.PHONY: clean
clean: ## remove the output of the targets above
	rm -rf bin dist demo-output sandbox-data storage

# Checks.

# mk/lint.mod pins the versions of the linters (mk/test.mod: of gotestsum), and mk/lint.sum their checksums.
LINTERS := .tools/lint
# The database of known vulnerabilities, or a mirror.
GOVULNDB ?= https://vuln.go.dev

$(LINTERS): mk/lint.mod mk/lint.sum
	$(GO) build -modfile=mk/lint.mod -o $@/ tool
	@touch $@

.PHONY: lint
lint: $(LINTERS) ## run gofmt, go vet, staticcheck, deadcode, and check files, licences and known vulnerabilities
	@test -z "$$(gofmt -l clients cmd deploy internal test | tee -a /dev/stderr)"
	$(GO) vet ./...
	$(LINTERS)/staticcheck ./...
	@# Tests count as callers: a function that only tests call is test support.
	@test -z "$$($(LINTERS)/deadcode -test ./... | tee -a /dev/stderr)"
	scripts/gofiles.sh
	scripts/licenses.sh
	@if curl -sfo /dev/null -m 10 $(GOVULNDB)/index/db.json; then $(LINTERS)/govulncheck -db $(GOVULNDB) ./...; \
		else echo "lint: $(GOVULNDB) cannot be reached: known vulnerabilities were not checked"; fi

.PHONY: lint-openapi
lint-openapi: ## check the API description with redocly and spectral (needs Node)
	REDOCLY_TELEMETRY=off npx --yes @redocly/cli@2.77.0 lint --config mk/redocly.yaml internal/api/httpapi/openapi.yaml
	npx --yes @stoplight/spectral-cli@6.16.3 lint --ruleset mk/spectral.yaml --fail-severity hint internal/api/httpapi/openapi.yaml

# The generators' versions are pinned in web/package-lock.json and test/clients/go/go.mod.
.PHONY: clients
clients: ## generate TypeScript and Go clients, compile the Kotlin package, and make films with each (needs Node)
	cd web && npm ci && npm run clients && npm run client
	cd test/clients/go && $(GO) generate . && $(GO) vet . && $(GO) build -o film .
	kotlin=$$(scripts/kotlin.sh) && CUTROOM_KOTLIN_SCENARIOS=$$kotlin \
		CUTROOM_TYPESCRIPT_SCENARIOS=$$PWD/web/client/test/scenarios.mjs CUTROOM_TEST_CLIENTS=1 \
		scripts/gotest.sh -count=1 -timeout 15m -- ./test/clients

.PHONY: client-package
client-package: ## build and pack the TypeScript client of web/client (needs Node)
	cd web && npm ci && npm run client && cd client && npm pack

FUZZTIME ?= 5m

.PHONY: fuzz
fuzz: ## fuzz each target for FUZZTIME (default 5m)
	@scripts/fuzz.sh $(FUZZTIME)

# promtool and amtool are unpacked from Debian's packages. Installing the packages would start daemons.
PROMTOOL := .tools/prometheus/usr/bin/promtool

$(PROMTOOL):
	mkdir -p .tools/prometheus
	@# A fresh machine has no lists of packages yet.
	cd .tools/prometheus && { apt-get download prometheus prometheus-alertmanager || \
		{ apt-get update -qq && apt-get download prometheus prometheus-alertmanager; }; } && \
		for deb in *.deb; do dpkg -x "$$deb" . && rm "$$deb"; done

.PHONY: check-alerts
check-alerts: $(PROMTOOL) ## check the alert rules, their unit tests and the routing with Prometheus's own tools
	cd deploy && ../$(PROMTOOL) check config --syntax-only prometheus.yml && ../$(PROMTOOL) check rules alerts.yml && \
		../$(PROMTOOL) test rules alerts_test.yml && ../$(dir $(PROMTOOL))amtool check-config alertmanager.yml

.PHONY: try-operations
try-operations: build ## follow docs/setup.md and docs/operations.md without containers, on a disposable machine
	scripts/try-operations.sh

# Measurements.

.PHONY: bench-api
bench-api: ## measure the API's speed, and its memory during uploads; writes docs/benchmarks.md
	$(GO) run ./internal/testkit/dbtest/withpg $(GO) run ./test/bench-api $(BENCH_FLAGS)

# Number of jobs in the year. Ten million take minutes, and 20 GB of disk while they are created.
BENCH_ADMIN_JOBS ?= 10000000

.PHONY: bench-admin
bench-admin: ## measure reports, submits, polls and claims beside a year of jobs; writes docs/benchmarks.md
	$(GO) run ./test/bench-api -year $(BENCH_ADMIN_JOBS)

# Number of runs; the best one counts. Two take 20 minutes on two idle cores.
BENCH_RENDER_RUNS ?= 2

.PHONY: bench-render
bench-render: ## compare renders with single ffmpeg commands; writes docs/benchmarks.md
	$(GO) run ./test/bench-render -runs $(BENCH_RENDER_RUNS)

# Length of a simulated film. Below a second, the figures are mostly overhead.
BENCH_SCALE ?= 1s
# To print one table without writing the page: BENCH_SCALE_FLAGS="-only film".
BENCH_SCALE_FLAGS ?=

.PHONY: bench-scale
bench-scale: ## measure 1 to 64 workers and long queues; writes docs/benchmarks.md
	scripts/s3.sh run $(GO) run ./internal/testkit/dbtest/withpg $(GO) run ./test/bench-scale -film $(BENCH_SCALE) $(BENCH_SCALE_FLAGS)

# Separations: crashes, faults, the speed of the queue.

# A million schedules take about one and a half hours on two free cores. FIRST is the seed of the first one.
SCHEDULES ?= 1000000
FIRST ?= 1

.PHONY: simulate
simulate: ## simulate SCHEDULES runs of two replicas with faults; each can be replayed
	$(GO) test ./internal/testkit/simulation -run TestSchedules -count=1 -timeout 0 -v -args \
		-schedules=$(SCHEDULES) -first=$(FIRST) -processes=$(shell nproc)

SOAK_KILLS ?= 200
.PHONY: soak
soak: build ## run separations through SOAK_KILLS crashes of two replicas, then on SQLite
	CUTROOM_BIN=$(CURDIR)/bin/cutroom CUTROOM_TEST_DB=postgres CUTROOM_SOAK_KILLS=$(SOAK_KILLS) \
		$(GO) test ./test/soak -count=1 -v -timeout 90m
	CUTROOM_BIN=$(CURDIR)/bin/cutroom CUTROOM_TEST_DB=postgres CUTROOM_TEST_BUCKET=1 CUTROOM_SOAK_SECONDS=120 \
		$(GO) test ./test/soak -count=1 -v -timeout 30m
	CUTROOM_BIN=$(CURDIR)/bin/cutroom CUTROOM_TEST_DB=sqlite CUTROOM_SOAK_SECONDS=120 \
		$(GO) test ./test/soak -count=1 -v -timeout 30m

.PHONY: drill-upgrade
drill-upgrade: build ## restart, kill and suspend two replicas behind nginx under load; count every failed request
	@test -x /usr/sbin/nginx || apt-get install -y -qq --no-install-recommends nginx-light
	CUTROOM_DRILL=1 CUTROOM_BIN=$(CURDIR)/bin/cutroom CUTROOM_TEST_DB=postgres $(GO) run ./internal/testkit/dbtest/withpg \
		$(GO) test ./test/drill -run TestUpgrade -count=1 -v

# How long each outage lasts.
DRILL_OUTAGES ?= 90s 5m

.PHONY: drill-standby
drill-standby: build ## promote a standby, and stop one for DRILL_OUTAGES, during jobs; no job may be lost
	CUTROOM_DRILL_OUTAGES="$(DRILL_OUTAGES)" CUTROOM_BIN=$(CURDIR)/bin/cutroom CUTROOM_TEST_DB=postgres \
		$(GO) test ./test/drill -run Standby -count=1 -timeout 40m -v

.PHONY: drill-unit
drill-unit: build ## run the units under a real systemd, as root: watchdog, doctor, credentials, backups
	scripts/drill-unit.sh

.PHONY: drill-backup
drill-backup: build ## back up and lose a PostgreSQL cluster of its own, and restore it by the runbook with a user's film
	scripts/drill-backup.sh

.PHONY: fault-matrix
fault-matrix: build ## fail every step of the provider in every way; writes the tables of docs/separation.md
	CUTROOM_BIN=$(CURDIR)/bin/cutroom $(GO) test ./test/matrix -count=1 -timeout 40m -update

# Releases.

.PHONY: release
release: ## build binaries, Debian packages, SBOM, provenance and signed checksums of VERSION=1.2.3 in dist/1.2.3
	@scripts/release.sh $(VERSION)

DEBIAN ?= trixie

.PHONY: test-package
test-package: ## install, upgrade and remove the Debian package on a bare system (DEBIAN=bookworm or trixie; as root)
	scripts/fresh.sh $(DEBIAN) deploy/package/try.sh
