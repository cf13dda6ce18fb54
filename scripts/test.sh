#!/usr/bin/env bash
# All tests. The unit tests run once, with both databases; the black-box suite
# runs against the real program in every shape in which it is deployed.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

step() { printf '\n== %s (%ss) ==\n' "$*" "$SECONDS"; }

suite() { go test -count=1 -timeout 30m "$@"; }

inner() {
	step "unit tests"
	# Packages one after the other: most of them run ffmpeg, browsers or
	# databases, and measure what comes out.
	go test -p 1 -timeout 30m $(go list ./... | grep -v -e '^cutroom/test')
	step "black box: SQLite, no bucket"
	CUTROOM_TEST_DB=sqlite suite ./test
	step "black box: PostgreSQL, no bucket"
	CUTROOM_TEST_DB=postgres suite ./test
	step "black box: PostgreSQL, bucket, two replicas"
	CUTROOM_TEST_DB=postgres CUTROOM_TEST_BUCKET=1 CUTROOM_TEST_REPLICAS=2 suite ./test
	step "separations against faults and crashes"
	CUTROOM_TEST_DB=postgres suite -p 1 ./test/matrix ./test/soak
	step "all tests passed"
}

if [ "${1:-}" = inner ]; then
	inner
	exit
fi

step "format and vet"
test -z "$(gofmt -l cmd deploy internal test | tee /dev/stderr)"
go vet ./...

step "build"
make --no-print-directory build
export CUTROOM_BIN=$root/bin/cutroom

# One PostgreSQL cluster and one S3 server for all of it.
scripts/s3.sh run go run ./internal/dbtest/withpg "$0" inner
