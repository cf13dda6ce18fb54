# In memory where that is possible: the disk would be measured otherwise.
STORE_TMP := $(if $(wildcard /dev/shm/.),/dev/shm,$(or $(TMPDIR),/tmp))

.PHONY: bench-store
bench-store: ## 500 MB to and from a real S3 server, beside the plain SDK; writes its section of docs/benchmarks.md
	TMPDIR=$(STORE_TMP) scripts/s3.sh run $(GO) run ./internal/objectstore/storebench -report docs/benchmarks.md
