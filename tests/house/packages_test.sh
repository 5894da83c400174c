#!/usr/bin/env bash
# scripts/packages.sh: quiet when all is there, a clear list and exit status 4 when it may not
# install, and never apt-get in either case.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
failures=0

# Runs install_packages in a shell where dpkg, apt and the rights of the user are as told.
# try INSTALLED_PATTERN MAY_INSTALL GROUP...
try() {
  local pattern=$1 allowed=$2
  shift 2
  output=$(bash -c '
    source scripts/packages.sh
    dpkg-query() { :; }
    is_installed() { [[ $1 =~ '"$pattern"' ]]; }
    may_install() { '"$allowed"'; }
    apt_get() { echo "apt-get $*"; }
    unset MOE_NO_INSTALL
    install_packages "$@"' _ "$@" 2>&1)
  status=$?
}

expect() {
  local what=$1
  shift
  "$@" || { echo "FAILED: $what"; echo "status $status, output:"; echo "$output"; failures=1; }
}
has() { [[ $output == *"$1"* ]]; }
has_not() { [[ $output != *"$1"* ]]; }

if ! command -v apt-get >/dev/null; then echo "skipped: no apt-get here"; exit 77; fi

try '.' false build test optional
expect "everything installed: success" [ "$status" -eq 0 ]
expect "everything installed: silent" [ -z "$output" ]

try '^(g\+\+|cmake)$' false build
expect "missing, may not install: exit 4" [ "$status" -eq 4 ]
expect "missing, may not install: names a package" has "libfmt-dev"
expect "missing, may not install: says what it is for" has "text formatting"
expect "missing, may not install: gives the command" has "apt-get install ninja-build"
expect "missing, may not install: leaves out what is there" has_not " cmake "

try '^(lib|g|c|n|p|j)' false build test optional
expect "only optional ones missing: success" [ "$status" -eq 0 ]
expect "only optional ones missing: says so" has "what needs them is skipped"

try '^(lib|n|p|j)' true build
expect "missing, may install: success" [ "$status" -eq 0 ]
expect "missing, may install: reads the lists first" has "apt-get update"
expect "missing, may install: exactly the missing" has \
  "apt-get install --no-install-recommends g++ cmake git"

duplicates=$(scripts/packages.sh --list | awk '{ print $2 }' | sort | uniq -d)
expect "no package is listed twice" [ -z "$duplicates" ]

[ "$failures" -eq 0 ] && echo "all passed"
exit "$failures"
