#!/bin/sh
# Names every tool that is missing or too old, before anything is installed. Usage: preflight.sh PYTHON
python=$1
problems=""
add() { problems="$problems  - $1
"; }

if ! command -v "$python" >/dev/null 2>&1; then
    add "$python is not found: install Python 3.11 or newer, or name one with \`make PYTHON=/path/to/python3.11 ...\`"
elif ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    add "$python is $("$python" -V 2>&1): install Python 3.11 or newer, or name one with \`make PYTHON=/path/to/python3.11 ...\`"
elif ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
    add "$python has no venv module: install it (Debian and Ubuntu: apt-get install python3-venv)"
fi

if ! command -v node >/dev/null 2>&1; then
    add "node is not found: install Node.js 22"
elif ! node --version >/dev/null 2>&1; then
    add "node does not run: install Node.js 22"
elif ! node -e 'process.exit(Number(process.versions.node.split(".")[0]) < 18 ? 1 : 0)'; then
    add "node is $(node --version): install Node.js 22"
fi
command -v npm >/dev/null 2>&1 || add "npm is not found: it comes with Node.js 22"

[ -w . ] || add "this folder cannot be written to: $(pwd)"

# Three environments and npm's folder take 2.5 GB; packages and models in flight take the rest.
free_kb=$(df -Pk . | awk 'NR == 2 { print $4 }')
if [ "$free_kb" -lt 4000000 ] && [ ! -e .venv-training/.ready ]; then
    add "only $((free_kb / 1000)) MB are free here: set-up needs 4000 MB"
fi

# Environments know where they lie and which python made them: a moved checkout needs new ones.
for stamp in .venv*/.ready; do
    if [ -e "$stamp" ] && { [ "$(cat "$stamp")" != "$(pwd)" ] || ! "${stamp%/.ready}/bin/python" -c ''; } 2>/dev/null; then
        rm -f "$stamp"
    fi
done

if [ -n "$problems" ]; then
    printf 'cannot set up:\n%s' "$problems" >&2
    exit 1
fi
