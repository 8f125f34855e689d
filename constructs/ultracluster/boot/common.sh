# What every boot script shares; sourced, never run.
# shellcheck shell=bash
set -Eeuo pipefail

root=${ULTRACLUSTER_ROOT:-}
# shellcheck disable=SC2034 # of the scripts that source this
home=$root/opt/ultracluster
log=$root/var/log/ultracluster-boot.log
PATH=$PATH:$root/opt/aws/neuron/bin:$root/opt/amazon/efa/bin:$root/opt/slurm/bin

say() {
    mkdir -p "${log%/*}"
    printf '%s %s\n' "$(date -u +%FT%TZ)" "$*" >>"$log"
}

# ParallelCluster reports what a script wrote to standard error: the reason is all of it.
fail() {
    say "failed: $*"
    echo "ultracluster: $*" >&2
    exit 1
}

# No command ends a boot without a word.
trap 'fail "${BASH_SOURCE[0]##*/} line $LINENO: $BASH_COMMAND"' ERR

# retry COMMAND...: again with back-off, about a minute in all.
retry() {
    local delay
    for delay in 2 4 8 16 32 0; do
        if "$@" >>"$log" 2>&1; then
            return
        fi
        say "again in $delay s: $*"
        sleep "$delay"
    done
    fail "gave up on: $* (see $log)"
}

# step NAME COMMAND...: runs it and writes down how long it took.
step() {
    local name=$1 begun=$SECONDS
    shift
    say "$name"
    if [[ $1 == bash ]]; then
        "$@" || exit # the script has given its reason
    else
        "$@"
    fi
    say "$name: $((SECONDS - begun)) s"
}

# write_file PATH: standard input becomes its content, in one move.
write_file() {
    mkdir -p "${1%/*}"
    cat >"$1.part"
    mv "$1.part" "$1"
}

# fact NAME: one fact of this node's instance type, from platform.json; empty where unknown.
fact() {
    python3 - "$root/etc/ultracluster/platform.json" "$1" <<'PYTHON'
import json, sys
instance = json.load(open(sys.argv[1]))["instance"] or {}
print(instance.get(sys.argv[2], ""))
PYTHON
}
