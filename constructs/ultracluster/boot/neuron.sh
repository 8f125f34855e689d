# Driver, runtime, collectives and tools of one Neuron release, by exact version.
# shellcheck shell=bash
# shellcheck disable=SC2154 # root, and the versions of boot.env

add_neuron_repository() {
    if has_apt; then
        local codename
        codename=$(sed -n 's/^VERSION_CODENAME=//p' "$root/etc/os-release")
        local key=$root/usr/share/keyrings/neuron.asc
        mkdir -p "${key%/*}"
        retry curl -fsSL --max-time 60 --retry 3 -o "$key" \
            https://apt.repos.neuron.amazonaws.com/GPG-PUB-KEY-AMAZON-AWS-NEURON.PUB
        write_file "$root/etc/apt/sources.list.d/neuron.list" <<CONF
deb [signed-by=$key] https://apt.repos.neuron.amazonaws.com $codename main
CONF
        retry apt-get -o DPkg::Lock::Timeout=300 update
    else
        write_file "$root/etc/yum.repos.d/neuron.repo" <<'CONF'
[neuron]
name=Neuron
baseurl=https://yum.repos.neuron.amazonaws.com
enabled=1
gpgcheck=1
gpgkey=https://yum.repos.neuron.amazonaws.com/GPG-PUB-KEY-AMAZON-AWS-NEURON.PUB
CONF
    fi
}

install_neuron() {
    local kernel
    kernel=$(uname -r)
    if neuron_is_installed; then
        say "neuron $NEURON_RELEASE is there"
    else
        step 'neuron repository' add_neuron_repository
        if has_apt; then
            install_any "linux-headers-$kernel"
        else
            install_any "kernel-devel-$kernel"
        fi
        install_pinned aws-neuronx-dkms "$NEURON_DRIVER"
        install_pinned aws-neuronx-collectives "$NEURON_COLLECTIVES"
        install_pinned aws-neuronx-runtime-lib "$NEURON_RUNTIME"
        install_pinned aws-neuronx-tools "$NEURON_TOOLS"
    fi
    # The package succeeds where its module could not be built.
    if ! dkms status | grep -q "^aws-neuronx.*$kernel.*installed"; then
        retry dkms autoinstall -k "$kernel"
    fi
    modprobe neuron >>"$log" 2>&1 || fail "no neuron module for kernel $kernel: see dkms status"
}

neuron_is_installed() {
    [[ $(installed_version aws-neuronx-dkms) == "$NEURON_DRIVER".* ]] &&
        [[ $(installed_version aws-neuronx-collectives) == "$NEURON_COLLECTIVES".* ]] &&
        [[ $(installed_version aws-neuronx-runtime-lib) == "$NEURON_RUNTIME".* ]] &&
        [[ $(installed_version aws-neuronx-tools) == "$NEURON_TOOLS".* ]]
}

# Per minute and job to CloudWatch.
start_metrics() {
    local unit=$root/etc/systemd/system/ultracluster-metrics.service
    write_file "$unit" <<CONF
[Unit]
Description=Neuron metrics to CloudWatch

[Service]
ExecStart=/bin/bash -c 'exec python3 /opt/ultracluster/release/neuron_metrics.py --cluster $CLUSTER --region $REGION < <(/opt/aws/neuron/bin/neuron-monitor)'
Restart=always
RestartSec=30

[Install]
WantedBy=multi-user.target
CONF
    timeout -k 2 60 systemctl daemon-reload
    timeout -k 2 60 systemctl enable --now ultracluster-metrics.service >>"$log" 2>&1
}
