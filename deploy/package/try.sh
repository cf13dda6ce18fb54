#!/usr/bin/env bash
# Installs, uses, upgrades, removes and purges the Debian package, and loads the nginx
# files. Run it on a disposable machine: see `make test-package`.
set -euo pipefail
cd "$(dirname "$0")/../.."
export DEBIAN_FRONTEND=noninteractive

[ ! -e /etc/cutroom ] && [ ! -e /var/lib/cutroom ] || { echo "try.sh: not on a machine that has cutroom" >&2; exit 2; }

settings=/etc/cutroom/cutroom.env
failed=0
check() { # what, command...
	local what=$1
	shift
	if "$@" >/tmp/check.log 2>&1; then echo "ok    $what"; else
		echo "FAIL  $what"
		tail -n 20 /tmp/check.log
		failed=1
	fi
}
says() { grep -qF -- "$1" <<<"$2" || { echo "no $1 in: $2"; return 1; }; }
lacks() { ! grep -qF -- "$1" "$2"; }
header() { curl -sk --http2 -o /dev/null -D - "$@"; }

# start and stop act like the unit: with its user, its settings and its variables.
start() {
	sed -n 's/^Environment=//p' /usr/lib/systemd/system/cutroom.service >/tmp/unit.env
	(cd /var/lib/cutroom && exec setpriv --reuid cutroom --regid cutroom --clear-groups \
		env $(cat /tmp/unit.env) cutroom serve --env-file "$settings" >/tmp/serve.log 2>&1) &
	server=$!
	for _ in $(seq 100); do
		curl -sf -o /dev/null http://127.0.0.1:8080/healthz && return
		kill -0 $server 2>/dev/null || break
		sleep 0.2
	done
	cat /tmp/serve.log
	return 1
}
stop() { kill -TERM $server && wait $server; }

apt-get update -qq
apt-get install -y -qq --no-install-recommends jq >/dev/null 2>&1 # scripts/release.sh needs it

minisign() { go tool -modfile=deploy/package/tools.mod minisign "$@"; }
minisign -G -W -p /tmp/release.pub -s /tmp/release.key
ARCHS=amd64 scripts/release.sh 0.1.0
ARCHS=amd64 MINISIGN_KEY_FILE=/tmp/release.key scripts/release.sh 0.2.0 </dev/null
check "checksums" sh -c 'cd dist/0.2.0 && sha256sum -c SHA256SUMS'
check "signed" minisign -V -p /tmp/release.pub -m dist/0.2.0/SHA256SUMS
check "the signature refuses other checksums" sh -c '
	sed s/^./x/ dist/0.2.0/SHA256SUMS >/tmp/SHA256SUMS && ! go tool -modfile=deploy/package/tools.mod \
		minisign -V -p /tmp/release.pub -x dist/0.2.0/SHA256SUMS.minisig -m /tmp/SHA256SUMS'
check "the provenance names the commit and the program" sh -c '
	jq -e --arg commit "$(git rev-parse HEAD)" --arg sum "$(sha256sum dist/0.2.0/cutroom_0.2.0_linux_amd64 | cut -d" " -f1)" \
		".predicate.buildDefinition.resolvedDependencies[0].digest.gitCommit == \$commit and any(.subject[]; .digest.sha256 == \$sum)" \
		dist/0.2.0/cutroom_0.2.0.provenance.json'
check "the notices have a licence of each module" sh -c '[ "$(grep -c "^== " dist/0.2.0/THIRD_PARTY_NOTICES)" -gt 50 ]'
check "the program is static and stripped" sh -c '! readelf -lS dist/0.2.0/cutroom_0.2.0_linux_amd64 2>/dev/null | grep -E "INTERP|\.symtab|\.debug"'
check "the SBOM knows a module" grep -q modernc.org/sqlite dist/0.2.0/cutroom_0.2.0.cdx.json

apt-get install -y -qq --no-install-recommends ./dist/0.1.0/cutroom_0.1.0_amd64.deb binutils curl man-db nginx-light openssl systemd >/tmp/install.log 2>&1 || { tail -n 20 /tmp/install.log; exit 1; }
check "installed" says "cutroom 0.1.0" "$(cutroom version)"
check "no link of its pages leads nowhere" sh -c 'cd /usr/share/doc/cutroom && ! grep -ohE "\]\([^)#]+" ./*.md | cut -c3- | grep -v ^http |
	while read -r to; do ls "$to" >/dev/null 2>&1 || echo "$to"; done | grep .'
check "only its user reads the settings" says "640 root:cutroom" "$(stat -c '%a %U:%G' $settings)"
check "its folder is its own" says "700 cutroom:cutroom" "$(stat -c '%a %U:%G' /var/lib/cutroom)"
check "secrets were made" sh -c "grep -qE '^AUTH_JWT_SECRET=.{64}\$' $settings && grep -qE '^SEPARATION_SIGNING_SECRET=.{64}\$' $settings"
check "systemd takes the unit" systemd-analyze verify --man=no /usr/lib/systemd/system/cutroom.service
check "man page" sh -c 'gunzip -c /usr/share/man/man8/cutroom.8.gz | man -l - | grep -q "migrate  *apply"'

sed -i -e 's|^DATABASE_URL=.*|DATABASE_URL=sqlite:///var/lib/cutroom/cutroom.db|' -e 's|^DB_USER=.*|&unused|' -e 's|^DB_PASSWORD=.*|&unused|' -e 's|^AUTH_PROVIDER_A_CLIENT_IDS=.*|&app|' \
	-e 's|^SEPARATION_PROVIDER_API_KEY=.*|&key|' -e 's|^SEPARATION_PROVIDER_SPACE_ID=.*|&7|' $settings
sum=$(sha256sum $settings)
check "serves" start
check "metrics tell the version" says 'version="0.1.0 (' "$(curl -s http://127.0.0.1:9090/metrics | grep '^cutroom_build_info')"
check "the log tells the version" grep -q '"version":"0.1.0 (' /tmp/serve.log

# The front, with both replicas' names on this machine.
printf '127.0.0.1 %s\n' cutroom-1 cutroom-2 s3 >>/etc/hosts
mkdir -p /etc/nginx/tls /etc/nginx/cutroom
openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -days 2 -keyout /etc/nginx/tls/privkey.pem -out /etc/nginx/tls/fullchain.pem 2>/dev/null
cp deploy/nginx/*.conf /etc/nginx/cutroom/
cp deploy/nginx/nginx.conf /etc/nginx/nginx.conf
check "$(nginx -v 2>&1) loads the file" nginx -t
nginx
workers() { grep -lx nginx /proc/[0-9]*/comm | xargs -n 1 dirname | xargs stat -c %U | sort -u | xargs; }
check "its workers are not nobody" says "root www-data" "$(workers)"
check "the front answers over HTTP/2" says "HTTP/2 200" "$(header https://127.0.0.1/healthz)"
check "with HSTS" says "strict-transport-security: max-age=31536000" "$(header https://127.0.0.1/healthz)"
check "plain HTTP is sent on" says "308" "$(curl -s -o /dev/null -w '%{http_code}' -H 'Host: cutroom.example.com' http://127.0.0.1/healthz)"
check "to no other name" says "000" "$(curl -s -o /dev/null -w '%{http_code}' -H 'Host: other.example' http://127.0.0.1/healthz)"
truncate -s 600M /tmp/large
check "too large a body is refused in the service's form" says '{"error":"The upload is too large"}' "$(curl -sk --data-binary @/tmp/large https://127.0.0.1/api/v2/separate)"
rm /tmp/large
stem="https://127.0.0.1/api/v2/separate/sep-1/stem/voice?token=verysecret"
curl -sk "$stem" >/dev/null

check "stops with 0" stop
check "a replica that is away is told in JSON" says '{"error":"The service is restarting' "$(curl -sk "$stem")"
check "with HSTS, too" says "strict-transport-security" "$(header "$stem")"
check "the access log holds no token" lacks verysecret /var/log/nginx/access.log
check "nor does the error log" lacks verysecret /var/log/nginx/error.log
nginx -s stop

apt-get install -y -qq ./dist/0.2.0/cutroom_0.2.0_amd64.deb >/tmp/install.log 2>&1 || { tail -n 20 /tmp/install.log; exit 1; }
check "upgraded" says "cutroom 0.2.0" "$(cutroom version)"
check "the settings are as they were" says "$sum" "$(sha256sum $settings)"
check "serves the same database" start
check "stops again" stop
apt-get remove -y -qq cutroom >/dev/null 2>&1
check "removed, but for settings and data" sh -c "! command -v cutroom && [ -e $settings ] && [ -e /var/lib/cutroom/cutroom.db ]"
apt-get purge -y -qq cutroom >/dev/null 2>&1
check "purged, but for data" sh -c '[ ! -e /etc/cutroom ] && [ -e /var/lib/cutroom/cutroom.db ]'
exit $failed
