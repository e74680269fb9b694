#!/bin/sh
# Replaces the workers of docker-compose.yml one by one, with the settings in .env and the image as they are now:
#
#   sh deploy/roll.sh
#
# A worker that stops finishes its posts and returns the rest; the others go on. The next one is replaced when the new one is
# ready. Where that takes longer than ROLL_TIMEOUT seconds, it ends, and those that are not replaced yet go on as they were.
# Run it again when the cause is fixed: it begins with the workers that are not ready. COMPOSE_ENV_FILES names another file
# than .env.
set -eu
cd "$(dirname "$0")/.."

# ready CONTAINER
ready() { [ "$(docker inspect -f '{{if .State.Health}}{{.State.Health.Status}}{{end}}' "$1")" = healthy ]; }

broken='' sound=''
for worker in $(docker compose ps -aq notifier); do
  if ready "$worker"; then sound="$sound $worker"; else broken="$broken $worker"; fi
done
[ -n "$broken$sound" ] || { echo "roll: no worker is there to be replaced; start them: docker compose up -d --wait" >&2; exit 1; }

# Those that are not ready at once: compose waits for all.
for workers in "$broken" $sound; do
  [ -n "$workers" ] || continue
  docker stop $workers >/dev/null # for as long as stop_grace_period allows
  docker rm $workers >/dev/null
  docker compose up -d --no-deps --no-recreate --no-build --wait --wait-timeout "${ROLL_TIMEOUT:-120}" notifier || {
    echo "roll: a new worker is not ready; the others are as they were. See: docker compose logs --tail 20 notifier" >&2
    exit 1
  }
done
