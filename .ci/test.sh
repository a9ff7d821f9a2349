#!/usr/bin/env bash
# go test with a report that shows what failed and what was skipped: bash .ci/test.sh SECONDS ARGUMENTS-OF-GO-TEST
# Fails when no test ran.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source .ci/lib.sh

limit=$1
shift
report=$(mktemp -d)
trap 'rm -rf "$report"' EXIT
go build -o "$report/testreport" ./internal/testreport
# -count=1: some tests look at more than the go command knows of, such as what a server answers.
bounded "$limit" go test -json -count=1 -timeout "${limit}s" "$@" | "$report/testreport"
