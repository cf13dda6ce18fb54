#!/bin/sh
# Checks Go files: a file of more than 150 lines begins with a sentence about its contents, as in the standard library,
# and a line has at most 140 characters (any number in tests, whose data is sometimes one long line).
set -eu
cd "$(dirname "$0")/.."
found=$(
	find clients cmd deploy internal test -name '*.go' -exec awk '
		FNR == 1 { head = 0; generated = 0; said = 0 }
		!said && /^\/\/ Code generated/ { generated = 1 }
		!said && /^\/\// && !/^\/\/go:build/ { head = 1 }
		/^package / && !said { said = 1; without = !head && !generated }
		FNR == 151 && without { print FILENAME ": has more than 150 lines and does not say what is in it" }
	' {} +
	find clients cmd deploy internal test -name '*.go' ! -name '*_test.go' ! -name '*.gen.go' -exec \
		env LC_ALL=C.UTF-8 grep -HnE '^.{141}' {} + || true
)
test -z "$found" || { echo "$found" >&2; exit 1; }
