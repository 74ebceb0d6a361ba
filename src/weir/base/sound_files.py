"""Files of the base table that were found intact, so that a process checks each only once."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Container

from cachetools import LRUCache

from weir.base.file_checksums import compared, recorded_checksums
from weir.errors import CorruptionError
from weir.storage.interface import ObjectStore

__all__ = ["are_sound", "not_known_to_be_sound", "refuse_unsound"]

_FILES = 64 * 1024
_Identity = tuple[int, int, int]

_sound: LRUCache[str, _Identity] = LRUCache(_FILES)
"""The identity of each file, by its location."""
_lock = threading.Lock()


def not_known_to_be_sound(store: ObjectStore, paths: Collection[str]) -> list[str]:
    """Return which files of a local table are there and were not yet found sound by this process."""
    unknown = []
    for path in paths:
        location = os.path.join(store.uri, path)
        identity = _identity(location)
        with _lock:
            if identity is not None and _sound.get(location) != identity:
                unknown.append(path)
    return unknown


def are_sound(store: ObjectStore, paths: Collection[str]) -> None:
    """Remember files that were found sound."""
    for path in paths:
        location = os.path.join(store.uri, path)
        identity = _identity(location)
        with _lock:
            if identity is not None:
                _sound[location] = identity


def _identity(location: str) -> _Identity | None:
    try:
        status = os.stat(location)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def refuse_unsound(
    store: ObjectStore, paths: Collection[str], versions: Container[int], *, because: str, hint: str
) -> None:
    """Make sure that files are intact, as far as there are checksums; reads each as a whole, once.

    Parameters
    ----------
    store : ObjectStore
        The table's store. Nothing is read unless it is local.
    paths : collection of str
        Which files.
    versions : container of int
        The versions that may have been the first to have them.
    because : str
        What would become of it if they are not.
    hint : str
        What to do then.

    Raises
    ------
    CorruptionError
        One of them is not. It is named.
    StorageError
        If the store failed.
    """
    unknown = not_known_to_be_sound(store, paths) if store.is_local else []
    if not unknown:
        return
    for one in compared(store, recorded_checksums(store, unknown, versions)):
        raise CorruptionError(f"{because}: {one.problem}", where=f"{store.uri}/{one.path}", hint=hint)
    are_sound(store, unknown)
