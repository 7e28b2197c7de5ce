#!/bin/sh
# A SLURM of this machine alone, to try what is sent to a cluster. Needs root and Debian's packages.
#
# Usage: sh tools/slurm_single_node.sh install
#        sh tools/slurm_single_node.sh start FOLDER   (then: export SLURM_CONF=FOLDER/slurm.conf)
#        sh tools/slurm_single_node.sh stop FOLDER
#
# All that it has and writes is in FOLDER, keys included, and it listens on 127.0.0.1 alone, so that a
# SLURM or munge that the machine has already is not touched. There are two partitions: a job of
# `urgent` takes the place of jobs of `main`, which get 3 s of grace and wait again.
set -eu

fail() {
  echo "slurm: $*" >&2
  exit 1
}

# Runs a command up to $1 times, a fifth of a second apart, until it succeeds.
until_it_works() {
  left=$1
  shift
  until "$@" >/dev/null 2>&1; do
    left=$((left - 1))
    [ "$left" -gt 0 ] || return 1
    sleep 0.2
  done
}

install_packages() {
  command -v apt-get >/dev/null || fail "no apt-get here: install slurm-wlm and munge by other means"
  log=$(mktemp)
  export DEBIAN_FRONTEND=noninteractive
  { apt-get update -qq &&
    apt-get install -y -qq --no-install-recommends slurm-wlm munge; } >"$log" 2>&1 </dev/null ||
    fail "apt-get cannot install slurm-wlm and munge: $(tail -n 1 "$log")"
  rm -f "$log"
}

# Prints two ports that are free now.
free_ports() {
  python3 -c '
import socket
sockets = [socket.socket() for _ in range(2)]
for one in sockets:
  one.bind(("127.0.0.1", 0))
print(*[one.getsockname()[1] for one in sockets])'
}

write_configuration() {
  host=$(hostname -s)
  cores=$(nproc)
  [ "$cores" -gt 1 ] || cores=2 # two processes of one job have to fit
  memory=$(awk '/^MemTotal/ { print int($2 / 1024) }' /proc/meminfo)
  ports=$(free_ports)
  cat >"$folder/slurm.conf" <<CONF
ClusterName=single
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=${ports% *}
SlurmdPort=${ports#* }
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket,cred_expire=5
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=$((memory / cores))
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2,bf_interval=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
EnforcePartLimits=ALL
ReturnToService=2
KillWait=5
NodeName=localhost NodeHostname=$host NodeAddr=127.0.0.1 CPUs=$cores RealMemory=$memory
PartitionName=main Nodes=ALL Default=YES PriorityTier=1 GraceTime=3
PartitionName=urgent Nodes=ALL PriorityTier=2
CONF
}

start() {
  [ "$(id -u)" = 0 ] || fail "only root can start it"
  for program in munged slurmctld slurmd; do
    command -v "$program" >/dev/null ||
      fail "there is no $program: sh tools/slurm_single_node.sh install"
  done
  mkdir -p "$folder/state" "$folder/spool"
  folder=$(cd "$folder" && pwd)
  [ ! -e "$folder/slurmctld.pid" ] || fail "one runs in $folder: sh tools/slurm_single_node.sh stop"
  (umask 077 && head -c 1024 /dev/urandom >"$folder/munge.key")
  write_configuration
  # --force: the folder may be one that others may not look into. setsid: munged would end by a Ctrl-C
  # that is meant for whoever started it.
  setsid --wait munged --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" \
    --pid-file="$folder/munged.pid" --seed-file="$folder/munged.seed" \
    --log-file="$folder/munged.log" 2>/dev/null || fail "munged: $(tail -n 1 "$folder/munged.log")"
  slurmctld -f "$folder/slurm.conf"
  slurmd -f "$folder/slurm.conf"
  export SLURM_CONF="$folder/slurm.conf"
  until_it_works 100 sh -c 'sinfo --noheader --format=%T | grep -q idle' ||
    fail "the node does not come up: see $folder/slurmctld.log and $folder/slurmd.log"
  echo "export SLURM_CONF=$folder/slurm.conf"
}

stop() {
  export SLURM_CONF="$folder/slurm.conf"
  [ -e "$SLURM_CONF" ] || fail "$folder holds no slurm.conf: nothing was started there"
  if scancel --user=root 2>/dev/null; then
    until_it_works 100 sh -c '[ -z "$(squeue --noheader)" ]' || true
  fi
  for daemon in slurmd slurmctld munged; do
    pid=$(cat "$folder/$daemon.pid" 2>/dev/null) || continue
    kill "$pid" 2>/dev/null || true
    until_it_works 100 sh -c "! kill -0 $pid" || fail "$daemon, process $pid, does not end"
    rm -f "$folder/$daemon.pid"
  done
}

folder=${2:-}
case ${1:-} in
  install) install_packages ;;
  start | stop)
    [ -n "$folder" ] || fail "which folder? sh tools/slurm_single_node.sh $1 FOLDER"
    "$1" ;;
  *) fail "say install, start FOLDER or stop FOLDER" ;;
esac
