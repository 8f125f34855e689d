# Packages of both families of systems: apt (Ubuntu) and dnf (Amazon Linux, RHEL, Rocky).
# shellcheck shell=bash
# shellcheck disable=SC2154 # root comes from common.sh

has_apt() { command -v apt-get >/dev/null; }

# install_pinned NAME VERSION: any build of this version and no other; nothing where it is there.
install_pinned() {
    local name=$1 version=$2
    if [[ $(installed_version "$name") == "$version".* ]]; then
        say "$name $version is there"
    elif has_apt; then
        retry apt-get -o DPkg::Lock::Timeout=300 -y --allow-downgrades --allow-change-held-packages \
            install "$name=$version.*"
        retry apt-mark hold "$name"
    else
        retry dnf -y install "$name-$version.*"
    fi
}

install_any() {
    if has_apt; then
        retry apt-get -o DPkg::Lock::Timeout=300 -y install "$@"
    else
        retry dnf -y install "$@"
    fi
}

installed_version() {
    if has_apt; then
        # shellcheck disable=SC2016 # dpkg's own variables
        dpkg-query -W -f '${db:Status-Status} ${Version}' "$1" 2>/dev/null | sed -n 's/^installed //p' || true
    else
        rpm -q --queryformat '%{VERSION}.%{RELEASE}' "$1" 2>/dev/null || true
    fi
}

# A new kernel would come without the Lustre, EFA and accelerator modules built for this one.
hold_kernel() {
    if has_apt; then
        write_file "$root/etc/apt/apt.conf.d/99-ultracluster" <<'CONF'
APT::Periodic::Update-Package-Lists "0";
APT::Periodic::Unattended-Upgrade "0";
CONF
        local name
        for name in unattended-upgrades.service apt-daily.timer apt-daily-upgrade.timer; do
            timeout -k 2 60 systemctl disable --now "$name" >>"$log" 2>&1 || say "no $name to switch off"
        done
        local kernel
        kernel=$(uname -r)
        for name in "linux-image-$kernel" "linux-headers-$kernel" linux-aws linux-image-aws linux-headers-aws; do
            apt-mark hold "$name" >>"$log" 2>&1 || say "no $name to hold"
        done
    else
        timeout -k 2 60 systemctl disable --now dnf-automatic.timer >>"$log" 2>&1 || say "no dnf-automatic.timer to switch off"
        if ! grep -qs '^excludepkgs=kernel\*$' "$root/etc/dnf/dnf.conf"; then
            mkdir -p "$root/etc/dnf"
            echo 'excludepkgs=kernel*' >>"$root/etc/dnf/dnf.conf"
        fi
    fi
}
