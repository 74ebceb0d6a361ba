#!/usr/bin/env bash
# Run a command whose temporary files are in memory, if there is room. Whoever waits for a disk to sync what
# a test is about to throw away waits for nothing.
set -euo pipefail

room=$((4 * 1024 * 1024)) # KiB
memory=/dev/shm

# Tests start programs of theirs where their files are.
can_hold() {
    [[ -d $1 && -w $1 ]] && (($(df --output=avail "$1" | tail -n 1) >= room)) &&
        [[ ,$(findmnt --noheadings --output OPTIONS --target "$1"), != *,noexec,* ]]
}

if [[ -n ${TMPDIR:-} ]] || ! can_hold "$memory" 2>/dev/null; then
    exec "$@"
fi
TMPDIR=$(mktemp -d "$memory/weir-XXXXXX")
chmod 1777 "$TMPDIR" # as /tmp: some tests are of several users
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
"$@"
