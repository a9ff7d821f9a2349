#!/usr/bin/env bash
# Every fuzz target of the module, one after the other: bash .ci/fuzz.sh SECONDS-EACH
#
# A find is written below the package's testdata/fuzz by the go command, which prints the line that repeats it; commit it
# with the fix. What go test runs in any case are the seeds and the finds; this looks for more.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source .ci/lib.sh

seconds=$1
targets=0
while IFS=: read -r file declaration; do
  name=$(sed -E 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/' <<<"$declaration")
  package=./$(dirname "$file")
  targets=$((targets + 1))
  printf -- '-- %s %s\n' "$package" "$name"
  # Compiling with the fuzzer's instrumentation takes longer than a short share of fuzzing.
  bounded $((seconds + 300)) go test -run='^$' -fuzz="^$name\$" -fuzztime="${seconds}s" "$package" |
    sed -n '/gathering baseline/d; p'
done < <(git grep --untracked -E '^func Fuzz[A-Za-z0-9_]*\(' -- '*_test.go')
printf '%d fuzz targets\n' "$targets"
((targets > 0)) || die "no fuzz target found"
