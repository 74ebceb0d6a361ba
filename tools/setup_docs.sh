#!/usr/bin/env bash
# Build .venv-docs: what builds the site, from its lock, which nothing else of the project needs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

stamp=.venv-docs/.setup-complete
if [[ -e $stamp && $stamp -nt requirements/docs.lock ]]; then
    exit
fi
"$(tools/setup.sh --find-python)" -m venv --clear .venv-docs
.venv-docs/bin/python -m pip install -qq --disable-pip-version-check --no-deps --require-hashes \
    --requirement requirements/docs.lock
touch "$stamp"
