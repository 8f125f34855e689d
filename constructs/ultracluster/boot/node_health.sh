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

check_shared_storage() {
    if ! modprobe lustre 2>/dev/null; then
        problem "lustre module not available for $(uname -r)"
    elif ! mountpoint -q "$root/fsx"; then
        problem '/fsx is not mounted'
    fi
}

check_neuron() {
    local expected=$1 found
    found=$(timeout 30 neuron-ls --json-output 2>/dev/null | count '"neuron_device"')
    [[ $found == "$expected" ]] || problem "neuron-ls sees $found of $expected devices"
    local counter
    for counter in "$root"/sys/devices/virtual/neuron_device/neuron*/stats/hardware/*_ecc_uncorrected/total; do
        if [[ -e $counter && $(<"$counter") != 0 ]]; then
            problem "uncorrected ECC errors: $(<"$counter") in ${counter#"$root"}"
        fi
    done
    local hardware
    hardware=$(dmesg | sed -nE 's/.*(NEURON_HW_ERR=[^ ]*).*/\1/p' | sort -u | tr '\n' ' ')
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
    found=$(timeout 30 nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null | count '^[0-9]')
    [[ $found == "$expected" ]] || problem "nvidia-smi sees $found of $expected GPUs"
    local errors
    errors=$(timeout 30 nvidia-smi --query-gpu=ecc.errors.uncorrected.volatile.total \
        --format=csv,noheader 2>/dev/null | count '^[1-9]')
    [[ $errors == 0 ]] || problem "uncorrected ECC errors on $errors GPUs"
}

check_efa() {
    local expected=$1 found
    found=$(fi_info -p efa 2>/dev/null | sed -nE 's/^ *domain: ([^ ]+)-(rdm|dgrm)$/\1/p' | sort -u | wc -l)
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
kind=$(fact kind) accelerators=$(fact accelerators)
case $kind in
trainium) check_neuron "$accelerators" ;;
nvidia) check_gpu "$accelerators" ;;
esac
if [[ ${1:-} == --prove ]]; then
    [[ $kind != trainium ]] || check_neuron_versions
    [[ $(<"$root/etc/ultracluster/efa") != efa ]] || check_efa "$(fact efa_interfaces)"
fi
if ((${#problems[@]})); then
    reason=$(printf '%s; ' "${problems[@]}")
    if [[ ${1:-} == --prove ]]; then
        fail "${reason%; }"
    fi
    drain "${reason%; }"
fi
