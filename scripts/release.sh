#!/usr/bin/env bash
# Makes a release of what is committed: release.sh 1.2.3. In dist/1.2.3 are then
# the program for each architecture, a Debian package of each, the list of what
# is linked in (CycloneDX) and the checksums of all of it. The same commit gives
# the same programs and packages. ARCHS ("amd64 arm64") chooses the architectures.
set -euo pipefail
cd "$(dirname "$0")/.."

version=${1#v}
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$ ]] || {
	echo "release.sh: VERSION=$version is not of the form 1.2.3 or 1.2.3-rc.1" >&2
	exit 2
}
grep -q "^## $version\b" CHANGELOG.md || echo "release.sh: CHANGELOG.md says nothing of $version" >&2
git diff --quiet HEAD || echo "release.sh: what is not committed is in it, too" >&2

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

# The commands of the man page are those that the program tells.
go run "${flags[@]}" ./cmd/cutroom help | sed 's/\\/\\e/g; s/-/\\-/g; s/^\./\\\&./' >"$stage/usage"
sed -e "/^@USAGE@\$/{r $stage/usage" -e 'd}' -e "s/@VERSION@/$version/; s/@DATE@/$(date -u -d "@$SOURCE_DATE_EPOCH" +%F)/" \
	deploy/package/cutroom.8 | gzip -9n >"$stage/cutroom.8.gz"

for arch in ${ARCHS:-amd64 arm64}; do
	binary=$out/cutroom_${version}_linux_$arch
	GOOS=linux GOARCH=$arch go build "${flags[@]}" -o "$binary" ./cmd/cutroom
	cp "$binary" "$stage/cutroom"
	ARCH=$arch VERSION=$version STAGE=$stage \
		tool nfpm package --config deploy/package/nfpm.yaml --packager deb --target "$out/cutroom_${version}_$arch.deb"
done
tool cyclonedx-gomod bin -json -noserial -std -version "$version" -output "$out/cutroom_$version.cdx.json" "$binary"

rm -rf "$stage"
(cd "$out" && sha256sum -- * >SHA256SUMS)
echo "release.sh: $out" >&2
