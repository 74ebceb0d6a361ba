"""Listing a local directory: objects, and directories with objects."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from weir.storage.local_files import ABSENT, status_of
from weir.storage.local_swaps import SWAPS, SwappedObject
from weir.storage.paths import is_reserved

__all__ = ["LocalListing"]

_REMEMBERED_DIRECTORIES = 4096


class LocalListing:
    """Finds the objects below a store's root, without the store's internal files.

    Parameters
    ----------
    base : str
        The root, with a slash at its end.
    """

    def __init__(self, base: str) -> None:
        self._base = base
        # An object below a directory, which shows that it is not empty.
        self._found_below: dict[str, str] = {}
        self.unlisted = object()
        """Another one each time that a directory was not listed because no object is below it."""

    def objects(self, prefix: str) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the path and the status of every object below the directory ``prefix``, in no order."""
        pending = [prefix]
        while pending:
            directory = pending.pop()
            swapped = self._swapped(directory)
            for entry in self._entries(directory):
                path = _join(directory, entry.name)
                if entry.name in swapped:
                    head = SwappedObject(self._base + path).head()
                    if head is not None:
                        yield path, head.status
                    continue
                if entry.is_dir():
                    pending.append(path)
                    continue
                try:
                    status = entry.stat()
                except FileNotFoundError:
                    continue  # deleted since the directory was read
                if stat.S_ISREG(status.st_mode):
                    yield path, status

    def _swapped(self, directory: str) -> frozenset[str]:
        """Return the names in a directory of objects that may have been swapped."""
        try:
            return frozenset(os.listdir(self._base + _join(directory, SWAPS)))
        except OSError as error:
            if error.errno in ABSENT:
                return frozenset()
            raise

    def directories(self, prefix: str) -> list[str]:
        """Return the names directly below the directory ``prefix`` that hold objects, in order."""
        names = [entry.name for entry in self._entries(prefix) if entry.is_dir()]
        listed = sorted(name for name in names if self._holds_objects(self._base + _join(prefix, name)))
        if len(listed) < len(names):
            self.unlisted = object()
        return listed

    def _holds_objects(self, directory: str) -> bool:
        """Whether there is an object below a directory, at any depth: most often the one of the last time."""
        known = self._found_below.get(directory)
        if known is not None and status_of(known) is not None:
            return True
        found = _object_below(directory)
        if found is None:
            self._found_below.pop(directory, None)
            return False
        if len(self._found_below) >= _REMEMBERED_DIRECTORIES:
            self._found_below.clear()
        self._found_below[directory] = found
        return True

    def _entries(self, prefix: str) -> Iterator[os.DirEntry[str]]:
        """Yield what lies directly in a directory, except what the store keeps for itself."""
        try:
            entries = os.scandir(self._base + prefix)
        except OSError as error:
            if error.errno in ABSENT:
                return
            raise
        with entries:
            for entry in entries:
                if not is_reserved(entry.name):
                    yield entry


def _join(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name


def _object_below(location: str) -> str | None:
    """Return the location of an object below a directory, at any depth, or None."""
    pending = [location]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if is_reserved(entry.name):
                        continue
                    if entry.is_dir():
                        pending.append(entry.path)
                    elif entry.is_file():
                        return entry.path
        except OSError as error:
            if error.errno not in ABSENT:
                raise
    return None
