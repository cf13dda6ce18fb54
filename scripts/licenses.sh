#!/usr/bin/env bash
# Licences of the modules linked into the programs and of the packages built into their web apps.
#
#   scripts/licenses.sh          compare with docs/licenses.md, and fail on a licence outside ALLOWED
#   scripts/licenses.sh write    check the licences and write docs/licenses.md
#   scripts/licenses.sh texts    print the licence texts, which a release must include
set -euo pipefail
cd "$(dirname "$0")/.."

export CGO_ENABLED=0
# Licences that require only their notice. The detector reports a BSD-3-Clause text with bullets
# instead of numbers as BSD-Source-Code.
ALLOWED='Apache-2.0 BSD-2-Clause BSD-3-Clause BSD-Source-Code ISC MIT'
# The studio, which is not part of the service, is built with unmodified packages under MPL-2.0. That licence requires
# us to say where their source is: in the npm registry, under the name and version that the page lists.
ALLOWED_NPM='MPL-2.0'
page=docs/licenses.md

# modules prints the path, version and folder of every module that the programs link.
modules() {
	go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' ./cmd/... | sort -u
}

texts() {
	printf 'cutroom contains the Go standard library and the modules below, under these licences.\n\n== Go %s ==\n\n' "$(go env GOVERSION)"
	cat "$(go env GOROOT)/LICENSE"
	local module version folder
	while read -r module version folder; do
		printf '\n\n== %s %s ==\n' "$module" "$version"
		find "$folder" -maxdepth 1 -type f \( -iname '*license*' -o -iname 'licence*' -o -iname 'copying*' -o -iname 'notice*' \) |
			sort | while read -r file; do printf '\n'; cat "$file"; done
	done < <(modules)
	printf '\n\n'
	cat internal/domain/admin/page/dist/licenses.md
}

# table prints a row for each dependency: name, version, and the most likely licence of each of its
# files. Below a confidence of 0.8 the detector is guessing.
table() {
	local listed
	listed=$(modules)
	awk '{print $3}' <<<"$listed" | xargs go tool -modfile=deploy/package/tools.mod license-detector -f json |
		jq -r '.[] | [.project, ([.matches[]? | select(.confidence >= 0.8)] | group_by(.file)
			| map(max_by(.confidence).license) | unique | join(" and "))] | @tsv' |
		awk -F'\t' 'NR == FNR { split($0, m, " "); name[m[3]] = m[1] "\t" m[2]; next } { print name[$1] "\t" $2 }' <(printf '%s\n' "$listed") - |
		sort
	jq -r '.packages | to_entries[] | select(.key != "" and (.value.dev | not)) |
		[(.key | sub("^node_modules/"; "npm ")), .value.version, .value.license] | @tsv' web/package-lock.json
}

[ "${1-}" != texts ] || { texts; exit; }

rows=$(table)
forbidden=$(awk -F'\t' -v allowed="$ALLOWED" -v npm="$ALLOWED_NPM" '
	BEGIN { n = split(allowed, names, " "); for (i = 1; i <= n; i++) ok[names[i]] = 1
	        n = split(npm, names, " "); for (i = 1; i <= n; i++) of_npm[names[i]] = 1 }
	{ m = split($3, found, " and "); if (m == 0) print $1 ": no licence found"
	  for (i = 1; i <= m; i++) if (!(found[i] in ok || ($1 ~ /^npm / && found[i] in of_npm))) print $1 ": " found[i] }' <<<"$rows")
[ -z "$forbidden" ] || { printf 'licenses.sh: not allowed:\n%s\n' "$forbidden" >&2; exit 1; }

written=$(
	cat <<-'END'
		# Licences of the dependencies

		Written by `scripts/licenses.sh write` and checked by `make lint`: the modules linked into the programs, and the npm
		packages built into the web apps. A release carries their texts in `THIRD_PARTY_NOTICES`. The npm packages are unmodified: their
		source is in the npm registry.

		| dependency | version | licence |
		|---|---|---|
	END
	sed -E 's/BSD-Source-Code/BSD-3-Clause/; s/^/| /; s/\t/ | /g; s/$/ |/' <<<"$rows"
)
if [ "${1-}" = write ]; then
	printf '%s\n' "$written" >"$page"
else
	diff -u "$page" <(printf '%s\n' "$written") >&2 || { echo "licenses.sh: run scripts/licenses.sh write" >&2; exit 1; }
fi
