#!/usr/bin/env bash
# Build .venv-lancedb: what .venv has, and LanceDB from its lock, which nothing else of the project needs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

stamp=.venv-lancedb/.setup-complete
if [[ -e $stamp && $stamp -nt requirements/lancedb.lock && $stamp -nt .venv/.setup-complete ]]; then
    exit
fi
site='import site; print(site.getsitepackages()[0])'
.venv/bin/python -m venv --clear .venv-lancedb
printf '%s\n' "$(.venv/bin/python -c "$site")" "$PWD/src" >"$(.venv-lancedb/bin/python -c "$site")/beside.pth"
.venv-lancedb/bin/python -m pip install -qq --disable-pip-version-check --no-deps --require-hashes \
    --requirement requirements/lancedb.lock
touch "$stamp"
