#!/bin/bash
# Builds the Neuron python environment on the shared file system, once for all nodes.
# Usage: environment.sh
. "${BASH_SOURCE[0]%/*}/common.sh"
. "${BASH_SOURCE[0]%/*}/packages.sh"
# shellcheck source=/dev/null # made at deploy
. "${BASH_SOURCE[0]%/*}/boot.env"

target=$root/fsx/envs/neuron-$NEURON_RELEASE
patience=1500 # below the time that a node has for its boot

build() {
    install_any "python$PYTHON" "python$PYTHON-venv"
    rm -rf "$target"
    "python$PYTHON" -m venv "$target" >>"$log" 2>&1
    retry "$target/bin/pip" install --disable-pip-version-check --no-input \
        --extra-index-url https://pip.repos.neuron.amazonaws.com \
        "torch-neuronx==$NEURON_FRAMEWORK" "neuronx-cc==$NEURON_COMPILER.*"
    "$target/bin/pip" freeze >"$target/packages.txt"
    touch "$target/.complete"
}

mkdir -p "${target%/*}"
# Lustre is mounted with flock: the lock holds between nodes and ends with its holder.
exec 9>"$target.lock"
flock -w "$patience" 9 || fail "another node has built $target for $patience s"
if [[ -e $target/.complete ]]; then
    say "$target is there"
else
    step "build $target" build
fi
