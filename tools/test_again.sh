#!/usr/bin/env bash
# Run pytest with the given arguments; what fails, if it is three tests at most, once more, one after the other. A
# race that a test plays may be lost on a machine that others load. What failed first is printed either way and is
# to be mended; what fails twice fails here.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
pytest=(.venv/bin/python -m pytest "$@")

"${pytest[@]}"
code=$?
# 1 says that tests failed; every other code is an error of the run itself.
((code == 1)) || exit "$code"
failed=$(.venv/bin/python -c 'import json; print(*json.load(open(".pytest_cache/v/cache/lastfailed")), sep="\n")') ||
    exit 1
(($(wc -l <<<"$failed") <= 3)) || exit 1
printf 'UNSTABLE, tried once more:\n%s\n' "$failed"
exec "${pytest[@]}" --last-failed --last-failed-no-failures none -n 0
