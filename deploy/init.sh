#!/bin/sh
# Makes .env from .env.example, with a random password for each user of NATS and Redis. It changes no line of a .env that
# exists, and adds only the passwords that it lacks.
set -eu
umask 077
cd "$(dirname "$0")/.."
if [ -e .env ]; then echo ".env exists, and keeps its lines"; else cp .env.example .env; echo "made .env"; fi
chmod go-rwx .env
[ -z "$(tail -c 1 .env)" ] || echo >>.env
for name in NATS_WORKER_PASSWORD NATS_PUBLISHER_PASSWORD NATS_OPERATOR_PASSWORD REDIS_PASSWORD; do
  if grep -q "^$name=." .env; then continue; fi
  random=$(head -c 24 /dev/urandom | od -An -v -tx1 | tr -d ' \n')
  [ ${#random} -eq 48 ] || { echo "init: /dev/urandom gave no random bytes; $name is not set" >&2; exit 1; }
  echo "$name=p$random" >>.env # NATS takes a value for a number if it begins with a digit
  echo "added $name to .env"
done
# Containers read these as other users. Git makes them private under a strict umask.
chmod -R a+rX deploy/nats.conf observability
if grep -qE '^(NATS|REDIS)_URL(_FILE)?=.' .env; then
  echo "warning: NATS_URL and REDIS_URL have no effect in .env; docs/operating.md has how to use your own servers" >&2
fi
if ! grep -qE '^SLACK_(BOT_TOKEN|WEBHOOK_URL)(_FILE)?=.' .env; then
  echo "next: set SLACK_BOT_TOKEN and SLACK_CHANNEL in .env, or SLACK_WEBHOOK_URL"
fi
