#!/bin/bash
# Succeeds when the service in this container answers GET /healthz with 200.
# Written for bash alone: the image holds no HTTP client, which nobody who
# breaks in should find either.
set -euo pipefail
exec 3<>"/dev/tcp/127.0.0.1/${PORT:-8080}"
printf 'GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n' >&3
read -r -t 2 _ status _ <&3
[ "$status" = 200 ]
