.PHONY: release
release: ## static binaries, Debian packages, SBOM and checksums of VERSION=1.2.3 in dist/1.2.3
	@scripts/release.sh $(VERSION)

DEBIAN ?= trixie

.PHONY: test-package
test-package: ## install, upgrade and remove the Debian package on a bare Debian (DEBIAN=bookworm or trixie; as root)
	scripts/fresh.sh $(DEBIAN) deploy/package/try.sh
