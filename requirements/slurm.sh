#!/bin/sh
# Slurm for its tests, unpacked into a folder of its own: nothing of the system changes.
# Usage: slurm.sh FOLDER. Where it cannot be had a line says why, and those tests are skipped.
folder=$1

skip() {
    echo "set-up: no Slurm ($1); its tests will be skipped"
    exit 0
}

command -v apt-get >/dev/null 2>&1 || skip "this is no Debian or Ubuntu"
[ "$(id -u)" = 0 ] || skip "its nodes are network namespaces, which need root"
command -v ip >/dev/null 2>&1 || skip "no ip command: apt-get install iproute2"

part=$folder.part
rm -rf "$part"
mkdir -p "$part/debs/partial" "$part/lists/partial"

# Whatever apt makes is below the folder.
apt() {
    apt-get -qq -o APT::Sandbox::User=root -o Debug::NoLocking=1 -o Dir::Cache::pkgcache= \
        -o Dir::Cache::srcpkgcache= -o "Dir::Cache::Archives=$PWD/$part/debs/" "$@"
}
fetch() {
    apt "$@" -y --download-only --no-install-recommends --reinstall install \
        slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge
}

echo "set-up: $folder (Slurm, for its tests)"
if ! fetch >"$part/log" 2>&1; then
    lists="-o Dir::State::Lists=$PWD/$part/lists"
    # shellcheck disable=SC2086 # two words
    { apt $lists update && fetch $lists; } >"$part/log" 2>&1 || skip "$(tail -n 1 "$part/log")"
fi
for package in "$part"/debs/*.deb; do
    dpkg-deb --extract "$package" "$part"
done
rm -rf "$part/debs" "$part/lists"
# Packages of another age name the programs without the suffix.
for name in slurmctld slurmd slurmstepd; do
    [ -e "$part/usr/sbin/$name" ] || ln -s "$name-wlm" "$part/usr/sbin/$name"
done
libraries=$(dirname "$(find "$part/usr/lib" -name libslurmfull.so | head -n 1)")
LD_LIBRARY_PATH=$libraries:$(dirname "$libraries") "$part/usr/sbin/slurmctld" -V >"$part/log" 2>&1 ||
    skip "$(tail -n 1 "$part/log")"
rm -rf "$folder"
mv "$part" "$folder"
touch "$folder/.ready"
