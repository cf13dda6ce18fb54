.PHONY: bench-store
bench-store: ## 500 MB to and from a real S3 server, beside the plain SDK; writes docs/benchmarks-store.md
	scripts/s3.sh run $(GO) run ./internal/objectstore/storebench -report docs/benchmarks-store.md
