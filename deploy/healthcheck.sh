#!/bin/bash
# Succeeds if the service in this container answers GET /healthz with 200, at its
# public port or, if its ROLES have none, at the port of OPS_ADDR. Uses only bash: the
# image has no HTTP client, so an intruder finds none either.
set -euo pipefail
port=${PORT:-8080}
case ${ROLES:-api} in *api*) ;; *) port=${OPS_ADDR##*:} ;; esac
exec 3<>"/dev/tcp/127.0.0.1/$port"
printf 'GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n' >&3
read -r -t 2 _ status _ <&3
[ "$status" = 200 ]
