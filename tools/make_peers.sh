#!/bin/sh
# Make an environment in .peers for each file of tools/peers; do nothing where it is so made.
#
# Usage: sh tools/make_peers.sh PYTHON
#
# A file of pins is complete: it has all that training with the peer imports. What a peer merely
# declares (linters, plotting, converters) is left out, so pip is told to follow no dependencies.
set -eu

what=peers
. tools/venv.sh

python=$1
for pins in tools/peers/*.txt; do
  peer=$(basename "$pins" .txt)
  venv=.peers/$peer
  # The folder counts too: an environment refers to itself by its full path.
  digest=$({ cat "$pins"; pwd; } | cksum)
  if is_made "$digest"; then
    continue
  fi
  start=$(date +%s)
  begin_venv "$python"
  echo "peers: installing $peer into $venv for Python $version, minutes (pip's words: $log)"
  run_pip --no-deps --requirement "$pins"
  end_venv "$digest"
  echo "peers: $peer done in $(($(date +%s) - start)) s"
done
