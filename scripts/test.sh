#!/usr/bin/env bash
# All tests. The unit tests run once; the black-box suite runs against the real
# program in every shape in which it is deployed.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

step() { printf '\n== %s (%ss) ==\n' "$*" "$SECONDS"; }

step "format and vet"
test -z "$(gofmt -l cmd internal test | tee /dev/stderr)"
go vet ./...

step "build"
make --no-print-directory build
export CUTROOM_BIN=$root/bin/cutroom

inner() {
	step "unit tests, SQLite and PostgreSQL"
	go test -timeout 15m $(go list ./... | grep -v '^cutroom/test')
	step "black box: SQLite, no bucket"
	CUTROOM_TEST_DB=sqlite go test -count=1 -timeout 15m ./test/...
	step "black box: PostgreSQL, no bucket"
	CUTROOM_TEST_DB=postgres go test -count=1 -timeout 15m ./test/...
	step "black box: PostgreSQL, bucket, two replicas"
	CUTROOM_TEST_DB=postgres CUTROOM_TEST_BUCKET=1 CUTROOM_TEST_REPLICAS=2 go test -count=1 -timeout 15m ./test/...
	step "all tests passed"
}

if [ "${1:-}" = inner ]; then
	inner
else
	# One PostgreSQL cluster and one S3 server for all of it.
	scripts/s3.sh run go run ./internal/dbtest/withpg "$0" inner
fi
