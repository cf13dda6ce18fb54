#!/usr/bin/env bash
# Rehearses deploy/cutroom.service and the backup units under a real systemd (make drill-unit): the watchdog restarts a
# service that hangs, secrets come from LoadCredential, and the backup
# units back up and verify.
#
# systemd runs as process 1 of namespaces of its own. Its files are an overlay of this machine's, and vanish with it;
# its only network is loopback. It needs root, and Debian's packages systemd and postgresql. If CI is set, a machine that
# forbids such namespaces skips the drill.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -n "${CI-}" ] && [ $$ != 1 ] && [ "${1-}" != inside ]; then
	why=
	[ "$(id -u)" = 0 ] || why="only root can start it"
	for program in /lib/systemd/systemd /usr/bin/pg_createcluster; do
		[ -x "$program" ] || why="$program is missing"
	done
	[ -n "$why" ] || unshare --mount --pid --fork --kill-child --uts --ipc --net --cgroup --propagation private sh -ec '
		mount -t tmpfs tmpfs /tmp && cd /tmp && mkdir up work root groups
		mount -t overlay overlay -o lowerdir=/,upperdir=up,workdir=work root && mount -t cgroup2 cgroup2 groups' \
		2>/dev/null || why="this machine gives no namespaces, overlays or control groups"
	[ -z "$why" ] || { echo "SKIPPED: the units under a real systemd: $why"; exit 0; }
fi

if [ $$ != 1 ] && [ "${1-}" != inside ]; then
	work=$(mktemp -d /dev/shm/cutroom-unit.XXXXXX) cgroups=/sys/fs/cgroup
	[ -d $cgroups/unified ] && cgroups=$cgroups/unified
	export work repo=$PWD cgroup=$cgroups/${work##*/}
	machine=
	finish() {
		[ -z "$machine" ] || { kill -KILL "$machine" 2>/dev/null && wait "$machine" || true; } 2>/dev/null
		for _ in $(seq 50); do # its processes are still ending
			find "$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null || true
			[ -e "$cgroup" ] || break
			sleep 0.1
		done
		rm -rf --one-file-system "$work"
	}
	trap finish EXIT
	trap 'exit 130' INT TERM
	mkdir -p "$work/up" "$work/tmp" "$work/root" "$cgroup/init.scope"
	unshare --mount --pid --fork --kill-child --uts --ipc --net --propagation private bash -ec '
		echo 0 >"$cgroup/init.scope/cgroup.procs"
		exec unshare --cgroup scripts/drill-unit.sh' </dev/null >"$work/systemd.log" 2>&1 &
	machine=$!
	for _ in $(seq 150); do
		init=$(pgrep -P "$machine" -x systemd) && nsenter -t "$init" -m -p systemctl is-system-running --wait >/dev/null 2>&1 && break
		kill -0 "$machine" 2>/dev/null || break
		sleep 0.2
	done
	[ -n "$init" ] || { tail -n 20 "$work/systemd.log"; exit 1; }
	nsenter -t "$init" -m -p -u -i -n -C env -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin "$repo/scripts/drill-unit.sh" inside
	exit
fi

if [ $$ = 1 ]; then # becomes systemd
	mount -t overlay overlay -o "lowerdir=/,upperdir=$work/up,workdir=$work/tmp" "$work/root"
	cd "$work/root"
	mount -t proc proc proc
	mount -t sysfs sysfs sys
	mount -t cgroup2 cgroup2 sys/fs/cgroup
	mount -t tmpfs -o mode=0755 tmpfs run
	mount -t tmpfs -o mode=1777 tmpfs tmp
	mount --rbind /dev dev
	mount -t tmpfs -o mode=1777 tmpfs dev/shm # RemoveIPC empties it of the service's files
	mkdir -p mnt/host
	ip link set lo up
	: >etc/fstab
	rm -f usr/sbin/policy-rc.d
	# Start only what the drill needs.
	ln -sf /lib/systemd/system/basic.target etc/systemd/system/default.target
	pivot_root . mnt/host
	cd /
	umount -l /mnt/host
	mount --make-rshared / # otherwise services do not see their credentials
	exec env -i container=drill PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd
fi

check() { # what, command...
	local what=$1
	shift
	"$@" >/tmp/check.log 2>&1 || { echo "FAIL  $what"; tail -n 20 /tmp/check.log; journalctl --no-pager -n 20; exit 1; }
	echo "ok    $what"
}
fails() { ! "$@"; }
says() { "${@:2}" | tee -a /tmp/said.log | grep -F -- "$1"; }
setting() { sed -i "/^#*$1=/d" /etc/cutroom/cutroom.env && echo "$1=$2" >>/etc/cutroom/cutroom.env; }
dropin() { mkdir -p /etc/systemd/system/cutroom.service.d && printf '[Service]\n%s\n' "$@" >/etc/systemd/system/cutroom.service.d/drill.conf && systemctl daemon-reload; }
ready() { for _ in $(seq 150); do curl -sf http://127.0.0.1:9090/readyz && return; sleep 0.2; done; return 1; }

# Follow the head of the unit; the program is already built.
eval "$(sed -n 's/^#   make build && //p; s/^#   \(adduser\|install\) /\1 /p' deploy/cutroom.service | sed 's/ *# .*//')" >/dev/null 2>&1
setting DATABASE_URL sqlite:///var/lib/cutroom/cutroom.db
for key in DB_USER DB_PASSWORD AUTH_PROVIDER_A_CLIENT_IDS SEPARATION_PROVIDER_API_KEY SEPARATION_SIGNING_SECRET; do
	setting $key "$(printf 's%.0s' {1..40})"
done
setting SEPARATION_PROVIDER_SPACE_ID 1
sed -i '/^AUTH_JWT_SECRET=/d' /etc/cutroom/cutroom.env
printf 'j%.0s' {1..40} >/root/jwt && chmod 600 /root/jwt
dropin LoadCredential=jwt:/root/jwt Environment=AUTH_JWT_SECRET_FILE=%d/jwt

check "starts with a secret from LoadCredential" systemctl start cutroom
check "is ready" ready
kill -STOP "$(systemctl show -p MainPID --value cutroom)"
hung=$SECONDS
check "the watchdog restarts it" bash -c 'for i in $(seq 150); do [ "$(systemctl show -p NRestarts --value cutroom)" = 1 ] && exit; sleep 0.2; done; exit 1'
check "and it is ready again" ready
echo "      after $((SECONDS - hung)) s"
check "ignores SIGHUP" bash -c 'systemctl kill -s HUP cutroom && sleep 1 && [ "$(systemctl show -p NRestarts --value cutroom)" = 1 ]'
check "stops" systemctl stop cutroom
check "with status 0" says success systemctl show -p Result cutroom
check "exposure is at most 2.5" bash -c 'systemd-analyze security --threshold=25 cutroom'

version=$(ls /usr/lib/postgresql | sort -V | tail -n 1)
pg_createcluster "$version" drill -- --auth-local trust >/dev/null
install -D -m 0755 deploy/postgres/backup.sh /usr/share/cutroom/backup.sh
install -m 0644 deploy/systemd/* /etc/systemd/system/
install -d -o postgres -m 0700 /var/backups/cutroom-postgres
printf '%s\n' 'archive_mode = on' "archive_command = '/usr/share/cutroom/backup.sh archive %p %f'" >"/etc/postgresql/$version/drill/conf.d/cutroom.conf"
echo "PGPORT=$(pg_lsclusters -h | awk '$2 == "drill" { print $3 }')" >/etc/cutroom/backup.env
. /etc/cutroom/backup.env && export PGPORT
systemctl daemon-reload
systemctl start "postgresql@$version-drill"
runuser -u postgres -- createdb cutroom
runuser -u postgres -- psql -q cutroom -c 'CREATE TABLE credit_balances (user_id text, balance int)' -c 'CREATE TABLE credit_ledger (user_id text, amount int, created_at bigint)'
check "the timers are valid" systemctl enable --now cutroom-backup.timer cutroom-backup-verify.timer
check "backs up" systemctl start cutroom-backup
check "verifies" systemctl start cutroom-backup-verify
