"""The predecessor of a commit, checked again right before the commit is published.

Otherwise a backup restored in place of the table would go unnoticed: the next version number is free again,
and committing it would put the former table's state above the restored one.
"""

from __future__ import annotations

from weir.base.manifest import VERSIONS, TableManifest, manifest_version
from weir.errors import ConflictError, ObjectNotFoundError
from weir.storage.interface import ObjectStore

__all__ = ["may_follow", "restored_meanwhile"]

_LOOKED_AT = 4096
"""Bytes at the end of a manifest with its time and transaction, which are unique."""


def may_follow(store: ObjectStore, before: TableManifest) -> bool:
    """Whether a version may be published after another one; not if others have published a newer one.

    One request, of few bytes, where the version before is there still.

    Parameters
    ----------
    store : ObjectStore
        Holds the table.
    before : TableManifest
        The version on which the one to publish is based.

    Raises
    ------
    ConflictError
        It is gone, or another one has its number, and nothing newer exists.
    """
    if _is_there(store, before):
        return True
    if _has_newer(store, before.version):
        return False
    raise restored_meanwhile(store.uri, before.version)


def _is_there(store: ObjectStore, manifest: TableManifest) -> bool:
    written = manifest.data if manifest.stored is None else manifest.stored
    start = max(0, len(written) - _LOOKED_AT)
    try:
        found = store.get_range(manifest.path, start, _LOOKED_AT + 1)
    except ObjectNotFoundError:
        return False
    return bytes(found) == bytes(memoryview(written)[start:])


def _has_newer(store: ObjectStore, version: int) -> bool:
    """Whether there is a newer version, so that a missing one was cleaned up or set aside."""
    listed = (manifest_version(entry.path) for entry in store.list(VERSIONS))
    return any(found is not None and found > version for found in listed)


def restored_meanwhile(where: str, version: int) -> ConflictError:
    """Return the error for a commit on top of a version that is gone, with nothing newer in its place."""
    return ConflictError(
        f"version {version} of the table, on which this commit builds, no longer exists: a backup was "
        "restored in place of the table, or the table was removed",
        where=where,
        hint="Nothing was committed. Run it again, on the present table",
    )
