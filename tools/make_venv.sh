#!/bin/sh
# Make .venv from setup.cfg and constraints.txt; do nothing where it is already so made.
#
# Usage: sh tools/make_venv.sh PYTHON EXTRAS
#
# A .venv that somebody made by hand is installed into and never removed.
set -eu

what=setup
venv=.venv
. tools/venv.sh

python=$1
extras=$2
# The folder counts too: .venv refers to the checkout by its full path.
digest=$({ cat setup.cfg constraints.txt; pwd; echo "$extras"; } | cksum)
if is_made "$digest"; then
  exit 0
fi
start=$(date +%s)
begin_venv "$python"
echo "setup: installing into .venv for Python $version, about a minute (pip's words: $log)"
# The build runs in .venv itself, with the pinned setuptools: nothing unpinned takes part.
run_pip -c constraints.txt setuptools
run_pip -c constraints.txt --no-build-isolation --editable ".[$extras]"
end_venv "$digest"
echo "setup: done in $(($(date +%s) - start)) s"
