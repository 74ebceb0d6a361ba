"""Forked processes, in which the libraries' threads are missing and waiting for them would hang."""

from __future__ import annotations

import os

from weir.errors import ForkedProcessError

__all__ = ["note_use", "refuse_forked"]

_state = {"used": False, "forked": False}


def _after_fork() -> None:
    _state["forked"] = _state["used"]


os.register_at_fork(after_in_child=_after_fork)


def note_use() -> None:
    """Note that this process has threads of the libraries from now on: it has opened a table."""
    _state["used"] = True


def refuse_forked() -> None:
    """Refuse to continue in a process that was forked from one that had opened a table.

    Raises
    ------
    ForkedProcessError
        In such a process, where every read and write would hang.
    """
    if _state["forked"]:
        raise ForkedProcessError(
            "this process was forked from one that had opened a table: a fork has no copy of the threads "
            "that read and write",
            hint='Start processes with multiprocessing.get_context("forkserver") or "spawn", in PyTorch with '
            'DataLoader(..., multiprocessing_context="forkserver"); tables and scans can be pickled',
        )
