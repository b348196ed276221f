#!/usr/bin/env bash
# Launched ranks under Slurm, with PMIx and without: srun.sh BUILD-FOLDER
#
# Not a part of tools/check, because it needs a running Slurm. If slurm-wlm and munge are installed without a configured
# cluster, and the user is root, it runs a cluster on this host, in a folder that it removes.
set -euo pipefail

[ $# = 1 ] && [ -x "$1/test/weir-launch-probe" ] || { echo "usage: ${0##*/} BUILD-FOLDER" >&2; exit 2; }
build=$(cd "$1" && pwd)
probe=$build/test/weir-launch-probe
command -v srun >/dev/null || { echo "skipped: srun is not installed; install slurm-wlm and munge"; exit 0; }
work=$(mktemp -d /tmp/weir-srun-XXXXXX)
chmod 755 "$work"

finish() {
    for pid in "$work"/*.pid; do
        [ ! -e "$pid" ] || kill "$(cat "$pid")" || true
    done
    sleep 1
    rm -rf "$work"
}
trap finish EXIT

start_slurm() {
    local host
    host=$(hostname -s)
    mkdir -p "$work/state" "$work/spool" /run/munge
    chown munge: /run/munge
    munge -n >/dev/null 2>&1 || su -s /bin/sh munge -c /usr/sbin/munged
    cat >"$work/slurm.conf" <<CONF
ClusterName=weir
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
SlurmctldPort=26817
SlurmdPort=26818
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SchedulerType=sched/builtin
SlurmdParameters=config_overrides
MpiDefault=none
NodeName=$host NodeAddr=127.0.0.1 CPUs=8 RealMemory=1000
PartitionName=all Nodes=$host Default=YES State=UP
CONF
    export SLURM_CONF=$work/slurm.conf
    slurmctld -f "$SLURM_CONF"
    slurmd -f "$SLURM_CONF"
    for _ in $(seq 60); do
        ! sinfo -h -o %t | grep -qx idle || return 0
        sleep 0.5
    done
    echo "slurmd does not become idle; its log:" >&2
    tail "$work"/*.log >&2
    return 1
}

failures=0
# expect NAME LINES PATTERN COMMAND...: checks that LINES rows of the output match; shows the output of a failure.
expect() {
    local name=$1 lines=$2 pattern=$3 output
    shift 3
    output=$(timeout 60 "$@" 2>&1 </dev/null) || true
    if [ "$(grep -cE "$pattern" <<<"$output")" = "$lines" ]; then
        echo "passed: $name"
    else
        echo "FAILED: $name"
        echo "$output"
        failures=$((failures + 1))
    fi
}

if ! sinfo >/dev/null 2>&1; then
    start_slurm
fi
expect "PMIx" 4 '^rank [0-3] of 4 by PMIx, .*: right$' srun --mpi=pmix -n 4 "$probe"
expect "PMIx, three times" 12 '^rank [0-3] of 4 by PMIx, .*: right$' srun --mpi=pmix -n 4 "$probe" times 3
expect "PMIx, killed rank" 3 'WEIR_ERR_REMOTE.*rank 1 died' srun --mpi=pmix -n 4 "$probe" kill 1
expect "file" 4 '^rank [0-3] of 4 by Slurm, .*: right$' \
    env WEIR_RENDEZVOUS_FILE="$work/rendezvous" srun --mpi=none -n 4 "$probe"
expect "MASTER_ADDR" 4 '^rank [0-3] of 4 by Slurm, .*: right$' \
    env MASTER_ADDR=127.0.0.1 MASTER_PORT=26900 srun --mpi=none -n 4 "$probe"
expect "no meeting point" 2 'WEIR_ERR_ENV .*srun --mpi=pmix' srun --mpi=none -n 2 "$probe"
expect "tutorial 02" 1 '^Succeed!$' srun --mpi=pmix -n 2 "$build/examples/tutorials/02-bootstrap/gpu_ping_pong_mp"
expect "tutorial 03" 1 '^Succeed!$' env WEIR_CPU_THREADS=8 \
    srun --mpi=pmix -n 2 "$build/examples/tutorials/03-memory-channel/bidir_memory_channel"
expect "tutorial 03 through a file" 1 '^Succeed!$' env WEIR_CPU_THREADS=8 WEIR_RENDEZVOUS_FILE="$work/rendezvous" \
    srun --mpi=none -n 2 "$build/examples/tutorials/03-memory-channel/bidir_memory_channel"
exit $((failures != 0))
