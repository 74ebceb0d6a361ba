#!/usr/bin/env bash
# Build .venv from the locks in requirements/. `make setup` runs this when a lock has changed.
#
#   PYTHON=/path/to/python3.11 tools/setup.sh      with an interpreter of your choice
#   tools/setup.sh --find-python                   only print the interpreter that would be used
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'setup: %s\n' "$*" >&2; }

# Runs the candidate rather than looking for it: a version manager's shim can be on the path and fail.
is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    local candidate version found=
    for candidate in ${PYTHON:+"$PYTHON"} python3.11 python3 python3.12 python3.13; do
        if is_new_enough "$candidate"; then
            command -v "$candidate"
            return
        fi
        version=$("$candidate" --version 2>/dev/null) || continue
        found+="${found:+, }$version"
    done
    say "Weir needs Python 3.11 or newer; found: ${found:-none}."
    say "Install it (on Debian: apt-get install python3.11 python3.11-venv)" \
        "or name one: make setup PYTHON=/path/to/python3.11"
    return 1
}

if [[ ${1-} == --find-python ]]; then
    find_python
    exit
fi

python=$(find_python)
say "building .venv with $("$python" --version) (a minute the first time)"
# An environment whose interpreter has gone or is too old is built anew; any other is brought up to date.
if ! is_new_enough .venv/bin/python; then
    if ! "$python" -m venv --clear .venv; then
        say "this Python cannot create virtual environments."
        say "Install its venv module (on Debian: apt-get install python3-venv), then run make again."
        exit 1
    fi
fi

# The locks are complete, so pip has nothing to resolve, and every file is checked against its hash.
# Nothing is compiled file by file: compileall below does it on all cores.
install() {
    .venv/bin/python -m pip install -qq --disable-pip-version-check --no-compile --no-deps --no-build-isolation "$@"
}
install --require-hashes --requirement requirements/build.lock
for lock in "${@:-dev}"; do
    install --require-hashes --use-pep517 --requirement "requirements/$lock.lock"
done
install --editable .
.venv/bin/python -m pip --disable-pip-version-check check --quiet
# Packages may carry files for other versions of Python, which do not compile; they are never imported.
.venv/bin/python -m compileall -q -j 0 .venv/lib >/dev/null 2>&1 || true

tools/ensure_java.sh
