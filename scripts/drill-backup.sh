#!/usr/bin/env bash
# Rehearses deploy/postgres/backup.sh on a cluster of its own (make drill-backup): archives the log, makes a base
# backup, writes more, restores to the last committed transaction, and must detect a tampered ledger.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
work=$(mktemp -d /tmp/cutroom-drill.XXXXXX) program=$PWD/bin/cutroom
cp deploy/postgres/backup.sh "$work/"
chmod 755 "$work" "$work/backup.sh"
[ "$(id -u)" != 0 ] || chown -R postgres "$work"
as() { if [ "$(id -u)" = 0 ]; then runuser -u postgres -- "$@"; else "$@"; fi; }
backup() { as env BACKUP_DIR="$work/backup" KEEP=2 PG_BIN="$bin" PGHOST="$work" PGUSER=postgres "$work/backup.sh" "$@"; }
sql() { as "$bin/psql" --host "$work" --username postgres --no-psqlrc --tuples-only --no-align --set ON_ERROR_STOP=1 --dbname cutroom --command "$1"; }
finish() {
	as "$bin/pg_ctl" --pgdata "$work/data" --mode immediate stop >/dev/null || true
	rm -rf "$work"
}
trap finish EXIT

as "$bin/initdb" --pgdata "$work/data" --username postgres --auth trust --no-sync >/dev/null
as openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
	-keyout "$work/data/server.key" -out "$work/data/server.crt" 2>/dev/null
as chmod 600 "$work/data/server.key"
port=$((20000 + RANDOM % 20000))
as tee -a "$work/data/postgresql.conf" >/dev/null <<CONF
listen_addresses = '127.0.0.1'
port = $port
unix_socket_directories = '$work'
ssl = on
archive_mode = on
archive_command = 'BACKUP_DIR=$work/backup $work/backup.sh archive %p %f'
CONF
export PGPORT=$port
as "$bin/pg_ctl" --pgdata "$work/data" --wait --silent --log "$work/log" start
as "$bin/createdb" --host "$work" --username postgres cutroom
secret=$(printf 's%.0s' {1..40})
env -i PATH="$PATH" DATABASE_URL="postgres://127.0.0.1:$port/cutroom?sslmode=require" DB_USER=postgres DB_PASSWORD=drill \
	AUTH_JWT_SECRET=$secret SEPARATION_SIGNING_SECRET=$secret AUTH_PROVIDER_A_CLIENT_IDS=drill \
	SEPARATION_PROVIDER_API_KEY=drill SEPARATION_PROVIDER_SPACE_ID=1 "$program" migrate

# pay gives a new user a number of credits.
pay() {
	sql "INSERT INTO users (id, provider, provider_sub, email, name, role, created_at, last_active_at) VALUES ('$1', 'provider_a', '$1', '', '', 'user', 1, 1);
	INSERT INTO credit_ledger (ref_id, user_id, kind, amount, created_at) VALUES ('signup-$1', '$1', 'signup', $2, $3);
	INSERT INTO credit_balances (user_id, balance) VALUES ('$1', $2)" >/dev/null
}
check() { # what, command...
	local what=$1
	shift
	"$@" >"$work/check.log" 2>&1 || { echo "FAIL  $what"; tail -n 20 "$work/check.log"; exit 1; }
	echo "ok    $what: $(tail -n 1 "$work/check.log")"
}
fails() { ! "$@"; }
pay 00000000-0000-0000-0000-000000000001 3 1000
check "base backup" backup base
pay 00000000-0000-0000-0000-000000000002 3 1700000000000
segment=$(sql "SELECT pg_walfile_name(pg_current_wal_lsn())")
sql "SELECT pg_switch_wal()" >/dev/null
until [ -e "$work/backup/wal/$segment" ]; do sleep 0.2; done
restored=$(backup verify)
check "restored to what was written after the base backup" grep 2023-11-14 <<<"$restored"
check "only its owner can read the backup" test -z "$(find "$work/backup" ! -type l -perm /077 | tee -a /dev/stderr)"
check "second base backup" backup base
check "third base backup, which removes the first" backup base
check "two base backups are kept" test "$(find "$work/backup/base" -mindepth 1 -maxdepth 1 | wc -l)" = 2
sql "UPDATE credit_balances SET balance = 4" >/dev/null
check "a base backup of a tampered ledger" backup base
check "verify detects the tampering" fails backup verify
