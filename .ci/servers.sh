# shellcheck shell=bash
# The servers that integration tests need, one folder each under .ci/servers with a start and a stop that take a port.
# Sourced.

servers_started=()

# server NAME VARIABLE... starts the server on a free port and exports each variable as its address. A variable that is
# set already names a server of the caller's own, which is used instead.
server() {
  local name=$1 variable missing=()
  shift
  for variable in "$@"; do
    if [[ -n ${!variable:-} ]]; then
      printf '%s: as given, %s\n' "$variable" "${!variable}"
    else
      missing+=("$variable")
    fi
  done
  ((${#missing[@]} > 0)) || return 0
  if [[ ! -f .ci/servers/$name/start ]]; then
    printf '%s: not part of this tree\n' "$name"
    return 0
  fi
  local port
  port=$(free_port)
  servers_started+=("$name $port") # before the start: one that fails half-way is stopped too
  bounded 420 bash ".ci/servers/$name/start" "$port"
  (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || die "$name does not listen on 127.0.0.1:$port"
  for variable in "${missing[@]}"; do
    export "$variable=http://127.0.0.1:$port"
    printf '%s=%s\n' "$variable" "${!variable}"
  done
}

servers_stop() {
  local started
  for started in "${servers_started[@]}"; do
    # shellcheck disable=SC2086 # a name and a port
    timeout -k 5 30 bash ".ci/servers/${started% *}/stop" ${started#* } </dev/null ||
      printf 'ci: %s could not be stopped\n' "$started" >&2
  done
  servers_started=()
}
