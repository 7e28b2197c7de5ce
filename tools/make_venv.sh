#!/bin/sh
# Make .venv from setup.cfg and constraints.txt; do nothing where it is already so made.
#
# Usage: sh tools/make_venv.sh PYTHON EXTRAS
#
# .venv/attn-setup holds the state: "unfinished PID" while this script works, then a digest of
# what was installed. An unfinished .venv is made anew, because pip cannot tell what is half there.
# A .venv that somebody made by hand is installed into and never removed.
set -eu

state=.venv/attn-setup
log=.venv/pip.log

fail() {
  echo "setup: $*" >&2
  exit 1
}

# Exits with one line unless "$1" runs and is new enough.
check_python() {
  version=$("$1" -c 'import sys; print(".".join(map(str, sys.version_info[:3])))' 2>/dev/null) ||
    fail "cannot run '$1': install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3"
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
    fail "Python 3.11 or newer is needed, but '$1' is $version: name another: make PYTHON=python3.12"
}

# Runs pip with its output in the log; exits with one line where it fails.
run_pip() {
  .venv/bin/python -m pip install --disable-pip-version-check -c constraints.txt "$@" \
    >>"$log" 2>&1 </dev/null && return
  if grep -qE 'connection broken by|Failed to (establish|connect)|ConnectionError|timed out' "$log"
  then
    fail "the package index cannot be reached: check the network, or point PIP_INDEX_URL at" \
      "another index, and run the same command again (pip's words: $log)"
  fi
  reason=$(sed -n 's/^ERROR: //p' "$log" | head -n 1)
  fail "pip failed (${reason:-it says no reason}): mend that and run the same command again" \
    "(pip's words: $log)"
}

python=$1
extras=$2
# The folder counts too: .venv refers to the checkout by its full path.
digest=$({ cat setup.cfg constraints.txt; pwd; echo "$extras"; } | cksum)
found=$(cat "$state" 2>/dev/null || true)

if [ "$found" = "$digest" ] && .venv/bin/python -c '' 2>/dev/null; then
  exit 0
fi
case $found in
  "unfinished "*)
    # By name, because a number is soon another process's.
    ps -o args= -p "${found#unfinished }" 2>/dev/null | grep -q make_venv &&
      fail "process ${found#unfinished } is setting up .venv right now: wait for it to end"
    rm -rf .venv ;;
esac
trap 'echo "setup: interrupted; the same command starts it anew" >&2; exit 130' INT TERM

start=$(date +%s)
if ! .venv/bin/python -c 'import pip' 2>/dev/null; then
  check_python "$python"
  "$python" -c 'import ensurepip, venv' 2>/dev/null ||
    fail "'$python' has no venv module: install it (Debian, Ubuntu: apt-get install python3-venv)"
  rm -rf .venv
  mkdir .venv
  echo "unfinished $$" >"$state"
  "$python" -m venv .venv >"$log" 2>&1 </dev/null ||
    fail "'$python' could not make .venv: $(tail -n 1 "$log")"
else
  check_python .venv/bin/python
  echo "unfinished $$" >"$state"
  : >"$log"
fi

echo "setup: installing into .venv for Python $version, about a minute (pip's words: $log)"
# The build runs in .venv itself, with the pinned setuptools: nothing unpinned takes part.
run_pip setuptools
run_pip --no-build-isolation --editable ".[$extras]"
echo "$digest" >"$state"
echo "setup: done in $(($(date +%s) - start)) s"
