# shellcheck shell=bash
# shellcheck disable=SC2034 # lint.sh reads the versions
# The linters at pinned versions, built from source by the go command and kept in the user's cache. They are no
# dependencies of the module, so they don't stand in go.mod. Sourced by lint.sh.

readonly staticcheck_version=v0.8.2
readonly golangci_version=v2.15.0

# tool NAME PACKAGE VERSION sets tool_path to the program, built first if it isn't there. A new Go toolchain builds it
# anew: a linter can't read what a newer compiler wrote.
tool() {
  local name=$1 package=$2 version=$3
  local dir
  dir="${XDG_CACHE_HOME:-$HOME/.cache}/tsuzuki-ci/tools/$name-$version-$(go env GOVERSION)"
  tool_path="$dir/$name"
  [[ -x $tool_path ]] && return 0
  printf 'building %s %s\n' "$name" "$version"
  mkdir -p "$dir"
  # Into a folder of its own and then in one step into place, so that a build that was ended leaves nothing half done.
  local tmp
  tmp=$(mktemp -d "$dir/build.XXXXXX")
  if ! GOBIN=$tmp GOFLAGS='' bounded 900 go install "$package@$version"; then
    rm -rf "$tmp"
    die "$name $version can't be built"
  fi
  mv -f "$tmp/$name" "$tool_path"
  rm -rf "$tmp"
}
