#!/usr/bin/env bash
# Rehearses deploy/postgres/backup.sh on a cluster of its own (make drill-backup): archives the log, makes a base
# backup, writes more, and restores to the last committed transaction. Then it loses the server's data, restores it by
# the commands of docs/operations.md, and checks that a user still has their credits and film. A tampered ledger, and a
# log that is no longer archived, must be detected.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
work=$(mktemp -d /tmp/cutroom-drill.XXXXXX) program=$PWD/bin/cutroom
cp deploy/postgres/backup.sh "$work/"
chmod 755 "$work" "$work/backup.sh"
[ "$(id -u)" != 0 ] || chown -R postgres "$work"
as() { if [ "$(id -u)" = 0 ]; then command runuser -u postgres -- "$@"; else "$@"; fi; }
backup() { as env BACKUP_DIR="$work/backup" KEEP=2 PG_BIN="$bin" PGHOST="$work" PGUSER=postgres "$work/backup.sh" "$@"; }
sql() { as "$bin/psql" --host "$work" --username postgres --no-psqlrc --tuples-only --no-align --set ON_ERROR_STOP=1 --dbname cutroom --command "$1"; }
stand_ins= service=
finish() {
	for p in $service $stand_ins; do kill "$p" 2>/dev/null && wait "$p" || true; done
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

# All other servers are stand-ins. The service migrates when it starts.
"$PWD/bin/sandbox" --stand-ins-only --port 0 --data "$work/stand-ins" >"$work/env" 2>"$work/stand-ins.log" &
stand_ins=$!
until grep -q '^WEBHOOK_URL=' "$work/env"; do sleep 0.2; done
setting() { sed -n "s/^$1='\(.*\)'$/\1/p" "$work/env"; }
service() {
	case $1 in
	start)
		(cd "$work" && exec env DATABASE_URL="postgres://127.0.0.1:$port/cutroom?sslmode=require" DB_USER=postgres DB_PASSWORD=drill PORT=$((port + 1)) \
			MEDIA_CAGE=best-effort STORAGE_PATH="$work/storage.$RANDOM" "$program" serve --env-file "$work/env" 2>>"$work/service.log") &
		service=$!
		until curl -sf -o /dev/null "$api/healthz"; do kill -0 $service || { tail -n 5 "$work/service.log"; return 1; }; sleep 0.2; done
		;;
	stop) kill "$service" && wait "$service" && service= ;;
	esac
}
api=http://127.0.0.1:$((port + 1))
service start

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

token=$(curl -s "$(setting AUTH_PROVIDER_A_TOKENINFO_URL | grep -o 'http://[^/]*')/__control/mint" -d '{"email":"ann@example.com"}' | jq -r .idToken)
token=$(curl -s "$api/api/v2/auth/provider_a" -H 'Content-Type: application/json' -d "{\"idToken\":\"$token\"}" | jq -r .accessToken)
call() { curl -sS --fail-with-body -H "Authorization: Bearer $token" "$api/api/v2/$@"; }
ffmpeg -nostdin -v error -f lavfi -i testsrc2=size=320x180:duration=1 "$work/clip.mp4"
pay 00000000-0000-0000-0000-000000000001 3 1000
check "base backup" backup base
pay 00000000-0000-0000-0000-000000000002 3 4000000000000
job=$(call render -F 'config={"segments":[{"sourceFileKey":"v","order":0,"durationMs":1000}]}' -F "v=@$work/clip.mp4" | jq -r .jobId)
until [ "$(call "render/$job/status" | jq -r .status)" = COMPLETED ]; do sleep 0.2; done
film=$(call "render/$job/download" -L | sha256sum)
segment=$(sql "SELECT pg_walfile_name(pg_current_wal_lsn())")
sql "SELECT pg_switch_wal()" >/dev/null
until [ -e "$work/backup/wal/$segment" ]; do sleep 0.2; done
restored=$(backup verify)
check "restored to what was written after the base backup" grep 2096-10-02 <<<"$restored"

# The data folder is lost. The page uses Debian's names of folders and commands; here they are replaced.
page() { # head of a block of commands
	awk -v head="# $1" '$0 == head { on = 1; next } /^```/ { on = 0 } on' docs/operations.md | grep . ||
		{ echo "docs/operations.md has no block '$1'" >&2; exit 1; }
}
systemctl() { as "$bin/pg_ctl" --pgdata "$work/data" --wait --silent --log "$work/log" --mode immediate "$1"; }
db() { as "$bin/$1" --host "$work" --username postgres --no-psqlrc "${@:2}"; }
runuser() { shift 3 && backup "${@:2}"; }
check "restored by the page's commands" eval "set -e; $(page 'restore from base backup and log' | sed "s|/var/lib/postgresql/15/main|$work/data|g")"
check "balances and ledger agree" grep -F "(0 rows)" <<<"$(eval "$(page 'balances that differ from their ledger')")"
check "the user's credits are there" test "$(call credits | jq .balance)" = 3
check "the user's film still downloads" test "$(call "render/$job/download" -L | sha256sum)" = "$film"
service stop
as rm -rf "$work/data.lost"
sql "SELECT pg_switch_wal()" >/dev/null
check "the restored server archives its log" eval 'for i in $(seq 100); do ls "$work"/backup/wal/00000002?????????* 2>/dev/null && break; sleep 0.2; done | grep .'
check "only its owner can read the backup" test -z "$(find "$work/backup" ! -type l -perm /077 | tee -a /dev/stderr)"
check "second base backup" backup base
check "third base backup, which removes the first" backup base
check "two base backups are kept" test "$(find "$work/backup/base" -mindepth 1 -maxdepth 1 | wc -l)" = 2
sql "UPDATE credit_balances SET balance = 4" >/dev/null
check "a base backup of a tampered ledger" backup base
check "verify detects the tampering" fails backup verify
sql "UPDATE credit_balances SET balance = 3" >/dev/null
check "a base backup of the corrected ledger" backup base
as find "$work/backup/wal" -type f -exec touch -d '-2 days' {} +
check "verify detects a log that is no longer archived" fails backup verify
