# shellcheck shell=bash
# Shared by the scripts beside it; not run by itself. Bash 4 or later.

# Sections ---------------------------------------------------------------------------------------------------------

section_name=""
section_start=0
section_table=()

# section NAME ends the section before and begins the next.
section() {
  section_end
  section_name=$1
  section_start=$SECONDS
  printf '\n==== %s\n' "$section_name"
}

section_end() {
  [[ -n $section_name ]] || return 0
  local took=$((SECONDS - section_start))
  section_table+=("$(printf '%5d s  %s' "$took" "$section_name")")
  printf '==== %s: %d s\n' "$section_name" "$took"
  section_name=""
}

die() {
  printf '%s\n' "ci: $*" >&2
  exit 1
}

# bounded SECONDS COMMAND... runs the command with no input and ends it, children included, when it takes too long.
bounded() {
  local limit=$1 rc=0
  shift
  timeout -k 15 "$limit" "$@" </dev/null || rc=$?
  if ((rc == 124 || rc == 137)); then
    printf 'ci: not done after %d s: %s\n' "$limit" "$*" >&2
  fi
  return "$rc"
}

# What has to be there ---------------------------------------------------------------------------------------------

# need COMMAND PACKAGE installs the Debian package that holds a command, where it is missing and that is possible.
need() {
  command -v "$1" >/dev/null && return 0
  if ! command -v apt-get >/dev/null; then
    die "$1 is needed; install it"
  fi
  printf 'ci: installing %s for %s\n' "$2" "$1"
  if ! bounded 300 env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$2" >/dev/null; then
    bounded 300 apt-get update -qq
    bounded 300 env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$2" >/dev/null
  fi
  command -v "$1" >/dev/null || die "$1 is needed, and the package $2 did not bring it"
}

# free_port prints a port on which nothing listens on loopback. It lies below the range from which the system takes ports
# for outgoing connections, so that none of those takes it before the server does.
free_port() {
  local port
  for _ in {1..200}; do
    port=$((20000 + RANDOM % 12000))
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      printf '%d\n' "$port"
      return 0
    fi
  done
  die "no free port found"
}
