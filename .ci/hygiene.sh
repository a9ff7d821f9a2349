#!/usr/bin/env bash
# What no committed file may hold: the host of a package registry, or the path of a particular machine. Both would make
# the project work in one place alone. The hosts are asked of the package clients, so that this file names none.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source .ci/lib.sh

# hosts prints the host of each URL among its input, one a line.
hosts() {
  grep -oE '[a-z]+://[^/ ,|"]+' | sed -E 's,^[a-z]+://([^@/]*@)?,,; s,:[0-9]+$,,' | sort -u || true
}

registries() {
  {
    go env GOPROXY GOSUMDB | tr ',' '\n' | tr '|' '\n' | sed -E '/:\/\//!s,^,any://,'
    if command -v npm >/dev/null; then npm config get registry </dev/null; fi
    cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | grep -v '^#' || true
  } | hosts | grep -F . || true # "direct" and "off" are no hosts
}

found=0
refuse() { # WHAT PATTERN...
  local what=$1
  shift
  if git grep -nI "$@" -- . ':!LICENSE'; then
    printf 'ci: %s, see above\n' "$what" >&2
    found=1
  fi
}

count=0
while read -r host; do
  count=$((count + 1))
  refuse "a registry's host" -F -e "$host"
done < <(registries)
((count > 0)) || die "no registry is configured: nothing to look for"

before='(^|[^A-Za-z0-9_.~/-])'
refuse 'the path of a machine' -E -e "$before/(work|root|tmp|home/[a-z]+|Users/[a-z]+)/"
refuse 'what is outside of this repository' -E -e 'DESIGN[.]md' -e '[.][.]/shared'
((found == 0)) || exit 1
printf 'nothing found (%d hosts looked for)\n' "$count"
