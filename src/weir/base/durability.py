"""Making what the library has committed durable: on local disk it syncs nothing itself.

Only the files that newer versions add are synced, never the whole table. The library publishes a
version before anything can be synced, so a power cut in the moments between may leave a newest version
whose files are not on the disk; the version before it and the merged generations are intact then.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from itertools import chain

import lance

from weir.base.library_errors import storage_failure
from weir.base.manifest import manifest_path, read_manifest
from weir.base.publish import TRANSACTIONS
from weir.errors import ObjectNotFoundError, StorageError
from weir.format.table_manifest import decode_index_section
from weir.storage.interface import ObjectStore
from weir.storage.local_files import sync_directory, sync_file

__all__ = ["added_files", "sync_changes", "sync_objects"]


def sync_changes(store: ObjectStore, before: lance.LanceDataset, after: lance.LanceDataset) -> None:
    """Make durable what a newer version refers to and an older one does not.

    What others have committed in between is synced as well: the newer version refers to it.

    Parameters
    ----------
    store : ObjectStore
        The table's store. Nothing happens unless it is local.
    before : LanceDataset
        The table at a version whose files are durable.
    after : LanceDataset
        The table at the version to make durable.
    """
    if before.version != after.version:
        sync_objects(store, added_files(store, before, after))


def sync_objects(store: ObjectStore, paths: Iterable[str]) -> None:
    """Make objects durable that the library has written, in order, and then their names.

    The store syncs whole directories only, and these lie among all the others of the table.

    Parameters
    ----------
    store : ObjectStore
        The table's store. Nothing happens unless it is local and waits for the disk.
    paths : iterable of str
        Objects, or directories with everything in them.

    Raises
    ------
    StorageError
        The disk refuses.
    """
    if not store.is_local or not getattr(store, "fsync", True):
        return
    directories: dict[str, None] = {}
    try:
        for path in paths:
            location = os.path.join(store.uri, path)
            if os.path.isdir(location):
                store.sync(path)
            else:
                try:
                    sync_file(location)
                except FileNotFoundError:
                    continue  # cleaned up since, or an index that lives in the manifest alone
            directories[os.path.dirname(location)] = None
        # The root last: the library may have made any of the directories just now.
        for directory in (*directories, store.uri):
            with contextlib.suppress(FileNotFoundError):
                sync_directory(directory)
    except StorageError:
        raise
    except OSError as error:
        raise storage_failure(error, "making the new version durable", where=store.uri) from error


def added_files(store: ObjectStore, before: lance.LanceDataset, after: lance.LanceDataset) -> Iterator[str]:
    """Yield the files and directories that versions have added, manifests last.

    Files of other bases (shallow clones) are not below the table and left away.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    before, after : LanceDataset
        The table at an older and a newer version.

    Yields
    ------
    str
        A path relative to the table: a data, deletion, transaction or manifest file, or the
        directory of an index.
    """
    # By comparison: the library cannot read back the transaction of a compaction that moved an index.
    yield from sorted(_fragment_files(after) - _fragment_files(before))
    yield from sorted(_index_directories(store, after.version) - _index_directories(store, before.version))
    versions = range(before.version + 1, after.version + 1)
    for entry in store.list(TRANSACTIONS):
        read_version = entry.path.removeprefix(f"{TRANSACTIONS}/").split("-")[0]
        if read_version.isdecimal() and int(read_version) + 1 in versions:
            yield entry.path
    for version in versions:
        paths = (manifest_path(version, counts_down=counts_down) for counts_down in (True, False))
        yield from (path for path in paths if store.head(path) is not None)


def _fragment_files(dataset: lance.LanceDataset) -> set[str]:
    fragments = [fragment.metadata for fragment in dataset.get_fragments()]
    data = chain.from_iterable(fragment.files for fragment in fragments)
    found = {f"data/{file.path}" for file in data if file.base_id is None}
    for fragment in fragments:
        deletion = fragment.deletion_file
        if deletion is not None and deletion.base_id is None:
            found.add(deletion.path(fragment.id))
    return found


def _index_directories(store: ObjectStore, version: int) -> set[str]:
    try:
        manifest = read_manifest(store, version)
    except ObjectNotFoundError:
        return set()  # cleaned up since: everything that is left counts as new
    return {f"_indices/{entry.uuid}" for entry in decode_index_section(manifest.data, where=manifest.where)}
