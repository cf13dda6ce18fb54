#!/usr/bin/env bash
# Replaces the replicas of the compose file one after the other, without losing
# a request that ends within the drain (25 s; an upload straight to the bucket
# does not pass here): the front stops sending to a replica, the replica drains
# and is replaced by one of the new image, and is sent to again once it is healthy.
#
#   ./rolling-restart.sh            rebuild, migrate, replace both
set -euo pipefail
cd "$(dirname "$0")"

replicas=nginx/replicas.conf
saved=$(cat "$replicas")

# The file is rewritten in place: nginx sees the folder, and a new file too.
put() { printf '%s\n' "$1" >"$replicas"; docker compose exec -T front nginx -t -q && docker compose exec -T front nginx -s reload; }
trap 'put "$saved"' EXIT

docker compose build cutroom-1
docker compose run --rm -T migrate
for replica in cutroom-1 cutroom-2; do
	echo "replacing $replica"
	put "${saved//server $replica:8080 /server $replica:8080 down }"
	sleep 1 # the front's old workers take no new connections from here on
	docker compose up -d --no-deps --wait "$replica"
	put "$saved"
done
