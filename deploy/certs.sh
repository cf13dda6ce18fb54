#!/usr/bin/env bash
# Makes the certificates of the compose file, once, and again a month before
# they expire: a private authority, a server certificate for PostgreSQL, and one
# for the front unless ./tls holds fullchain.pem and privkey.pem of your own.
#
# The script deletes the authority's key at the end, so nothing else can ever be
# signed with it. Replacing the certificates therefore replaces the authority: restart
# PostgreSQL, the front and the replicas afterwards.
set -euo pipefail

root=${CERTS_ROOT:-}            # "" in the container
postgres=$root/tls/postgres     # server.crt, server.key
front=$root/tls/front           # fullchain.pem, privkey.pem
authority=$root/tls/authority   # ca.crt, which the replicas trust
own=$root/tls/own               # yours, read-only
api_host=${CUTROOM_HOST:?}
s3_host=${S3_HOST:?}
days=825
renew=$((30 * 24 * 3600)) # seconds before the end

own_front() { [ -s "$own/fullchain.pem" ] && [ -s "$own/privkey.pem" ]; }

fresh() { # certificate, the name that it must be for
	[ -s "$1" ] && openssl x509 -noout -checkend "$renew" -in "$1" >/dev/null &&
		openssl x509 -noout -checkhost "$2" -in "$1" | grep -q 'does match'
}

# issue NAMES KEY CERTIFICATE signs a certificate for the comma-separated names.
issue() {
	local names=DNS:${1//,/,DNS:}
	openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
		-subj "/CN=${1%%,*}" -keyout "$2" -out "$work/request.pem" 2>/dev/null
	openssl x509 -req -in "$work/request.pem" -days "$days" -CA "$work/ca.crt" -CAkey "$work/ca.key" -CAcreateserial \
		-extfile <(printf 'subjectAltName=%s\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n' "$names") \
		-out "$3" 2>/dev/null
}

mkdir -p "$postgres" "$front" "$authority"
if fresh "$postgres/server.crt" postgres && { own_front || { fresh "$front/fullchain.pem" "$api_host" && fresh "$front/fullchain.pem" "$s3_host"; }; }; then
	echo "certificates are good"
else
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	umask 077
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days "$days" -subj "/CN=cutroom private authority" \
		-addext basicConstraints=critical,CA:TRUE,pathlen:0 -addext keyUsage=critical,keyCertSign,cRLSign \
		-keyout "$work/ca.key" -out "$work/ca.crt" 2>/dev/null
	issue postgres "$work/server.key" "$work/server.crt"
	issue "$api_host,$s3_host" "$work/privkey.pem" "$work/fullchain.pem"
	install -m 0644 "$work/ca.crt" "$authority/ca.crt"
	install -m 0644 "$work/server.crt" "$postgres/server.crt"
	install -m 0600 "$work/server.key" "$postgres/server.key"
	install -m 0644 "$work/fullchain.pem" "$front/fullchain.pem"
	install -m 0600 "$work/privkey.pem" "$front/privkey.pem"
	echo "certificates made for postgres, $api_host and $s3_host"
fi
if own_front; then
	install -m 0644 "$own/fullchain.pem" "$front/fullchain.pem"
	install -m 0600 "$own/privkey.pem" "$front/privkey.pem"
	echo "the front uses the certificate in ./tls"
fi
# PostgreSQL refuses a key that others can read. The user exists in its image.
if [ "$(id -u)" = 0 ] && id postgres >/dev/null 2>&1; then
	chown postgres:postgres "$postgres/server.key" "$postgres/server.crt"
fi
