#!/usr/bin/env bash
# Every fuzz target of the module, one after the other: bash .ci/fuzz.sh SECONDS-EACH
#
# A find is written below the package's testdata/fuzz by the go command, which prints the line that repeats it; commit it
# with the fix. What go test runs in any case are the seeds and the finds; this looks for more.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source .ci/lib.sh

seconds=$1
said=$(mktemp)
trap 'rm -f "$said"' EXIT

# fuzz PACKAGE NAME fuzzes one target. Before Go 1.27 the end of its own time is now and then told as a failure
# (go.dev/issue/75804): one that names no input is tried again, a few times.
fuzz() {
  local again rc
  for again in 1 2 3; do
    rc=0
    # Compiling with the fuzzer's instrumentation takes longer than a short share of fuzzing.
    bounded $((seconds + 300)) go test -run='^$' -fuzz="^$2\$" -fuzztime="${seconds}s" "$1" >"$said" 2>&1 || rc=$?
    sed '/gathering baseline/d' "$said"
    ((rc == 0)) && return 0
    if ! only_time_was_over; then
      return "$rc"
    fi
    printf 'ci: the end of the time was told as a failure (%d)\n' "$again"
  done
  return "$rc"
}

# only_time_was_over: the line below "--- FAIL" says so, and there is nothing else.
only_time_was_over() {
  [[ $(grep -c '^--- FAIL' "$said") == 1 && $(grep -A1 '^--- FAIL' "$said" | tail -1) == '    context deadline exceeded' ]] &&
    ! grep -qE 'Failing input|panic:|_test\.go:' "$said"
}

targets=0
while IFS=: read -r file declaration; do
  name=$(sed -E 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/' <<<"$declaration")
  package=./$(dirname "$file")
  targets=$((targets + 1))
  printf -- '-- %s %s\n' "$package" "$name"
  fuzz "$package" "$name"
done < <(git grep --untracked -E '^func Fuzz[A-Za-z0-9_]*\(' -- '*_test.go')
printf '%d fuzz targets\n' "$targets"
((targets > 0)) || die "no fuzz target found"
