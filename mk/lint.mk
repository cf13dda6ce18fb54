# The linters' versions are pinned in mk/lint.mod and their sources in mk/lint.sum:
# what the module proxy sends must match, and no checksum database is asked.
LINTERS := .tools/lint

$(LINTERS): mk/lint.mod mk/lint.sum
	$(GO) build -modfile=mk/lint.mod -o $@/ tool
	@touch $@

.PHONY: lint
lint: $(LINTERS) ## gofmt, go vet, staticcheck and deadcode; any finding fails
	@test -z "$$(gofmt -l cmd deploy internal test | tee -a /dev/stderr)"
	$(GO) vet ./...
	$(LINTERS)/staticcheck ./...
	@# Tests count as callers: what only they call is a tool of theirs.
	@test -z "$$($(LINTERS)/deadcode -test ./... | tee -a /dev/stderr)"
