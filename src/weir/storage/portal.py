"""Endpoints that answer everything with a page: a captive portal, a proxy's notice, another service's port.

The client treats any well-formed answer to a listing as an empty list, so a table would seem not to exist.
Such an endpoint is recognised because it has an object of any name.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from uuid import uuid4

from weir.errors import StorageError

__all__ = ["PortalWatch"]

_SECONDS = 10.0
"""How long an endpoint counts as an object store after an answer that only one gives."""

_answered_at: dict[str, float] = {}
_lock = threading.Lock()


class PortalWatch:
    """Records which endpoints have answered like an object store, and checks doubtful ones.

    Parameters
    ----------
    endpoint : str
        What answers.

    Examples
    --------
    >>> watch = PortalWatch("an example")
    >>> watch.check(lambda name: True, where="s3://bucket")
    Traceback (most recent call last):
    weir.errors.StorageError: What answers is not an object store: ...
    >>> watch.note()
    >>> watch.check(lambda name: True, where="s3://bucket")
    """

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint

    def note(self) -> None:
        """Note an answer that only an object store gives: objects, a name that nothing has, a write."""
        with _lock:
            _answered_at[self._endpoint] = time.monotonic()

    def check(self, has: Callable[[str], bool], *, where: str) -> None:
        """Make sure that a listing that is empty is one: asked unless something was noted a moment ago.

        Parameters
        ----------
        has : callable
            Whether there is an object of a name.
        where : str
            What was listed.

        Raises
        ------
        StorageError
            The endpoint has an object of a random name.
        """
        with _lock:
            answered_at = _answered_at.get(self._endpoint, float("-inf"))
        if time.monotonic() - answered_at < _SECONDS:
            return
        if has(f"weir-asks-{uuid4().hex}"):
            raise StorageError(
                "What answers is not an object store: it has an object of every name, but lists none",
                where=where,
                hint="Check the storage option 'endpoint', its port, and whether the network wants a login",
            )
        self.note()
