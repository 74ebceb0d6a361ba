#!/usr/bin/env bash
# Write the locks of requirements/ anew from pyproject.toml: hashed, for every Python from 3.11 on, with no
# word about the registry they were made from. Options go to `uv pip compile`, for example --upgrade or
# --upgrade-package pyarrow; without any, what is locked already stays as it is.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Only locking needs uv, so it has an environment of its own and is no dependency of the project.
if [[ ! -x .venv-lock/bin/uv ]]; then
    "$(tools/setup.sh --find-python)" -m venv .venv-lock
    .venv-lock/bin/python -m pip install -qq --disable-pip-version-check 'uv>=0.9'
fi

compile() {
    .venv-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --no-emit-find-links --no-emit-build-options \
        --custom-compile-command 'make lock' "$@"
}
compile "$@" requirements/build.in --output-file requirements/build.lock
compile "$@" pyproject.toml --extra dev --extra demo --extra service --constraint requirements/build.lock \
    --output-file requirements/dev.lock
compile "$@" pyproject.toml --extra spark --constraint requirements/dev.lock --output-file requirements/spark.lock
compile "$@" requirements/lancedb.in --constraint requirements/dev.lock --output-file requirements/lancedb.lock
compile "$@" requirements/docs.in --output-file requirements/docs.lock
