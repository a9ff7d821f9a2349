#!/usr/bin/env bash
# staticcheck and golangci-lint at their pinned versions: bash .ci/lint.sh [PACKAGES]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source .ci/lib.sh
source .ci/tools.sh

packages=("${@:-./...}")

tool staticcheck honnef.co/go/tools/cmd/staticcheck "$staticcheck_version"
staticcheck=$tool_path
tool golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint "$golangci_version"
golangci=$tool_path

bounded 600 "$staticcheck" "${packages[@]}"
echo "staticcheck $staticcheck_version: nothing found"
bounded 60 "$golangci" config verify
bounded 900 "$golangci" run --allow-parallel-runners "${packages[@]}"
