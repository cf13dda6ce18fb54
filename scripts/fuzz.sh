#!/usr/bin/env bash
# Fuzzes every target of the module, one after the other: fuzz.sh [time] [pattern].
# The pattern selects targets by package and name, such as httpapi or FuzzForm. Minimizing is kept short: the coverage of
# a whole service varies from run to run, so the default would spend most of the time on it.
set -euo pipefail
cd "$(dirname "$0")/.."

time=${1:-5m}
pattern=${2:-.}
failed=0
while IFS=: read -r file func; do
	package=./$(dirname "$file")
	target=${func#func }
	target=${target%%(*}
	[[ "$package/$target" =~ $pattern ]] || continue
	printf '== %s %s (%s)\n' "$package" "$target" "$time"
	go test "$package" -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 2s | grep -v '^fuzz: elapsed: .*s, gathering' || failed=1
done < <(grep -rn --include='*_test.go' -o '^func Fuzz[A-Za-z0-9_]*(' internal cmd test | sed 's/:[0-9]*:/:/' | sort -u)
exit $failed
