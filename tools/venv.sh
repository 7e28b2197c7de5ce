# What the scripts that make virtual environments share: sourced by them, not run.
#
# They set `what`, which begins every line that is printed, and `venv`, the folder. $venv/attn-setup
# holds the state: "unfinished PID" while a script works, then a digest of what was installed. An
# unfinished environment is made anew, because pip cannot tell what is half there.

fail() {
  echo "$what: $*" >&2
  exit 1
}

# Exits with one line unless "$1" runs and is new enough; sets `version`.
check_python() {
  version=$("$1" -c 'import sys; print(".".join(map(str, sys.version_info[:3])))' 2>/dev/null) ||
    fail "cannot run '$1': install Python 3.11 or newer, or name one:" \
      "make $what PYTHON=/path/to/python3"
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
    fail "Python 3.11 or newer is needed, but '$1' is $version: name another:" \
      "make $what PYTHON=python3.12"
}

# Succeeds where $venv works and was made from what the digest "$1" is of.
is_made() {
  [ "$(cat "$venv/attn-setup" 2>/dev/null || true)" = "$1" ] &&
    "$venv/bin/python" -c '' 2>/dev/null
}

# Makes $venv with the Python "$1", unless one is there that somebody made by hand.
begin_venv() {
  found=$(cat "$venv/attn-setup" 2>/dev/null || true)
  case $found in
    "unfinished "*)
      # By name, because a number is soon another process's.
      ps -o args= -p "${found#unfinished }" 2>/dev/null | grep -q 'make_[a-z]*\.sh' &&
        fail "process ${found#unfinished } is setting up $venv right now: wait for it to end"
      rm -rf "$venv" ;;
  esac
  trap 'echo "$what: interrupted; the same command starts it anew" >&2; exit 130' INT TERM
  log=$venv/pip.log
  if ! "$venv/bin/python" -c 'import pip' 2>/dev/null; then
    check_python "$1"
    "$1" -c 'import ensurepip, venv' 2>/dev/null ||
      fail "'$1' has no venv module: install it (Debian, Ubuntu: apt-get install python3-venv)"
    rm -rf "$venv"
    mkdir -p "$venv"
    echo "unfinished $$" >"$venv/attn-setup"
    "$1" -m venv "$venv" >"$log" 2>&1 </dev/null ||
      fail "'$1' could not make $venv: $(tail -n 1 "$log")"
  else
    check_python "$venv/bin/python"
    echo "unfinished $$" >"$venv/attn-setup"
    : >"$log"
  fi
}

# Runs pip install with its output in the log; exits with one line where it fails.
run_pip() {
  "$venv/bin/python" -m pip install --disable-pip-version-check "$@" >>"$log" 2>&1 </dev/null &&
    return
  if grep -qE 'connection broken by|Failed to (establish|connect)|ConnectionError|timed out' "$log"
  then
    fail "the package index cannot be reached: check the network, or point PIP_INDEX_URL at" \
      "another index, and run the same command again (pip's words: $log)"
  fi
  reason=$(sed -n 's/^ERROR: //p' "$log" | head -n 1)
  fail "pip failed (${reason:-it says no reason}): mend that and run the same command again" \
    "(pip's words: $log)"
}

# Notes that $venv is whole, made from what the digest "$1" is of.
end_venv() {
  echo "$1" >"$venv/attn-setup"
}
