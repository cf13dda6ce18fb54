# Needs Node; no other target does but admin-app.
.PHONY: lint-openapi
lint-openapi: ## check the API description with redocly and spectral (needs Node)
	REDOCLY_TELEMETRY=off npx --yes @redocly/cli@2.77.0 lint --config mk/redocly.yaml internal/httpapi/openapi.yaml
	npx --yes @stoplight/spectral-cli@6.16.3 lint --ruleset mk/spectral.yaml --fail-severity hint internal/httpapi/openapi.yaml
