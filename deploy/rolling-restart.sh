#!/usr/bin/env bash
# Replaces the replicas of the compose file one after the other. No request that ends
# within the drain (25 s) is lost; uploads straight to the bucket do not pass here.
# The front stops sending to a replica, the replica drains and is replaced by one of
# the new image, and the front sends to it again when it is healthy.
#
#   ./rolling-restart.sh            rebuild, migrate, replace both
set -euo pipefail
cd "$(dirname "$0")"

replicas=nginx/replicas.conf
saved=$(cat "$replicas")

# Rewrite the file in place: nginx mounts the folder and would see a new file as well.
put() { printf '%s\n' "$1" >"$replicas"; docker compose exec -T front nginx -t -q && docker compose exec -T front nginx -s reload; }
trap 'put "$saved"' EXIT

docker compose build cutroom-1
docker compose run --rm -T migrate
for replica in cutroom-1 cutroom-2; do
	echo "replacing $replica"
	put "${saved//server $replica:8080 /server $replica:8080 down }"
	sleep 1 # from here on the front's old workers accept no new connections
	docker compose up -d --no-deps --wait "$replica"
	put "$saved"
done
