# cutroom: `make help` lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help
GO ?= go
# What is built is told by its tag: 1.2.3, or 1.2.3-4-gabcdef0 beyond it.
VERSION ?= $(patsubst v%,%,$(shell git describe --tags --always --dirty 2>/dev/null || echo unknown))
LDFLAGS := -s -w -X main.release=$(VERSION) -X main.commit=$(shell git rev-parse --short HEAD 2>/dev/null || echo unknown)
MEDIA := $(CUTROOM_MEDIA_DIR)

.PHONY: help
help: ## list the targets
	@grep -hsE '^[a-z0-9-]+:.*## ' Makefile $(wildcard mk/*.mk) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

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

-include mk/*.mk
