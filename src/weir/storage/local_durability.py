"""Durable names of objects: syncing their directories, up to the root."""

from __future__ import annotations

import contextlib
import os

from weir.storage.local_files import sync_directory

__all__ = ["DurableNames"]

_REMEMBERED_DIRECTORIES = 4096


class DurableNames:
    """Makes directories below a root durable, with all that is above them.

    Parameters
    ----------
    root : str
        The root.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        # Directories whose own entries, up to the root, this process has made durable.
        self._known: set[str] = set()

    def forget(self, directory: str) -> None:
        """Forget what is known of a directory that was removed or will be recreated."""
        self._known.discard(directory)

    def sync(self, directory: str) -> None:
        """Make the entries of a directory durable, and its own entry and those above it.

        Parents are synced once per process and directory: their creator may have died before doing so.
        """
        sync_directory(directory)
        if directory in self._known:
            return
        above = directory
        while len(above) > len(self._root):
            above = os.path.dirname(above)
            sync_directory(above)
        # The entry of the root lies in a directory that need not be ours to open.
        with contextlib.suppress(PermissionError):
            sync_directory(os.path.dirname(self._root))
        if len(self._known) >= _REMEMBERED_DIRECTORIES:
            self._known.clear()
        self._known.add(directory)
