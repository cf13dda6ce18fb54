#!/usr/bin/env bash
# Builds a release of the checked-out commit: release.sh 1.2.3. It writes to dist/1.2.3: for each
# architecture the program and a Debian package; the list of linked modules (CycloneDX); their licence
# texts; a statement of how everything was built (SLSA provenance); and the checksums, signed with the
# key in MINISIGN_KEY_FILE. The same commit gives the same programs and packages.
#
#   ARCHS                   architectures; default "amd64 arm64"
#   MINISIGN_KEY_FILE       secret key that signs; without it nothing is signed
#   MINISIGN_PASSWORD_FILE  its password; without it minisign asks for it
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

version=${1#v}
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$ ]] || {
	echo "release.sh: VERSION=$version is not of the form 1.2.3 or 1.2.3-rc.1" >&2
	exit 2
}
grep -q "^## $version\b" CHANGELOG.md || echo "release.sh: CHANGELOG.md does not mention $version" >&2
git diff --quiet HEAD || echo "release.sh: the release contains changes that are not committed" >&2

out=dist/$version
stage=$out/stage
rm -rf "$out"
mkdir -p "$stage"
trap 'rm -rf "$stage"' EXIT

commit=$(git rev-parse --short HEAD)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH CGO_ENABLED=0
flags=(-trimpath -buildvcs=false -ldflags "-s -w -X main.release=$version -X main.commit=$commit")
tool() { go tool -modfile=deploy/package/tools.mod "$@"; }

# The man page lists the commands as the program's help does.
go run "${flags[@]}" ./cmd/cutroom help | sed 's/\\/\\e/g; s/-/\\-/g; s/^\./\\\&./' >"$stage/usage"
sed -e "/^@USAGE@\$/{r $stage/usage" -e 'd}' -e "s/@VERSION@/$version/; s/@DATE@/$(date -u -d "@$SOURCE_DATE_EPOCH" +%F)/" \
	deploy/package/cutroom.8 | gzip -9n >"$stage/cutroom.8.gz"

scripts/licenses.sh texts >"$out/THIRD_PARTY_NOTICES"

# Rewrite links to pages and examples that are in the package; all other relative links become text.
mkdir "$stage/docs"
packaged=$(sed -n 's|.*dst: /usr/share/doc/cutroom/\([^,]*\),.*|\1|p' deploy/package/nfpm.yaml)
for page in docs/{operations,setup,privacy,configuration,capacity}.md CHANGELOG.md; do
	staged=$stage/docs/${page#docs/}
	sed -E 's#\]\(docs/#](#g; s#\]\(deploy/#](../deploy/#g; s#\]\(\.\./deploy/([a-z]+/)?([^)/]+)\)#](examples/\2)#g; s#\]\(examples/backup\.sh\)#](/usr/share/cutroom/backup.sh)#g
		s#\]\(examples/systemd\)#](/usr/lib/systemd/system)#g; s#\]\(examples/cutroom\.service\)#](/usr/lib/systemd/system/cutroom.service)#g
		s#\]\(\.\./\.env\.example\)#](/usr/share/cutroom/cutroom.env)#g' "$page" >"$staged"
	grep -oE '\]\([^)#]+' "$staged" | cut -c3- | sort -u | while read -r to; do
		[[ $to == http* || $to == /usr/* ]] || grep -qxF "$to" <<<"$packaged" ||
			sed -i -E "s#\[([^]]*)\]\(${to//./\\.}(\#[^)]*)?\)#\1#g" "$staged"
	done
done

for arch in ${ARCHS:-amd64 arm64}; do
	binary=$out/cutroom_${version}_linux_$arch
	GOOS=linux GOARCH=$arch go build "${flags[@]}" -o "$binary" ./cmd/cutroom
	cp "$binary" "$stage/cutroom"
	ARCH=$arch VERSION=$version STAGE=$stage NOTICES=$out/THIRD_PARTY_NOTICES \
		tool nfpm package --config deploy/package/nfpm.yaml --packager deb --target "$out/cutroom_${version}_$arch.deb"
done
tool cyclonedx-gomod bin -json -noserial -std -version "$version" -output "$stage/sbom.json" "$binary"
# Use the time of the commit, so that the same commit gives the same checksums.
jq --arg at "$(date -u -d "@$SOURCE_DATE_EPOCH" +%FT%TZ)" '.metadata.timestamp = $at' "$stage/sbom.json" >"$out/cutroom_$version.cdx.json"

rm -rf "$stage"
cd "$out"
sha256sum -- * >SHA256SUMS

# An in-toto statement: these files, built from this commit with these tools.
jq --null-input --rawfile sums SHA256SUMS --arg version "$version" --arg go "$(go env GOVERSION)" --arg commit "$(git rev-parse HEAD)" \
	--arg source "${RELEASE_SOURCE:-$(git remote get-url origin 2>/dev/null || echo cutroom)}" --arg builder "${RELEASE_BUILDER:-local}" '{
	_type: "https://in-toto.io/Statement/v1",
	subject: [$sums | splits("\n") | select(. != "") | split("  ") | {name: .[1], digest: {sha256: .[0]}}],
	predicateType: "https://slsa.dev/provenance/v1",
	predicate: {
		buildDefinition: {
			buildType: "https://cutroom.example/release/v1",
			externalParameters: {version: $version},
			resolvedDependencies: [
				{uri: $source, digest: {gitCommit: $commit}},
				{uri: "pkg:golang/stdlib@\($go)"}
			]
		},
		runDetails: {builder: {id: $builder}}
	}
}' >"cutroom_$version.provenance.json"
sha256sum "cutroom_$version.provenance.json" >>SHA256SUMS

if [ -n "${MINISIGN_KEY_FILE-}" ]; then
	cat "${MINISIGN_PASSWORD_FILE:-/dev/stdin}" |
		go tool -modfile="$root/deploy/package/tools.mod" minisign -S -s "$MINISIGN_KEY_FILE" -m SHA256SUMS -t "cutroom $version"
else
	echo "release.sh: MINISIGN_KEY_FILE is not set: SHA256SUMS is not signed" >&2
fi
echo "release.sh: $out" >&2
