#!/bin/sh
# Makes the passwords of NATS and Redis, once, and the files from which the services of docker-compose.yml read them.
#
#   docker compose up                                  runs this before anything else
#   docker compose run --rm secrets rotate NAME...     replaces passwords; docs/operating.md has the steps
#   docker compose run --rm secrets url                prints the URL with which programs on this machine publish
#   docker compose run --rm -T secrets set NAME <FILE  stores a secret of yours for the workers, as /secrets/worker/NAME
#   docker compose run --rm -T secrets team NAME >FILE gives another team users of NATS and Redis, and prints their passwords
#   docker compose run --rm secrets remove NAME        takes these users away
#   docker compose run --rm -T secrets join <FILE      of that team's project: takes them; docs/operating.md has the steps
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

# The users of a second team on the same servers begin with its name and -.
team=${TEAM:-}
prefix=${team:+$team-}

fail() { echo "secrets: $*" >&2; exit 2; }

# team_name NAME: ends unless a team can have this name: its stream, subjects and keys are made of it.
team_name() {
  case $1 in '' | [!a-z]* | *[!a-z0-9]*) fail "the team $1, expected small letters and digits, such as payments" ;; esac
  case $1 in notify | notifier) fail "the team $1 would have the names of the default settings; expected another name" ;; esac
}
[ -z "$team" ] || team_name "$team"

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

command=${1:-make}
[ $# -eq 0 ] || shift
if [ "$command" != users ]; then # which this script calls by itself
  exec 9>own/lock
  flock 9 # two at a time would make two passwords of each
fi
case $command in
  make | url | users) [ $# -eq 0 ] || fail "unexpected argument $1" ;;
  team)
    [ $# -eq 1 ] || fail "expected team NAME"
    team_name "$1"
    case "${NATS_SUBJECT:-notify.>} ${REDIS_NAMESPACE:-notifier} " in '>'* | "$1."* | *" $1 ") fail "the team $1 would read what NATS_SUBJECT or REDIS_NAMESPACE has for this project; expected another name" ;; esac
    { cat own/teams 2>/dev/null || true; echo "$1"; } | sort -u | put own/teams "$root"
    ;;
  remove)
    [ $# -eq 1 ] || fail "expected remove NAME"
    team_name "$1"
    grep -qsx "$1" own/teams || fail "there is no team $1, expected one of: $(cat own/teams 2>/dev/null | tr '\n' ' ')"
    if others=$(grep -vx "$1" own/teams); then echo "$others" | put own/teams "$root"; else rm -f own/teams; fi
    rm -f "own/$1-"*
    ;;
  join)
    [ -n "$team" ] || fail "TEAM is not set, expected the name of the team in its env file"
    [ $# -eq 0 ] || fail "unexpected argument $1"
    while read -r name value; do
      case $name in nats-notifier | nats-publisher | nats-operator | redis-notifier) ;; *) fail "no password is named $name, expected what \"team\" prints" ;; esac
      echo "$value" | put "own/$prefix$name" "$root"
    done
    ;;
  rotate)
    for other in $(cat own/teams 2>/dev/null || true); do
      for name in nats-notifier nats-publisher nats-operator redis-notifier; do names="$names $other-$name"; done
    done
    [ $# -gt 0 ] || fail "missing NAME, expected some of: $names"
    for name; do case " $names " in *" $name "*) ;; *) fail "no password is named $name, expected some of: $names" ;; esac done
    for name; do rm -f "own/$name"; done
    ;;
  set)
    case ${1:-} in '' | *[!a-z0-9-]* | nats-url | redis-url) fail "expected set NAME, of small letters, digits and -, and not nats-url or redis-url" ;; esac
    put "worker/$1" "$notifier"
    exit
    ;;
  *) fail "unknown command $command, expected rotate, url, set, team, remove, join or none" ;;
esac

stream=$(plain NATS_STREAM "${NATS_STREAM:-NOTIFY}")
consumer=$(plain NATS_CONSUMER "${NATS_CONSUMER:-notifier}")
subject=$(plain NATS_SUBJECT "${NATS_SUBJECT:-notify.>}")
dead=$(plain DEAD_LETTER_SUBJECT "${DEAD_LETTER_SUBJECT:-$(echo "$stream" | tr A-Z a-z)-dead}")
events=$(echo "$stream" | tr A-Z a-z)-events
dropped=$(plain DROPPED_SUBJECT "${DROPPED_SUBJECT:-}")
namespace=$(plain REDIS_NAMESPACE "${REDIS_NAMESPACE:-notifier}")

nats_notifier=$(password "${prefix}nats-notifier")
nats_publisher=$(password "${prefix}nats-publisher")
nats_operator=$(password "${prefix}nats-operator")
redis_notifier=$(password "${prefix}redis-notifier")
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
also=
[ -z "$dropped" ] || also=", \"$dropped.>\""
nats=$(render nats.conf <<END
s/NOTIFY/@STREAM@/g
s/"notify\.>/"@SUBJECT@/g
s/"notify-dead\.>"/"@DEAD@.>"@ALSO@/g
s/"notify-events\.>"/"@EVENTS@.>"/g
s/\.notifier\([."]\)/.@CONSUMER@\1/g
s/ notifier"/ @CONSUMER@"/g
s/[$]NOTIFIER_PASSWORD/"$nats_notifier"/g
s/[$]PUBLISHER_PASSWORD/"$nats_publisher"/g
s/[$]OPERATOR_PASSWORD/"$nats_operator"/g
s/@STREAM@/$stream/g
s/@SUBJECT@/$subject/g
s/@DEAD@/$dead/g
s/@ALSO@/$also/g
s/@EVENTS@/$events/g
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

# users_of TEAM: what a team's users are in the configuration of NATS, and then in that of Redis. The stream, the subjects and
# the keys have its name. Nobody else's names hold: those of this project are in the environment.
users_of() {
  team=$1 upper=$(echo "$1" | tr a-z A-Z)
  env -u DEAD_LETTER_SUBJECT -u DROPPED_SUBJECT -u NATS_CONSUMER TEAM="$team" NATS_STREAM="$upper" NATS_SUBJECT="$team.>" \
    REDIS_NAMESPACE="$team" SECRETS_DIR="$PWD" sh "$deploy/secrets.sh" users
}
nats_users=$(printf '%s\n' "$nats" | sed -n '/^  users = \[$/,/^  \]$/{ /^    /p; }' | sed "s/^      user: /&$prefix/")
redis_users=$(printf '%s\n' "$redis" | sed -n "s/^user notifier /user ${prefix}notifier /p")
if [ "$command" = users ]; then
  printf '%s\n' "$nats_users" "$redis_users"
  exit
fi
for name in $(cat own/teams 2>/dev/null || true); do
  users=$(users_of "$name") || fail "no users for the team $name"
  nats_users="$nats_users
$(printf '%s\n' "$users" | grep '^    ')"
  redis="$redis
$(printf '%s\n' "$users" | grep '^user ')"
done
nats=$(printf '%s\n' "$nats" | sed -n '1,/^  users = \[$/p'; printf '%s\n' "$nats_users"; printf '%s\n' "$nats" | sed -n '/^  \]$/,$p')

printf '%s\n' "$nats" | put nats/nats.conf "$root"
printf '%s\n' "$redis" | put redis/users.acl "$redis_user"
echo "$redis_health" | put redis/health "$redis_user"

# The clients.
echo "nats://${prefix}notifier:$nats_notifier@$NATS_HOST:4222" | put worker/nats-url "$notifier"
echo "redis://${prefix}notifier:$redis_notifier@$REDIS_HOST:6379/0" | put worker/redis-url "$notifier"
echo "nats://${prefix}publisher:$nats_publisher@$NATS_HOST:4222" | put publisher/nats-url "$notifier"
echo "nats://${prefix}operator:$nats_operator@$NATS_HOST:4222" | put operator/nats-url "$notifier"
[ "$command" != url ] || echo "nats://${prefix}publisher:$nats_publisher@127.0.0.1:$NATS_PORT"
[ "$command" != team ] || for name in nats-notifier nats-publisher nats-operator redis-notifier; do
  echo "$name $(cat "own/$1-$name")"
done
