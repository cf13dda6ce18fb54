# The generators' versions are pinned in web/package-lock.json and test/clients/go/go.mod.
.PHONY: clients
clients: ## generate TypeScript and Go clients from the API description; each makes a film (needs Node)
	cd web && npm ci && npm run clients
	cd test/clients/go && $(GO) generate . && $(GO) vet . && $(GO) build -o film .
	CUTROOM_TEST_CLIENTS=1 $(GO) test -count=1 -timeout 5m ./test/clients
