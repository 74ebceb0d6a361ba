"""Named places where a test can kill the process or raise, to prove what a crash there leaves behind.

A failpoint does nothing unless the environment variable ``WEIR_FAILPOINTS`` names it when the process starts,
or a test has armed it with :func:`arm`. The variable holds ``name=action`` pairs separated by commas; the
action is ``kill`` (SIGKILL to this process), ``stop`` (SIGSTOP: it continues from there on SIGCONT) or
``raise`` (:class:`FailpointError`), optionally followed by ``@n`` for "at the n-th time this place is
reached" (counted from 1, the default) or ``@every`` for "each time".

Examples
--------
>>> from weir.engine import failpoint
>>> with failpoint.armed("example.here", "raise@2"):
...     failpoint.reach("example.here")
...     try:
...         failpoint.reach("example.here")
...     except failpoint.FailpointError as error:
...         print(error)
failpoint example.here
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

__all__ = ["FailpointError", "actions", "arm", "armed", "disarm", "reach"]


class FailpointError(Exception):
    """Raised at a failpoint whose action is ``raise``."""


@dataclass(slots=True)
class _Action:
    verb: str
    at: int
    reached: int = 0


_lock = threading.Lock()


def _parse(text: str) -> _Action:
    verb, _, at = text.partition("@")
    if verb not in ("kill", "raise", "stop"):
        raise ValueError(f"unknown failpoint action {verb!r}: use 'kill', 'stop' or 'raise'")
    return _Action(verb, 0 if at == "every" else int(at or 1))


def _from_environment() -> dict[str, _Action]:
    pairs = (item.partition("=") for item in os.environ.get("WEIR_FAILPOINTS", "").split(",") if item)
    return {name.strip(): _parse(action.strip()) for name, _, action in pairs}


actions: dict[str, _Action] = _from_environment()
"""What is armed: where a call costs too much, it is only made while there is something."""


def arm(name: str, action: str) -> None:
    """Arm the failpoint ``name`` with ``action`` (``kill``, ``raise``, ``kill@3``, ...)."""
    with _lock:
        actions[name] = _parse(action)


def disarm(name: str) -> None:
    """Disarm the failpoint ``name``; does nothing if it is not armed."""
    with _lock:
        actions.pop(name, None)


@contextmanager
def armed(name: str, action: str) -> Iterator[None]:
    """Arm a failpoint for the length of a ``with`` block."""
    arm(name, action)
    try:
        yield
    finally:
        disarm(name)


def reach(name: str) -> None:
    """Mark that execution has reached the place ``name``; acts only when armed."""
    if not actions:
        return
    with _lock:
        action = actions.get(name)
        if action is None:
            return
        action.reached += 1
        if action.at and action.reached != action.at:
            return
    if action.verb == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if action.verb == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
        return
    raise FailpointError(f"failpoint {name}")
