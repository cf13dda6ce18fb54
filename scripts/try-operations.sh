#!/usr/bin/env bash
# Follows docs/setup.md and docs/operations.md without containers, on a disposable
# machine without systemd: installs, makes the roles, migrates, serves as the
# restricted role, grants a role, backs up and restores, rotates a secret, adds a
# replica, drains one. Runs the pages' blocks that begin with a comment exactly as
# they are. Needs root, Debian, and bin/cutroom (make try-operations).
set -euo pipefail
cd "$(dirname "$0")/.."
export DEBIAN_FRONTEND=noninteractive
repo=$PWD pages="$PWD/docs/operations.md $PWD/docs/setup.md"
[ ! -e /etc/cutroom ] && [ ! -e /var/lib/cutroom ] || { echo "try-operations.sh: not on a machine that has cutroom" >&2; exit 2; }
scripts/setup.sh run
apt-get install -y -qq --no-install-recommends postgresql curl openssl >/dev/null

failed=0 work=$(mktemp -d) first= second= cluster=
check() { # what, command...
	local what=$1
	shift
	if "$@" >"$work/check.log" 2>&1; then echo "ok    $what"; else
		echo "FAIL  $what"
		tail -n 15 "$work/check.log"
		failed=1
	fi
}
says() { grep -qF -- "$1" <<<"$2" || { echo "no '$1' in: $2"; return 1; }; }
fails() { ! "$@"; }
# block prints the commands below a comment in the pages.
block() { awk -v head="# $1" '$0 == head { on = 1; next } /^```/ { on = 0 } on' $pages | grep . || { echo "no block '$1'" >&2; exit 1; }; }
number() { db psql -tA cutroom -c "$1"; }
status() { curl -s -o /dev/null -w '%{http_code}' "$@"; }

# launch starts a replica as the unit does: program, folder, port, operators' port,
# further settings; the process is $!.
launch() {
	local folder=$1 port=$2 ops=$3 i
	shift 3
	(cd "$folder" && exec setpriv --reuid cutroom --regid cutroom --clear-groups env STORAGE_PATH="$folder" BIND_ADDR=127.0.0.1 \
		PORT="$port" OPS_ADDR="127.0.0.1:$ops" "$@" cutroom serve --env-file /etc/cutroom/cutroom.env >>"$work/$port.log" 2>&1) &
	local process=$!
	for i in $(seq 150); do
		[ "$(status "http://127.0.0.1:$port/healthz")" != 200 ] || { launched=$process; return 0; }
		kill -0 $process 2>/dev/null || break
		sleep 0.2
	done
	tail -n 20 "$work/$port.log"
	return 1
}
systemctl() { # for this unit only
	case $1 in
	start) launch /var/lib/cutroom 8080 9090 && first=$launched ;;
	stop) kill -TERM "$first" && wait "$first" && first= ;;
	restart) systemctl stop && systemctl start ;;
	esac
}
finish() {
	for p in $first $second; do kill -TERM "$p" && wait "$p" || true; done
	[ -z "$cluster" ] || runuser -u postgres -- "$bin/pg_ctl" -D "$work/cluster" -m immediate stop >/dev/null || true
	"$repo/scripts/s3.sh" stop >/dev/null || true
	rm -rf "$work"
}
trap finish EXIT
chmod 0755 "$work"

# The servers around it: PostgreSQL with TLS, and a store.
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
install -d -o postgres "$work/cluster" "$work/socket"
runuser -u postgres -- "$bin/initdb" -D "$work/cluster" --auth-host scram-sha-256 --auth-local peer >/dev/null 2>&1
openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -addext subjectAltName=DNS:localhost -days 2 -keyout "$work/cluster/server.key" -out "$work/ca.crt" 2>/dev/null
cp "$work/ca.crt" "$work/cluster/server.crt"
chown postgres "$work"/cluster/server.*
runuser -u postgres -- "$bin/pg_ctl" -D "$work/cluster" -w -l "$work/cluster/log" -o "-p 54329 -k $work/socket -c ssl=on" start >/dev/null
cluster=up
export PGHOST=$work/socket PGPORT=54329
store=$(scripts/s3.sh start)
credentials=${store#http://} credentials=${credentials%@*}

# Install.
useradd --system --user-group --home-dir /var/lib/cutroom --shell /usr/sbin/nologin cutroom
install -m 0755 bin/cutroom /usr/bin/cutroom
install -d -o cutroom -g cutroom -m 0700 /var/lib/cutroom /var/lib/cutroom-2
export DB_OWNER_PASSWORD=owner-password DB_PASSWORD=service-password
runuser -u postgres -- createdb cutroom
check "makes the roles" runuser -u postgres -- psql -q -f - <deploy/postgres/roles.sql
unset DB_PASSWORD
secret=$(openssl rand -hex 32)
settings() { # DB_USER, DB_PASSWORD
	cat <<-EOF
		DATABASE_URL=postgres://localhost:54329/cutroom?sslmode=verify-full&sslrootcert=$work/ca.crt
		DB_USER=$1
		DB_PASSWORD=$2
		PUBLIC_BASE_URL=http://127.0.0.1:8080
		AUTH_JWT_SECRET=$secret
		SEPARATION_SIGNING_SECRET=$(openssl rand -hex 32)
		AUTH_PROVIDER_A_CLIENT_IDS=app
		SEPARATION_PROVIDER_API_KEY=key
		SEPARATION_PROVIDER_SPACE_ID=7
		MEDIA_CAGE=best-effort
		OBJECT_STORE_ENDPOINT=http://$(cut -d/ -f1 <<<"${store#*@}")
		OBJECT_STORE_REGION=${store#*region=}
		OBJECT_STORE_BUCKET=cutroom-test
		OBJECT_STORE_ACCOUNT_ID=00000000000000000000000000000000
		OBJECT_STORE_ACCESS_KEY_ID=${credentials%:*}
		OBJECT_STORE_SECRET_ACCESS_KEY=${credentials#*:}
	EOF
}
install -d /etc/cutroom
settings cutroom_service service-password | sed 's|/cutroom-test$||' >/etc/cutroom/cutroom.env
settings cutroom_owner owner-password | sed 's|/cutroom-test$||' >/etc/cutroom/owner.env
chown root:cutroom /etc/cutroom/*.env && chmod 0640 /etc/cutroom/*.env
eval "$(block "systemd, as root")"

check "the service's role cannot migrate" fails cutroom migrate
check "the service does not start on an old schema" fails launch /var/lib/cutroom 8080 9090
check "the owner's migrates" owner migrate
check "serves as the role that owns nothing" service start
doctor=$(cutroom doctor 2>/dev/null || true) # here no vendor knows the service
check "doctor likes the database" says "PostgreSQL answers" "$doctor"
check "doctor likes the disk" says "writable, " "$doctor"
check "doctor likes the bucket" says "put, get, presigned put and get, delete" "$doctor"

# The first admin.
check "no role before the first sign-in" fails cutroom admin grant staff@example.com
number "INSERT INTO users (id, provider, provider_sub, email, created_at, last_active_at)
	VALUES ('0190b6f2-7e0a-7cc1-8f5e-0123456789ab', 'provider_a', 'sub', 'staff@example.com', now_ms(), now_ms())" >/dev/null
check "gives a role" cutroom admin grant staff@example.com
check "lists it" says staff@example.com "$(cutroom admin list)"
token=$(cutroom admin token staff@example.com | grep -oE 'ey[A-Za-z0-9_.-]+' | head -n 1)
asks() { status -H "Authorization: Bearer $token" "http://127.0.0.1:${1:-8080}/api/v2/credits"; }
check "its token is good" says 200 "$(asks)"

# Backup, a loss, restore.
cd "$work"
eval "$(block backup)"
cutroom credits grant staff@example.com 5 --reason "after the backup" >/dev/null
service restart
check "restores" eval "set -e; $(block restore)"
kill -0 "$first" 2>/dev/null || service start
check "what came after the backup is gone" says 0 "$(number 'SELECT COUNT(*) FROM credit_ledger')"
check "who was there is there" says staff@example.com "$(cutroom admin list)"
check "the service's role still reads and writes" cutroom credits grant staff@example.com 2 --reason "after the restore"
check "the owner still migrates" owner migrate
cd "$repo"

# Add a second replica, and drain the first one beside it.
check "a second replica serves" launch /var/lib/cutroom-2 8081 9091
second=$launched
check "the token is good there" says 200 "$(asks 8081)"
check "drains with status 0" service stop
check "the other answers meanwhile" says 200 "$(asks 8081)"

# Upgrade and go back: another program at the same place, the owner's migration first.
install -m 0755 bin/cutroom /usr/bin/cutroom
check "upgrades" eval "owner migrate && service start"

# Rotate as the page says: nobody is signed out.
rotated=$(openssl rand -hex 32)
sed -i "s|^AUTH_JWT_SECRET=.*|AUTH_JWT_SECRET=$rotated\nAUTH_JWT_SECRET_PREVIOUS=$secret|" /etc/cutroom/cutroom.env
service restart
check "the old token is good beside the new secret" says 200 "$(asks)"
sed -i '/^AUTH_JWT_SECRET_PREVIOUS=/d' /etc/cutroom/cutroom.env
service restart
check "and not without the old one" says 401 "$(asks)"

service stop
check "the other replica is ready" says 200 "$(status http://127.0.0.1:9091/readyz)"
exit $failed
