#!/usr/bin/env bash
# Tests orrery under a real Slurm: a controller and two nodes on this machine, with their own configuration, key and
# ports in a temporary folder. The system's own Slurm is not used, and root is not needed.
#   slurm_check.sh ORRERY
# Exit codes: 0 passed, 1 failed, 77 skipped.
set -euo pipefail

orrery=$1
readonly kSkipped=77 kPatience_s=90

skip() {
    echo "skipped: $*"
    exit "$kSkipped"
}

PATH=$PATH:/usr/sbin:/sbin # for the daemons, if the user is not root
for program in munged slurmctld slurmd sbatch srun squeue scancel scontrol mpirun setpriv; do
    command -v "$program" >/dev/null || skip "no $program; ./dev setup --with-slurm installs it"
done

box=$(mktemp -d)
chmod 755 "$box" # munged requires that others can reach its socket
daemons=()

# A guard that waits until this script has ended, even by SIGKILL, then kills processes that still use our configuration
# and removes the folder. It runs in its own session, so that it is not killed with this script's children.
# shellcheck disable=SC2016 # the variables are expanded by the inner shell
(setsid bash -c '
    tail --pid="$1" -f /dev/null
    for environment in /proc/[0-9]*/environ; do
        process=${environment%/environ}
        if tr "\0" "\n" <"$environment" | grep -qxF "SLURM_CONF=$2/slurm.conf"; then kill -KILL "${process#/proc/}"; fi
    done
    rm -rf "$2"' guard "$$" "$box" </dev/null >/dev/null 2>&1 &)

clean_up() {
    local status=$?
    trap - EXIT INT TERM
    if ((${#daemons[@]} > 1)); then
        timeout 10 scancel --full --signal=KILL --user="$(id -u)" || true
        timeout 10 scancel --user="$(id -u)" || true
        wait_until 10 jobs_are_gone || true
    fi
    local index
    for ((index = ${#daemons[@]} - 1; index >= 0; --index)); do
        kill "${daemons[index]}" 2>/dev/null || true
        wait "${daemons[index]}" 2>/dev/null || true
    done
    if ((status != 0 && status != kSkipped)); then
        tail -n 30 "$box"/*.log "${work:-$box}"/*.out 2>/dev/null || true
    fi
    rm -rf "$box"
    exit "$status"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# wait_until SECONDS COMMAND…: fails if the command does not succeed in time.
wait_until() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        ((SECONDS < end)) || return 1
        sleep 0.1
    done
}

jobs_are_gone() { [[ -z "$(timeout 10 squeue --noheader)" ]]; }
nodes_are_idle() { [[ "$(timeout 10 sinfo --noheader --Node --format=%T 2>/dev/null | sort -u)" == idle ]]; }
is_socket() { [[ -S "$1" ]]; }
port_is_taken() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Starts a daemon in the foreground. It gets SIGTERM when this script ends, however that happens.
start() {
    local log=$1
    shift
    setpriv --pdeathsig TERM "$@" >"$log" 2>&1 &
    daemons+=($!)
}

port=0
choose_ports() { # three consecutive ports below the ephemeral range
    local tries
    for tries in {1..50}; do
        port=$((10000 + RANDOM % 20000))
        port_is_taken "$port" || port_is_taken $((port + 1)) || port_is_taken $((port + 2)) || return 0
    done
    fail "no free ports after $tries tries"
}

write_configuration() {
    local host user
    host=$(uname -n)
    host=${host%%.*}
    user=$(id -un)
    touch "$box/gpu0" "$box/gpu1" # stand for GPUs that Slurm counts; nothing opens them
    echo "NodeName=node[1-2] Name=gpu File=$box/gpu[0-1]" >"$box/gres.conf"
    cat >"$box/slurm.conf" <<CONF
ClusterName=orrery
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$box/munge.socket
StateSaveLocation=$box/state
SlurmdSpoolDir=$box/spool-%n
TmpFS=$box/tmp-%n
SlurmctldPidFile=$box/slurmctld.pid
SlurmdPidFile=$box/slurmd-%n.pid
SlurmctldLogFile=$box/slurmctld.log
SlurmdLogFile=$box/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
GresTypes=gpu
KillWait=2
ReturnToService=2
NodeName=node[1-2] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + 2))] CPUs=4 RealMemory=512 Gres=gpu:2
PartitionName=all Nodes=ALL Default=YES MaxTime=10 State=UP
CONF
}

start_slurm() {
    mkdir "$box/state" "$box"/{spool,tmp}-node{1,2}
    (umask 077 && head -c 1024 /dev/urandom >"$box/munge.key")
    start "$box/munged.txt" munged --foreground --key-file="$box/munge.key" --socket="$box/munge.socket" \
        --pid-file="$box/munge.pid" --seed-file="$box/munge.seed" --log-file="$box/munge.log"
    wait_until 20 is_socket "$box/munge.socket" || fail "munged does not start"
    choose_ports
    write_configuration
    export SLURM_CONF=$box/slurm.conf
    start "$box/slurmctld.txt" slurmctld -D -c
    local node
    for node in node1 node2; do start "$box/$node.txt" slurmd -D -N "$node"; done
    wait_until 60 nodes_are_idle || fail "the nodes do not come up"
}

# write_plan NAME PARALLELISM CLUSTER: a tiny model, 8 sequences of 32 tokens a step.
write_plan() {
    cat >"$1.plan.json" <<JSON
{"schema": "orrery.plan/1", "name": "$1", "model": "tiny-gpt", "cluster": "$3", "parallelism": $2,
 "training": {"sequence_length": 32, "global_batch_size": 8}}
JSON
}

losses_of() { sed -n '/"losses"/,/]/p' "$1"; }

# expect_same_losses RECORD REFERENCE: the losses of all steps must be equal to the last digit.
expect_same_losses() {
    [[ -s "$1" ]] || fail "no record $1"
    [[ "$(losses_of "$1" | wc -c)" -gt 40 ]] || fail "no losses in $1"
    diff <(losses_of "$1") <(losses_of "$2") || fail "$1 and $2 differ"
}

expect_ranks_on_first_node() { grep -q "\"ranks_on_host\": \"$2\"" "$1" || fail "$1: rank 0 is not one of $2 on its node"; }

# run_on_slurm NAME [OPTION…]: submits the plan with --submit and waits until the job has left the queue.
run_on_slurm() {
    local name=$1
    shift
    timeout 60 "$orrery" run "$name.plan.json" --steps 3 --warm-up 1 --quiet --on-cpu --record "$name.json" --slurm --submit \
        --time 5 "$@" >"$name.submitted" || fail "--submit of $name"
    grep -q '^submitted job [0-9]*$' "$name.submitted" || fail "--submit printed: $(cat "$name.submitted")"
    [[ -s "$name.sbatch" ]] || fail "no script $name.sbatch"
    wait_until "$kPatience_s" jobs_are_gone || fail "$name does not end"
    local output
    output=$(sed -n 's/^  output  //p' "$name.submitted")
    [[ -f "$output" ]] || fail "no output $output"
    [[ ! -s "$output" ]] || fail "$name: $(cat "$output")"
}

# expect_refused CODE WORDS COMMAND…: the command must end with this exit code and a single error line of orrery.
expect_refused() {
    local code=$1 words=$2 status=0
    shift 2
    timeout 60 "$@" >refused.txt 2>&1 || status=$?
    [[ "$status" == "$code" ]] || fail "exit code $status of $*: $(cat refused.txt)"
    [[ "$(grep -c '^orrery: ' refused.txt)" == 1 ]] || fail "not one line: $(cat refused.txt)"
    grep -q "^orrery: .*$words" refused.txt || fail "no '$words' in: $(cat refused.txt)"
}

work="$box/it's a \"folder\" of 100%"
mkdir "$work"
cd "$work"
start_slurm
# Both nodes are this machine, for which Open MPI's shared memory transport is not made.
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=lo

"$orrery" clusters dgx-h100 | sed -E 's/"(nodes|devices_per_node|nics_per_node|node_switches)": [0-9]+/"\1": 2/' >two-by-two.json
"$orrery" clusters dgx-h100 |
    sed -E 's/"nodes": [0-9]+/"nodes": 2/; s/"(devices_per_node|nics_per_node|node_switches)": [0-9]+/"\1": 1/' >two-by-one.json
write_plan pair '{"dp": 2}' two-by-one.json
write_plan turned '{"dp": 2, "tp": 2, "placement": [0, 2, 1, 3]}' two-by-two.json
write_plan single '{"dp": 1}' dgx-h100
write_plan spread '{"tp": 2, "pp": 2}' dgx-h100
write_plan uneven '{"pp": 3}' dgx-h100
for name in pair turned spread uneven; do
    OMPI_MCA_btl=self,vader "$orrery" run "$name.plan.json" --steps 3 --warm-up 1 --quiet --on-cpu --record "$name.plain.json"
done

echo "two nodes, one rank each, a GPU each"
run_on_slurm pair
expect_same_losses pair.json pair.plain.json
expect_ranks_on_first_node pair.json 1

echo "a plan with its own placement of ranks, on two nodes with two ranks each"
run_on_slurm turned
expect_same_losses turned.json turned.plain.json

echo "one node of the plan's cluster on two Slurm nodes"
run_on_slurm spread --ranks-per-node 2 --share-nodes
expect_same_losses spread.json spread.plain.json
expect_ranks_on_first_node spread.json 2

echo "one rank fewer on the last node"
run_on_slurm uneven --ranks-per-node 2
expect_same_losses uneven.json uneven.plain.json
expect_ranks_on_first_node uneven.json 2

echo "jobs that cannot run end at once with a single error line"
expect_refused 2 "world size: got 2; allowed: dp \* tp \* pp \* cp = 1 ranks" \
    srun --mpi=pmix --nodes=2 --ntasks=2 "$orrery" run single.plan.json
expect_refused 2 "cannot be read" srun --mpi=pmix --nodes=2 --ntasks=2 "$orrery" run absent.plan.json
expect_refused 2 "2 tasks without PMIx.*--mpi=pmix" srun --nodes=2 --ntasks=2 "$orrery" run pair.plan.json

write_plan wild '{"dp": 2}' two-by-one.json
sed -i 's/"training": {/&"optimizer": {"learning_rate": 1e30}, /' wild.plan.json
expect_refused 1 "rank [01]: the loss of step .* is not finite" \
    srun --mpi=pmix --nodes=2 --ntasks=2 "$orrery" run wild.plan.json --on-cpu

echo "in a batch script without srun, all ranks run on the script's node"
unset OMPI_MCA_pml OMPI_MCA_btl OMPI_MCA_btl_tcp_if_include
cat >batch.sh <<BATCH
#!/bin/bash
"$orrery" run pair.plan.json --steps 3 --warm-up 1 --quiet --on-cpu --record batch.json
BATCH
timeout "$kPatience_s" sbatch --wait --nodes=2 --ntasks=2 --output=batch.out batch.sh >/dev/null || fail "$(cat batch.out)"
expect_same_losses batch.json pair.plain.json

echo "passed"
