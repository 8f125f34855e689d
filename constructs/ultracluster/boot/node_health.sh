#!/bin/bash
# Whether this node is fit for work; Slurm runs it every few minutes and at boot `--prove` does.
# Usage: node_health.sh [--prove]
# With --prove it fails with every reason; without, it drains the node with them.
. "${BASH_SOURCE[0]%/*}/common.sh"
. "${BASH_SOURCE[0]%/*}/packages.sh"
# shellcheck source=/dev/null # made at deploy
. "${BASH_SOURCE[0]%/*}/boot.env"

problems=()
problem() { problems+=("$*"); }

count() { grep -c "$@" || true; }

# told SECONDS COMMAND...: what a tool says in this time. That it fails or hangs must not end the
# check: what is missing from its words is the problem. Slurm ends a check after 60 s in all.
told() {
    local seconds=$1
    shift
    timeout -k 2 "$seconds" "$@" 2>/dev/null || true
}

check_shared_storage() {
    if ! timeout -k 2 10 modprobe lustre 2>/dev/null; then
        problem "lustre module not available for $(uname -r)"
        return
    fi
    local status=0
    timeout -k 2 10 mountpoint -q "$root/fsx" || status=$?
    case $status in
    0) ;;
    124 | 137) problem '/fsx does not answer' ;;
    *) problem '/fsx is not mounted' ;;
    esac
}

check_neuron() {
    local expected=$1 found
    found=$(told 20 neuron-ls --json-output | count '"neuron_device"')
    [[ $found == "$expected" ]] || problem "neuron-ls sees $found of $expected devices"
    local counter
    for counter in "$root"/sys/devices/virtual/neuron_device/neuron*/stats/hardware/*_ecc_uncorrected/total; do
        if [[ -e $counter && $(<"$counter") != 0 ]]; then
            problem "uncorrected ECC errors: $(<"$counter") in ${counter#"$root"}"
        fi
    done
    local hardware
    hardware=$(told 5 dmesg | sed -nE 's/.*(NEURON_HW_ERR=[^ ]*).*/\1/p' | sort -u | tr '\n' ' ')
    [[ -z $hardware ]] || problem "the driver reports ${hardware% }"
}

check_neuron_versions() {
    local driver
    driver=$(cat "$root/sys/module/neuron/version" 2>/dev/null || echo none)
    [[ $driver. == "$NEURON_DRIVER".* ]] || problem "driver $driver is loaded, $NEURON_DRIVER is wanted"
    local runtime
    runtime=$(installed_version aws-neuronx-runtime-lib)
    [[ $runtime == "$NEURON_RUNTIME".* ]] ||
        problem "runtime ${runtime:-none} is installed, $NEURON_RUNTIME belongs to driver $NEURON_DRIVER"
}

check_gpu() {
    local expected=$1 found
    # Fails as a whole where driver and library do not match.
    found=$(told 15 nvidia-smi --query-gpu=index --format=csv,noheader | count '^[0-9]')
    [[ $found == "$expected" ]] || problem "nvidia-smi sees $found of $expected GPUs"
    local errors
    errors=$(told 15 nvidia-smi --query-gpu=ecc.errors.uncorrected.volatile.total \
        --format=csv,noheader | count '^[1-9]')
    [[ $errors == 0 ]] || problem "uncorrected ECC errors on $errors GPUs"
}

instance_type() { cat "$root/etc/ultracluster/instance_type" 2>/dev/null || echo unknown; }

check_efa() {
    local expected=$1 found
    found=$(told 20 fi_info -p efa | sed -nE 's/^ *domain: ([^ ]+)-(rdm|dgrm)$/\1/p' | sort -u | wc -l)
    ((found == expected)) || problem "fi_info sees $found of $expected EFA interfaces"
}

drain() {
    local node=${SLURMD_NODENAME:-$(hostname -s)}
    if scontrol show node "$node" | grep -q 'State=[A-Z+]*DRAIN'; then
        return
    fi
    say "drain $node: $1"
    scontrol update "nodename=$node" state=drain "reason=ultracluster: $1"
}

check_shared_storage
kind=
if type=$(fact type 2>/dev/null) && [[ -n $type ]]; then
    kind=$(fact kind)
else
    type=
    problem "no facts for instance type $(instance_type) in platform.json"
fi
case $kind in
trainium) check_neuron "$(fact accelerators)" ;;
nvidia) check_gpu "$(fact accelerators)" ;;
esac
if [[ ${1:-} == --prove ]]; then
    [[ $kind != trainium ]] || check_neuron_versions
    [[ -z $type || $(<"$root/etc/ultracluster/efa") != efa ]] || check_efa "$(fact efa_interfaces)"
fi
if ((${#problems[@]})); then
    reason=$(printf '%s; ' "${problems[@]}")
    if [[ ${1:-} == --prove ]]; then
        fail "${reason%; }"
    fi
    drain "${reason%; }"
fi
