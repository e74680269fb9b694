#!/bin/sh
# Makes the passwords of NATS and Redis, once, and the files from which the services of docker-compose.yml read them.
#
#   docker compose up                                  runs this before anything else
#   docker compose run --rm secrets rotate NAME...     replaces passwords; docs/operations.md has the steps
#   docker compose run --rm secrets url                prints the URL with which programs on this machine publish
#   docker compose run --rm -T secrets set NAME <FILE  stores a secret of yours for the workers, as /secrets/worker/NAME
#
# Passwords are in /secrets/own, a volume that no other service has but in the demo. Everything else is made from them anew
# each time, so that changed permissions and names reach an installation that exists already. A file appears complete or not
# at all, in the volume of its reader, and only its reader's user may read it. SECRETS_DIR is another directory than /secrets.
set -eu
umask 022
deploy=$(cd "$(dirname "$0")" && pwd)
cd "${SECRETS_DIR:-/secrets}"
mkdir -p own nats redis worker publisher operator # volumes, but for the demo, where one volume is all of /secrets
umask 077

# The users of the images. notifier's is in the Dockerfile, redis:8-alpine's in that image.
root=0:0 notifier=65532:65532 redis_user=999:1000
names='nats-notifier nats-publisher nats-operator redis-notifier redis-health'

fail() { echo "secrets: $*" >&2; exit 2; }

# put FILE OWNER: standard input becomes the file, unless it is empty.
put() {
  rm -f "$1.new"
  cat >"$1.new"
  if ! grep -q '[^[:space:]]' "$1.new"; then
    rm -f "$1.new"
    fail "nothing to write to $1"
  fi
  chmod 0400 "$1.new"
  chown "$2" "$1.new"
  mv -f "$1.new" "$1"
}

# password NAME: prints it, and makes it if there is none.
password() {
  [ -s "own/$1" ] || head -c 24 /dev/urandom | od -An -v -tx1 | tr -d ' \n' | put "own/$1" "$root"
  password=$(cat "own/$1")
  [ ${#password} -eq 48 ] || fail "own/$1 has ${#password} characters, expected 48; to replace it: rotate $1"
  echo "$password"
}

# plain NAME VALUE: prints a name that the permissions below are given for. What means something to sed is not in it.
plain() {
  case $2 in *[!A-Za-z0-9_.*\>-]*) fail "$1 is $2; the servers of docker-compose.yml take letters, digits and _ - . * > in it" ;; esac
  echo "$2"
}

exec 9>own/lock
flock 9 # two at a time would make two passwords of each

command=${1:-make}
[ $# -eq 0 ] || shift
case $command in
  make | url) [ $# -eq 0 ] || fail "unexpected argument $1" ;;
  rotate)
    [ $# -gt 0 ] || fail "missing NAME, expected some of: $names"
    for name; do case " $names " in *" $name "*) ;; *) fail "no password is named $name, expected some of: $names" ;; esac done
    for name; do rm -f "own/$name"; done
    ;;
  set)
    case ${1:-} in '' | *[!a-z0-9-]* | nats-url | redis-url) fail "expected set NAME, of small letters, digits and -, and not nats-url or redis-url" ;; esac
    put "worker/$1" "$notifier"
    exit
    ;;
  *) fail "unknown command $command, expected rotate, url, set or none" ;;
esac

stream=$(plain NATS_STREAM "${NATS_STREAM:-NOTIFY}")
consumer=$(plain NATS_CONSUMER "${NATS_CONSUMER:-notifier}")
subject=$(plain NATS_SUBJECT "${NATS_SUBJECT:-notify.>}")
dead=$(plain DEAD_LETTER_SUBJECT "${DEAD_LETTER_SUBJECT:-$(echo "$stream" | tr A-Z a-z)-dead}")
dropped=$(plain DROPPED_SUBJECT "${DROPPED_SUBJECT:-}")
namespace=$(plain REDIS_NAMESPACE "${REDIS_NAMESPACE:-notifier}")

nats_notifier=$(password nats-notifier)
nats_publisher=$(password nats-publisher)
nats_operator=$(password nats-operator)
redis_notifier=$(password redis-notifier)
redis_health=$(password redis-health)
hash() { printf %s "$1" | sha256sum | cut -d ' ' -f 1; }

# render FILE: prints it, changed by the sed rules on standard input. No text at all is a failure, too: Redis would admit
# everybody with an empty list of users.
render() {
  text=$(sed -f /dev/stdin "$deploy/$1") || fail "$deploy/$1 cannot be read"
  [ -n "$text" ] || fail "$deploy/$1 is empty"
  printf '%s\n' "$text"
}

# The servers. NATS takes passwords as they are, Redis their hashes. No name contains @, so no rule changes what another one
# has put in.
conf=nats.conf also=
[ "${NATS_MODE:-}" != core ] || conf=nats-core.conf
[ -z "$dropped" ] || also=", \"$dropped.>\""
nats=$(render "$conf" <<END
s/NOTIFY/@STREAM@/g
s/"notify\.>/"@SUBJECT@/g
s/"notify-dead\.>"/"@DEAD@.>"@ALSO@/g
s/\.notifier\([."]\)/.@CONSUMER@\1/g
s/ notifier"/ @CONSUMER@"/g
s/[$]NOTIFIER_PASSWORD/"$nats_notifier"/g
s/[$]PUBLISHER_PASSWORD/"$nats_publisher"/g
s/[$]OPERATOR_PASSWORD/"$nats_operator"/g
s/@STREAM@/$stream/g
s/@SUBJECT@/$subject/g
s/@DEAD@/$dead/g
s/@ALSO@/$also/g
s/@CONSUMER@/$consumer/g
END
)
redis=$(render redis.acl <<END
/^#/d
s/>PASSWORD/#$(hash "$redis_notifier")/g
s/>HEALTH_PASSWORD/#$(hash "$redis_health")/g
s/{notifier}/{$namespace}/g
END
)
printf '%s\n' "$nats" | put nats/nats.conf "$root"
printf '%s\n' "$redis" | put redis/users.acl "$redis_user"
echo "$redis_health" | put redis/health "$redis_user"

# The clients.
echo "nats://notifier:$nats_notifier@$NATS_HOST:4222" | put worker/nats-url "$notifier"
echo "redis://notifier:$redis_notifier@$REDIS_HOST:6379/0" | put worker/redis-url "$notifier"
echo "nats://publisher:$nats_publisher@$NATS_HOST:4222" | put publisher/nats-url "$notifier"
echo "nats://operator:$nats_operator@$NATS_HOST:4222" | put operator/nats-url "$notifier"
[ "$command" != url ] || echo "nats://publisher:$nats_publisher@127.0.0.1:$NATS_PORT"
