"""Marks of namespaces that need maintenance, set by their writer until there is nothing left to do.

``dirty/{process}/{namespace}`` below the root, an object each. It is there before the process writes the
namespace, and goes when everything is merged and what merges have replaced is removed. So what a process that
is gone has left is found without looking at every namespace.
"""

from __future__ import annotations

import threading
import time

from weir.namespaces.names import directory_of, namespace_of
from weir.storage.interface import ObjectStore

__all__ = ["Dirty"]

_DIRECTORY = "dirty"


class Dirty:
    """The marks below a root, and those of one process. Safe to use from many threads.

    Parameters
    ----------
    store : ObjectStore
        The root.
    process : str
        Id of the process; empty for one that sets no marks.
    """

    def __init__(self, store: ObjectStore, process: str) -> None:
        self._store = store
        self._process = process
        self._marked: dict[str, float] = {}
        self._lock = threading.Lock()

    def mark(self, name: str) -> None:
        """Say that this process is about to write a namespace, or has something to do with it."""
        if not self._process:
            return
        with self._lock:
            if name not in self._marked:
                self._store.put(_path(self._process, name), b"{}")
            self._marked[name] = time.monotonic()

    def clear(self, name: str, seen: float) -> None:
        """Say that there is nothing left to do, unless the namespace was marked since a moment."""
        with self._lock:
            if self._marked.get(name, float("inf")) <= seen:
                self._store.delete([_path(self._process, name)])
                del self._marked[name]

    def marked(self) -> dict[str, float]:
        """Return the namespaces that this process has marked, and when, by the monotonic clock."""
        with self._lock:
            return dict(self._marked)

    def processes(self) -> list[str]:
        """Return the other processes that have marked namespaces. One listing."""
        return [one for one in self._store.list_directories(_DIRECTORY) if one != self._process]

    def of(self, process: str) -> list[str]:
        """Return the namespaces that a process has marked. One listing."""
        place = f"{_DIRECTORY}/{process}"
        return [namespace_of(meta.path.removeprefix(f"{place}/")) for meta in self._store.list(place)]

    def adopt(self, process: str, name: str) -> None:
        """Take over what another process, which is gone, had to do with a namespace."""
        self.mark(name)
        self._store.delete([_path(process, name)])


def _path(process: str, name: str) -> str:
    return f"{_DIRECTORY}/{process}/{directory_of(name)}"
