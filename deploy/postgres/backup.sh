#!/usr/bin/env bash
# Backs up cutroom's PostgreSQL cluster so that any moment can be restored.
#
#   backup.sh base             make a base backup; keep the newest KEEP of them
#   backup.sh archive %p %f    the archive_command: copy one segment of the log
#   backup.sh restore DIR      fill DIR from base backup and log, ready to start
#   backup.sh verify           restore into a scratch cluster, start it and compare
#                              every balance with its ledger; fails if they differ,
#                              or if no log was archived within the last day
#
# It runs as the user of the database server. Everything is in BACKUP_DIR, which only
# that user can read; copy it to another machine. cutroom-backup.timer and
# cutroom-backup-verify.timer run it.
set -euo pipefail
umask 077
dir=${BACKUP_DIR:-/var/backups/cutroom-postgres} keep=${KEEP:-7}
bin=${PG_BIN:-$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)}

newest() { find "$dir/base" -mindepth 1 -maxdepth 1 -name '2*' | sort | tail -n 1; }

base() {
	local name part
	name=$(date -u +%Y%m%dT%H%M%SZ)
	part=$dir/base/$name.part
	mkdir -p "$dir/base" "$dir/wal"
	rm -rf "$dir"/base/*.part
	"$bin/pg_basebackup" --pgdata "$part" --format plain --checkpoint fast --wal-method none --no-password
	chmod -R go= "$part"
	sync -f "$part"
	mv "$part" "$dir/base/$name"
	find "$dir/base" -mindepth 1 -maxdepth 1 -name '2*' | sort | head -n "-$keep" | xargs -r rm -rf
	# No restore needs the log from before the oldest base backup.
	local oldest first
	oldest=$(find "$dir/base" -mindepth 1 -maxdepth 1 -name '2*' | sort | head -n 1)
	first=$(sed -n 's/^START WAL LOCATION: .*(file \([0-9A-F]*\))$/\1/p' "$oldest/backup_label")
	"$bin/pg_archivecleanup" "$dir/wal" "$first"
	echo "base backup $name, $(du -sh "$dir" | cut -f1) in all"
}

# PostgreSQL repeats a segment until this succeeds, and keeps it until then.
archive() {
	local from=$1 name=$2
	mkdir -p "$dir/wal"
	if [ -e "$dir/wal/$name" ]; then
		cmp -s "$from" "$dir/wal/$name" && return 0
		echo "backup.sh: $name is archived already, with other contents" >&2
		return 1
	fi
	cp "$from" "$dir/wal/$name.part"
	sync "$dir/wal/$name.part"
	mv "$dir/wal/$name.part" "$dir/wal/$name"
	sync -f "$dir/wal"
}

restore() {
	local to=$1 from
	from=$(newest)
	[ -n "$from" ] || { echo "backup.sh: no base backup in $dir" >&2; return 1; }
	[ -z "$(ls -A "$to" 2>/dev/null)" ] || { echo "backup.sh: $to is not empty" >&2; return 1; }
	mkdir -p "$to"
	cp -a "$from/." "$to"
	chmod 700 "$to"
	mkdir -p "$to/pg_wal/archive_status"
	# Leave archiving on: the restored server must continue it.
	cat >>"$to/postgresql.auto.conf" <<-CONF
		restore_command = 'cp "$dir/wal/%f" "%p"'
		recovery_target_timeline = latest
	CONF
	touch "$to/recovery.signal"
}

verify() {
	local scratch started=
	[ -n "$(find "$dir/wal" -type f -newermt '-1 day' -print -quit)" ] || {
		echo "backup.sh: PostgreSQL has archived no log for a day: see archive_mode and pg_stat_archiver" >&2
		return 1
	}
	scratch=$(mktemp -d "${TMPDIR:-/tmp}/cutroom-verify.XXXXXX")
	trap '[ -z "$started" ] || "$bin/pg_ctl" --pgdata "$scratch/data" --mode immediate stop >/dev/null || true; rm -rf "$scratch"' RETURN
	restore "$scratch/data"
	# Debian keeps these files outside the data folder; the scratch cluster has its
	# own.
	printf 'local all all trust\n' >"$scratch/hba"
	touch "$scratch/ident"
	grep -v '^archive' "$scratch/data/postgresql.auto.conf" >"$scratch/conf"
	printf "listen_addresses = ''\nssl = off\narchive_mode = off\n" >>"$scratch/conf"
	started=1
	"$bin/pg_ctl" --pgdata "$scratch/data" --wait --timeout "${VERIFY_TIMEOUT:-3600}" --log "$scratch/log" --silent start \
		--options "-c config_file=$scratch/conf -c hba_file=$scratch/hba -c ident_file=$scratch/ident -c unix_socket_directories=$scratch -c max_connections=${MAX_CONNECTIONS:-500}" ||
		{ tail -n 20 "$scratch/log" >&2; return 1; }
	local i
	for i in $(seq "${VERIFY_TIMEOUT:-3600}"); do
		[ "$(ask "$scratch" 'SELECT pg_is_in_recovery()')" = t ] || break
		sleep 1
	done
	local differing
	differing=$(ask "$scratch" "SELECT count(*) FROM credit_balances b
		FULL JOIN (SELECT user_id, SUM(amount) AS total FROM credit_ledger GROUP BY user_id) l USING (user_id)
		WHERE COALESCE(b.balance, 0) <> COALESCE(l.total, 0)")
	[ "$differing" = 0 ] || { echo "backup.sh: $differing balances differ from their ledger" >&2; return 1; }
	echo "restored $(basename "$(newest)") and the log to $(ask "$scratch" "SELECT COALESCE(to_timestamp(max(created_at) / 1000.0)::text, 'an empty ledger') FROM credit_ledger")"
}

ask() { "$bin/psql" --host "$1" --no-psqlrc --tuples-only --no-align --dbname "${DATABASE:-cutroom}" --command "$2"; }

case ${1-} in
base | verify) "$1" ;;
archive) archive "$2" "$3" ;;
restore) restore "$2" ;;
*)
	sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
