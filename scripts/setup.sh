#!/usr/bin/env bash
# Installs missing dependencies from Debian's packages.
#
#   scripts/setup.sh run     for the service and the demo: ffmpeg, espeak-ng
#   scripts/setup.sh test    also for the tests: PostgreSQL, PgBouncer, Chromium, an S3 server
#   scripts/setup.sh kotlin  for scripts/kotlin.sh alone: a Java run time, org.json, OkHttp
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

need=()
have() { command -v "$1" >/dev/null 2>&1; }
if [ "${1:-run}" = kotlin ]; then
	have java || need+=(default-jre-headless)
	[ -e /usr/share/java/com.android.json.jar ] || need+=(libandroid-json-java)
	[ -e /usr/share/java/okhttp.jar ] || need+=(libokhttp-java)
else
	have ffmpeg && have ffprobe || need+=(ffmpeg)
	have espeak-ng || need+=(espeak-ng)
fi
if [ "${1:-run}" = test ]; then
	ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || need+=(postgresql)
	have chromium || need+=(chromium)
	have setpriv || need+=(util-linux)
	[ -x /usr/sbin/pgbouncer ] || need+=(pgbouncer)
	have sqlite3 || need+=(sqlite3)
	have jq || need+=(jq)
	have curl || need+=(curl)
	have debootstrap || need+=(debootstrap) # for scripts/fresh.sh
fi

as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo)
packages() {
	[ -n "${lists-}" ] || "${as_root[@]}" apt-get update -qq >&2
	lists=read
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "$@" >&2
}

if [ ${#need[@]} -gt 0 ]; then
	if [ "$(id -u)" != 0 ] && ! have sudo; then
		echo "setup.sh: please install these packages as root: ${need[*]}" >&2
		exit 1
	fi
	echo "setup.sh: installing ${need[*]}" >&2
	# Do not create a system cluster of PostgreSQL: the tests start their own.
	if [[ " ${need[*]} " == *" postgresql "* ]] && [ ! -e /etc/postgresql-common/createcluster.conf ]; then
		"${as_root[@]}" mkdir -p /etc/postgresql-common
		echo "create_main_cluster = false" | "${as_root[@]}" tee /etc/postgresql-common/createcluster.conf >/dev/null
	fi
	# Do not start a system PgBouncer either.
	if [[ " ${need[*]} " == *" pgbouncer "* ]] && [ ! -e /etc/systemd/system/pgbouncer.service ]; then
		"${as_root[@]}" mkdir -p /etc/systemd/system
		"${as_root[@]}" ln -s /dev/null /etc/systemd/system/pgbouncer.service
	fi
	packages "${need[@]}"
fi

if [ "${1:-run}" = test ]; then
	have patchelf || packages patchelf || echo "setup.sh: the tests take longer without patchelf" >&2
	scripts/s3.sh install
fi
