#!/usr/bin/env bash
# Runs go test: flags first, then "--" and the packages.
#
#   scripts/gotest.sh -count=1 -run Balance -- ./test
#
# With RERUN_FAILED set, a failed test runs twice more. If it passes both times, it does not fail the run, and a
# line that begins with FLAKY is printed and appended to the file FLAKY_LOG. Nothing runs again after a panic, a
# time-out or a build failure, or if more than six tests failed: those are not flaky tests.
set -euo pipefail

if [ "${1-}" = inside ]; then
	# gotestsum repeats this command to run a failed test again, with "-test.run=TEST PACKAGE" added.
	shift
	again=$([[ "$*" != *-test.run=* ]] || echo yes)
	flags=()
	while [ "$1" != -- ]; do
		if [ "$again" ] && [ "$1" = -run ]; then shift; else flags+=("$1"); fi
		shift
	done
	[ -z "$again" ] || exec go test -json "${flags[@]}" -count=2 "${@: -2}"
	shift
	exec go test -json "${flags[@]}" "$@"
fi

root=$(cd "$(dirname "$0")/.." && pwd)
report=$(mktemp) events=$(mktemp)
trap 'rm -f "$report" "$events"' EXIT
rerun=()
[ -z "${RERUN_FAILED-}" ] || rerun=(--rerun-fails=1 --rerun-fails-max-failures=6 --rerun-fails-run-root-test
	"--rerun-fails-report=$report" "--jsonfile=$events")
status=0
# go tool itself would return 0 for a gotestsum that a signal has killed.
gotestsum=$(go tool -modfile="$root/mk/test.mod" -n gotestsum)
"$gotestsum" --format=pkgname --no-color --hide-summary=skipped "${rerun[@]}" \
	--raw-command -- "$root/scripts/gotest.sh" inside "$@" || status=$?
# If a package failed but did not print FAIL, either it ran all its tests and failed in TestMain, or one of its tests
# ended the process. Repeating tests then proves nothing.
exited=$(jq -rn '[inputs | select(.Package and .Test == null)] | group_by(.Package)[]
	| select(any(.Action == "fail") and all(.Output != "FAIL\n")) | .[0].Package' "$events")
if [ -n "$exited" ]; then
	printf 'failed outside its tests: %s\n' $exited
	status=1
fi
# Flaky: of three runs, only the first failed. A failed subtest also fails the test around it.
sed -n '/\.Test[^./]*: /s/: 3 runs, 1 failures$/ failed once and passed twice/; s/^/FLAKY: /; /passed twice$/p' "$report" | tee -a "${FLAKY_LOG:-/dev/null}"
exit "$status"
