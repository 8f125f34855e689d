#!/bin/bash
# One stage of a node's boot. Usage: node.sh start|configured|updated efa|no-efa
# A second run leaves the node as the first did.
. "${BASH_SOURCE[0]%/*}/common.sh"
. "${BASH_SOURCE[0]%/*}/packages.sh"
. "${BASH_SOURCE[0]%/*}/neuron.sh"
# shellcheck source=/dev/null # made at deploy
. "${BASH_SOURCE[0]%/*}/boot.env"

release=${BASH_SOURCE[0]%/*}
stage=$1 efa=$2

# A node of unknown type would skip its set-up and count as sound.
read_node_type() {
    local file=$root/etc/parallelcluster/cfnconfig
    [[ -r $file ]] || fail "cannot read $file, which says what type of node this is"
    node_type=$(sed -n 's/^cfn_node_type=//p' "$file" | tr -d '"')
    case $node_type in
    HeadNode | LoginNode | ComputeFleet) ;;
    *) fail "node type ${node_type:-none} in $file: it must be HeadNode, LoginNode or ComputeFleet" ;;
    esac
}

# IMDS answers at once or not at all.
metadata() { curl -fsS --connect-timeout 2 --max-time 5 --retry 5 "$@"; }

# platform.json: the facts of the environment, and of this instance's type.
write_platform() {
    local token type
    token=$(metadata -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' \
        http://169.254.169.254/latest/api/token)
    type=$(metadata -H "X-aws-ec2-metadata-token: $token" \
        http://169.254.169.254/latest/meta-data/instance-type)
    python3 - "$home/platform.json" "$type" <<'PYTHON' | write_file "$root/etc/ultracluster/platform.json"
import json, sys
given = json.load(open(sys.argv[1]))
print(json.dumps(given["facts"] | {"instance": given["instances"].get(sys.argv[2])}, indent=2))
PYTHON
    echo "$type" | write_file "$root/etc/ultracluster/instance_type"
    echo "$efa" | write_file "$root/etc/ultracluster/efa"
}

write_limits() {
    # EFA pins memory, and a rank opens a file for each peer.
    write_file "$root/etc/security/limits.d/99-ultracluster.conf" <<'CONF'
* soft nofile 1048576
* hard nofile 1048576
* soft memlock unlimited
* hard memlock unlimited
CONF
}

lay_out() {
    local place
    for place in code cache cache/neuron checkpoints containers results; do
        install -d -m 1777 "$root/fsx/$place"
    done
    install -d -m 0755 "$root/fsx/envs"
}

# Enroot and Pyxis are in ParallelCluster's images, switched off: its user guide, "Pyxis".
enable_containers() {
    local examples=$root/opt/parallelcluster/examples
    [[ -e $examples/enroot/enroot.conf ]] || fail "no $examples/enroot: this image holds no Enroot"
    install -d -m 1777 "$root/var/enroot" "$root/run/enroot" "$root/run/pyxis"
    install -D -m 0644 "$examples/enroot/enroot.conf" "$root/etc/enroot/enroot.conf"
    # Ubuntu 24.04 keeps user namespaces, in which Enroot runs, from everybody but root.
    if [[ -e $root/proc/sys/kernel/apparmor_restrict_unprivileged_userns ]]; then
        write_file "$root/etc/sysctl.d/99-ultracluster.conf" <<'CONF'
kernel.apparmor_restrict_unprivileged_userns = 0
CONF
        retry sysctl --system
    fi
    if [[ $node_type == HeadNode ]]; then
        install -D -m 0644 "$examples/spank/plugstack.conf" "$root/opt/slurm/etc/plugstack.conf"
        install -D -m 0644 "$examples/pyxis/pyxis.conf" "$root/opt/slurm/etc/plugstack.conf.d/pyxis.conf"
        retry scontrol reconfigure
    fi
}

configure_head() {
    step 'places on /fsx' lay_out
    if [[ $INSTALL == yes && $NEURON == yes ]]; then
        # Minutes of pip: beside the head node's own time limit, not within it.
        timeout -k 2 30 systemctl is-active --quiet ultracluster-environment ||
            systemd-run --collect --unit ultracluster-environment bash "$release/environment.sh" >>"$log" 2>&1
    fi
}

configure_compute() {
    # Any other word would leave the EFA unproved.
    [[ $efa == efa || $efa == no-efa ]] || fail "argument ${efa:-none}: it must be efa or no-efa"
    if [[ $(fact kind) == trainium ]]; then
        if [[ $INSTALL == yes ]]; then
            step 'neuron packages' install_neuron
            step 'neuron environment' bash "$release/environment.sh"
        fi
        step 'metrics' start_metrics
    fi
    step 'proof' bash "$release/node_health.sh" --prove
}

case $stage in
start)
    step 'kernel held' hold_kernel
    ;;
configured | updated)
    read_node_type
    step 'platform.json' write_platform
    step 'limits' write_limits
    if [[ $CONTAINERS == yes ]]; then
        step 'containers' enable_containers
    fi
    case $node_type in
    HeadNode) configure_head ;;
    ComputeFleet) configure_compute ;;
    LoginNode) ;; # limits and containers are all that it needs
    esac
    ;;
*)
    fail "stage $stage: it must be start, configured or updated"
    ;;
esac
