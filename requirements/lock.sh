#!/bin/sh
# Renews requirements/*.txt from requirements/*.in, each in an environment of its own. Usage: lock.sh PYTHON
set -eu
cd "$(dirname "$0")"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for name in app emulator oracle render training xla; do
    "$1" -m venv "$scratch/$name"
    pip="$scratch/$name/bin/python -m pip --disable-pip-version-check -q"
    if [ "$name" = training ]; then
        "$1" install_torch.py "$scratch/$name/bin/python"
    fi
    $pip install -r "$name.in"
    # The local label (+cpu) names a build, not a version.
    $pip freeze --all | grep -v "^pip==" | sed 's/+cpu$//' >"$scratch/$name.txt"
    mv "$scratch/$name.txt" "$name.txt"
    echo "renewed $name.txt"
done
