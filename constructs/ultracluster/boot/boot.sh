#!/bin/bash
# Entry of every node: fetches a release of the boot scripts and runs one stage of it.
# Usage: boot.sh start|configured|updated BUCKET [RELEASE [efa|no-efa]]
# The head node names no release, for its configuration may never change: it takes the current one.
set -euo pipefail

root=${ULTRACLUSTER_ROOT:-}
home=$root/opt/ultracluster
stage=$1 bucket=$2 release=${3:-} efa=${4:-}

fetch() {
    local delay
    for delay in 2 4 8 16 32 0; do
        if aws s3 cp --only-show-errors "s3://$bucket/boot/$1" "$2.part"; then
            mv "$2.part" "$2"
            return
        fi
        sleep "$delay"
    done
    echo "ultracluster: cannot fetch s3://$bucket/boot/$1; may this node read it?" >&2
    exit 1
}

mkdir -p "$home"
if [[ -z $release ]]; then
    fetch current "$home/current"
    release=$(<"$home/current")
fi
if [[ ! -d $home/$release ]]; then
    fetch "$release/scripts.zip" "$home/scripts.zip"
    rm -rf "$home/unpacked"
    python3 -m zipfile -e "$home/scripts.zip" "$home/unpacked"
    chmod 0755 "$home"/unpacked/*.sh # an archive made on any machine has no modes
    fetch "$release/boot.env" "$home/unpacked/boot.env"
    mv "$home/unpacked" "$home/$release"
fi
fetch platform.json "$home/platform.json"
ln -sfn "$release" "$home/release"
exec bash "$home/release/node.sh" "$stage" "$efa"
