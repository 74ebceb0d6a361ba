"""Forked processes, in which the libraries' threads are missing and waiting for them would hang."""

from __future__ import annotations

import os

from weir.errors import ForkedProcessError

__all__ = ["is_forked", "note_use", "refuse_forked"]

is_forked = False
"""Whether :func:`refuse_forked` raises: so it need not be called before every read."""

_is_used = False


def _after_fork() -> None:
    global is_forked
    is_forked = _is_used


os.register_at_fork(after_in_child=_after_fork)


def note_use() -> None:
    """Note that this process has threads of the libraries from now on: it has opened a table."""
    global _is_used
    _is_used = True


def refuse_forked() -> None:
    """Refuse to continue in a process that was forked from one that had opened a table.

    Raises
    ------
    ForkedProcessError
        In such a process, where every read and write would hang.
    """
    if is_forked:
        raise ForkedProcessError(
            "this process was forked from one that had opened a table: a fork has no copy of the threads "
            "that read and write",
            hint='Start processes with multiprocessing.get_context("forkserver") or "spawn", in PyTorch with '
            'DataLoader(..., multiprocessing_context="forkserver"); tables and scans can be pickled',
        )
