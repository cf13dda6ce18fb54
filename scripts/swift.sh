#!/usr/bin/env bash
# Compiles the committed clients/swift in a Debian 13 with Debian's Swift, and runs its scenarios against the service
# there. Needs root and debootstrap: see scripts/fresh.sh.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)

if [ "${1-}" = inside ]; then
	# The working directory is a clone, and $root is read-only.
	swift build -c release --package-path clients/swift
	export CUTROOM_SWIFT_SCENARIOS=$PWD/clients/swift/.build/release/Scenarios
	cd "$root/test/clients"
	exec "$root/.tools/swift/clients.test" -test.v -test.timeout 20m -test.run TestPhonePackages/Swift
fi

cd "$root"
export CGO_ENABLED=0 GOFLAGS=-trimpath
[ -n "${CUTROOM_BIN-}" ] || make --no-print-directory build
mkdir -p .tools/swift
go test -vet=off -c -o .tools/swift/clients.test ./test/clients
FRESH_PACKAGES="swiftlang libc6-dev libstdc++-14-dev ffmpeg espeak-ng" FRESH_FOLDERS=$root \
	CUTROOM_BIN=$root/bin/cutroom CUTROOM_TEST_CLIENTS=1 CUTROOM_TEST_DB=sqlite CUTROOM_TEST_FIXTURES='' \
	scripts/fresh.sh trixie "$root/scripts/swift.sh" inside
