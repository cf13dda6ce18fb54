#!/usr/bin/env bash
# A real S3 server for the tests, on a free loopback port, with its files in a
# temporary folder: versitygw, or MinIO with S3_SERVER=minio, which takes
# minutes to build.
#
#   scripts/s3.sh run CMD...   runs CMD with CUTROOM_TEST_S3 set, then stops the server
#   scripts/s3.sh start        starts a server and prints the value of CUTROOM_TEST_S3
#   scripts/s3.sh stop         stops that server and removes its files
#   scripts/s3.sh install      installs the server into .tools/bin if it is missing
#
# The value has the form http://ACCESS:SECRET@127.0.0.1:PORT/BUCKET?region=REGION. The
# region is nobody's default, because every store has a different one. If a server
# is already running, start prints its value.
set -euo pipefail

server=${S3_SERVER:-versitygw}
case $server in
versitygw) module=github.com/versity/versitygw/cmd/versitygw version=v1.8.0 health=/health region=us-west-7 ;;
minio) module=github.com/minio/minio version=v0.0.0-20260212201848-7aac2a2c5b7c health=/minio/health/live region=eu-central-1 ;;
*) echo "s3.sh: S3_SERVER is versitygw or minio" >&2 && exit 2 ;;
esac
root=$(cd "$(dirname "$0")/.." && pwd)
tools=$root/.tools
binary=$tools/bin/$server-$version
state=$tools/s3.state # three lines: process id, folder, value

access=cutroomtest
secret=cutroomtestsecret
bucket=cutroom-test

install() {
	[ -x "$binary" ] && return
	mkdir -p "$tools/bin"
	exec 9>"$tools/install.lock"
	flock 9 # let only one of several test runs build it
	if [ ! -x "$binary" ]; then
		echo "s3.sh: installing $server $version (a minute or more, once)" >&2
		staging=$(mktemp -d "$tools/install.XXXXXX")
		GOBIN=$staging GOFLAGS=-trimpath CGO_ENABLED=0 go install -ldflags "-s -w" "$module@$version" >&2
		mv "$staging/$server" "$binary"
		rmdir "$staging"
	fi
	exec 9>&-
}

# serve replaces the process with the server.
serve() {
	case $server in
	versitygw)
		# Keep metadata in files, because not every file system has user attributes.
		exec "$binary" --access "$access" --secret "$secret" --region "$region" --quiet --port "$1" --health "$health" \
			posix --sidecar "$dir/meta" "$dir/objects"
		;;
	minio)
		MINIO_ROOT_USER=$access MINIO_ROOT_PASSWORD=$secret MINIO_REGION=$region MINIO_BROWSER=off \
			exec "$binary" server --quiet --address "$1" "$dir/objects"
		;;
	esac
}

# launch sets pid, dir and value, or fails.
launch() {
	install
	dir=$(mktemp -d "${TMPDIR:-/tmp}/cutroom-s3.XXXXXX")
	mkdir -p "$dir/objects" "$dir/meta"
	local try port
	for try in 1 2 3 4 5 6 7 8; do
		port=$((20000 + (RANDOM * 32768 + RANDOM) % 12000))
		serve "127.0.0.1:$port" >"$dir/log" 2>&1 9>&- &
		pid=$!
		if healthy "$port"; then
			mkdir "$dir/objects/$bucket" # both servers keep a bucket in a folder
			value="http://$access:$secret@127.0.0.1:$port/$bucket?region=$region"
			return
		fi
		halt "$pid" # the port may be in use
	done
	echo "s3.sh: the server does not start:" >&2
	tail -n 20 "$dir/log" >&2
	rm -rf "$dir"
	return 1
}

# healthy waits until our server answers, and not another process on the port.
healthy() {
	local i
	for i in $(seq 100); do
		kill -0 "$pid" 2>/dev/null || return 1
		if (exec 3<>"/dev/tcp/127.0.0.1/$1" && printf 'GET %s HTTP/1.0\r\nHost: x\r\n\r\n' "$health" >&3 && head -n 1 <&3 | grep -q ' 200') 2>/dev/null; then
			kill -0 "$pid" 2>/dev/null
			return
		fi
		sleep 0.1
	done
	return 1
}

# halt ends a process and waits for its end.
halt() {
	kill "$1" 2>/dev/null || return 0
	local i
	for i in $(seq 50); do
		kill -0 "$1" 2>/dev/null || return 0
		sleep 0.1
	done
	kill -9 "$1" 2>/dev/null || true
}

# running reports whether the recorded process is still our server.
running() {
	[ -f "$state" ] && [ "$(readlink "/proc/$(sed -n 1p "$state")/exe" 2>/dev/null)" = "$binary" ]
}

case "${1-}" in
install)
	install
	;;
run)
	shift
	launch
	trap 'halt "$pid"; rm -rf "$dir"' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	CUTROOM_TEST_S3=$value "$@"
	;;
start)
	if ! running; then
		launch
		disown "$pid"
		printf '%s\n' "$pid" "$dir" "$value" >"$state"
	fi
	sed -n 3p "$state"
	;;
stop)
	if [ -f "$state" ]; then
		if running; then halt "$(sed -n 1p "$state")"; fi
		rm -rf "$(sed -n 2p "$state")"
		rm -f "$state"
	fi
	;;
*)
	sed -n '2,13s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
