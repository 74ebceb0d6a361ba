"""Making versions of the base table durable before they become visible.

On local disk the library syncs nothing, and unsynced data is missing or empty after a power loss: a manifest
without its bytes, or an intact one that refers to empty files. So Weir never lets the library publish there
directly. The library supports an external manager of a table's versions (a *namespace*): it writes all files
of the next version and a manifest under a temporary name, and passes that on. :class:`DurableVersions`
receives it, syncs every file that the new version refers to, and publishes the manifest with one
put-if-absent, under the name that any other commit of that version would need too. If the name is taken, the
library checks for conflicts with the other commit and tries the next, as usual.

What the version before refers to has to be on the disk as well: others may have committed it, and they
sync nothing. Files have random names and never change, so each is synced once by a process.

On an object store a completed write is durable: there the library publishes by itself.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import lance
from cachetools import LRUCache

from weir.base.file_checksums import record_checksums, refuse_damaged_deletions
from weir.base.library_errors import LIBRARY_ERRORS, storage_failure
from weir.base.manifest import VERSIONS, TableManifest, manifest_path, manifest_version, read_manifest
from weir.base.predecessor import may_follow
from weir.base.spent_versions import is_spent
from weir.base.whole_files import refuse_torn
from weir.errors import CorruptionError, ObjectExistsError, ObjectNotFoundError, StorageError, WeirError
from weir.format.table_manifest import decode_files
from weir.storage.interface import ObjectStore
from weir.storage.local_files import sync_directory, sync_file

__all__ = [
    "DurableVersions",
    "committing",
    "make_durable",
    "make_files_durable",
    "record_new_files",
    "refuse_torn_files",
    "sync_objects",
]

_TABLES = 256
_ONE_BY_ONE = 64
"""Up to this many files each is synced separately; above, syncing the whole file system costs less."""

_HISTORY = 16
"""Earlier versions whose manifests a process also syncs at first sight of a table, for time travel."""


@dataclass(frozen=True, slots=True)
class _Synced:
    """A durable version, with the identity of its files."""

    version: int
    files: frozenset[str]


_synced: LRUCache[str, _Synced] = LRUCache(_TABLES)
_lock = threading.Lock()


@contextlib.contextmanager
def committing(store: ObjectStore, dataset: lance.LanceDataset) -> Iterator[lance.LanceDataset]:
    """Open the table at its version to commit with the library, for the length of a block.

    Commits with the dataset are durable before they become visible. A Weir error that prevents this is raised
    at the end of the block, instead of the library's error for it.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    dataset : LanceDataset
        The table at the version to begin with. It stays as it is.

    Yields
    ------
    LanceDataset
        A dataset at that version, which advances with its commits.

    Raises
    ------
    StorageError
        The disk refuses to store the commit. Nothing was committed.
    """
    if not store.waits_for_disk:
        yield copy.copy(dataset)
        return
    version = dataset.version
    make_durable(store, version)
    versions = DurableVersions(store)
    try:
        yield versions.opened(version, dataset.session())
    except BaseException as error:
        if versions.failure is not None:
            raise versions.failure from error
        raise


class DurableVersions:
    """Publishes versions of a table for the library: not before they are on the disk.

    It implements the interface of ``LanceNamespace`` without inheriting from it: importing that takes longer
    than everything needed to write and read a table, so it is imported only for errors, which are rare.

    Parameters
    ----------
    store : ObjectStore
        The table's store.

    Attributes
    ----------
    failure : WeirError or None
        Why a version was not published, other than another version.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._begun: TableManifest | None = None
        self.failure: WeirError | None = None

    def opened(self, version: int, session: Any) -> lance.LanceDataset:
        """Open the table at a version, to commit through this namespace.

        Raises
        ------
        StorageError
            The version cannot be read.
        """
        self._begun = read_manifest(self._store, version)
        try:
            return lance.LanceDataset(
                self._store.uri,
                version,
                session=session,
                namespace_client=self,
                table_id=[self._store.uri],
                namespace_client_managed_versioning=True,
            )
        except LIBRARY_ERRORS as error:
            raise storage_failure(error, "opening the table to commit", where=self._store.uri) from error

    def namespace_id(self) -> str:
        """Return the identity of this namespace."""
        return f"weir {self._store.uri}"

    def describe_table_version(self, request: Any) -> Any:
        """Return where the manifest of a version is."""
        version = int(request["version"])
        try:
            return {"version": self._described(version)}
        except WeirError as error:
            self.failure = error
            raise

    def list_table_versions(self, request: Any) -> Any:
        """Return where the manifests are, in the order asked for."""
        listed = (manifest_version(entry.path) for entry in self._store.list(VERSIONS))
        versions = sorted(
            (version for version in listed if version is not None), reverse=bool(request.get("descending"))
        )
        limit = request.get("limit")
        chosen = versions if limit is None else versions[: int(limit)]
        return {"versions": [self._described(version) for version in chosen]}

    def create_table_version(self, request: Any) -> Any:
        """Publish a version that the library has written, when all of it is on the disk."""
        version = int(request["version"])
        staged = f"{VERSIONS}/{os.path.basename(request['manifest_path'])}"
        path = manifest_path(version, counts_down=request.get("naming_scheme") != "V1")
        try:
            manifest = TableManifest(version, path, self._store.get(staged), f"{self._store.uri}/{staged}")
            if self._begun is not None:
                # Where others have published a newer version, its number is taken.
                may_follow(self._store, self._begun)
            refuse_torn_files(self._store, manifest)
            _publish(self._store, manifest)
        except ObjectExistsError as error:
            from lance_namespace.errors import ConcurrentModificationError

            raise ConcurrentModificationError(f"version {version} has been committed") from error
        except WeirError as error:
            self.failure = error
            raise
        finally:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self._store.uri, staged))
        return {"version": self._described(version)}

    def _described(self, version: int) -> dict[str, Any]:
        for counts_down in (True, False):
            path = manifest_path(version, counts_down=counts_down)
            found = self._store.head(path)
            if found is not None:
                # Lance's own paths begin below the root of the file system.
                location = os.path.join(self._store.uri, path).lstrip("/")
                return {"version": version, "manifest_path": location, "manifest_size": found.size}
        from lance_namespace.errors import TableVersionNotFoundError

        raise TableVersionNotFoundError(f"there is no version {version}")


def make_durable(store: ObjectStore, version: int) -> None:
    """Make a version durable, even one of another process, unless this process has already done so.

    Parameters
    ----------
    store : ObjectStore
        The table's store. Nothing happens unless it is local and waits for the disk.
    version : int
        The version. One that has been cleaned up is skipped.

    Raises
    ------
    StorageError
        The disk refuses.
    CorruptionError
        The manifest of the version cannot be decoded.
    """
    if not store.waits_for_disk:
        return
    with contextlib.suppress(ObjectNotFoundError):
        newest = _files_of(read_manifest(store, version))
        _sync(store, version, newest)
        _remember(store, version, newest)


def make_files_durable(store: ObjectStore, manifest: TableManifest) -> None:
    """Make what a version refers to durable that is about to be published, as :func:`make_durable` does."""
    if store.waits_for_disk:
        _sync_files(store, manifest)


def refuse_torn_files(store: ObjectStore, manifest: TableManifest) -> None:
    """Make sure that all is there of the files that a version has which is about to be published.

    Files of the previous version, which :func:`make_durable` has handled, are not checked.

    Parameters
    ----------
    store : ObjectStore
        The table's store. Does nothing unless it is local and syncs to disk.
    manifest : TableManifest
        The version.

    Raises
    ------
    StorageError
        Some of a file is missing.
    """
    if not store.waits_for_disk:
        return
    with _lock:
        before = _synced.get(store.uri)
    known = frozenset() if before is None else before.files
    refuse_torn(store.uri, manifest.data, where=manifest.where, known=known)


def record_new_files(store: ObjectStore, before: TableManifest, after: TableManifest) -> None:
    """Record the checksums of the files that a published version has and the one before it had not.

    For files in both versions, their committer has recorded checksums or not.
    """
    if store.waits_for_disk:
        old, new = (decode_files(one.data, where=one.where).needed for one in (before, after))
        paths = {file.path for file in new} - {file.path for file in old}
        record_checksums(store, after.version, paths)


def _sync_files(store: ObjectStore, manifest: TableManifest) -> dict[str, str]:
    newest = _files_of(manifest)
    _sync(store, manifest.version, {mark: path for mark, path in newest.items() if path != manifest.path})
    return newest


def _publish(store: ObjectStore, manifest: TableManifest) -> None:
    """Publish a version when it and those it comes after are on the disk."""
    newest = _sync_files(store, manifest)
    with _lock:
        before = _synced.get(store.uri)
    if before is not None:
        refuse_damaged_deletions(store, before.files, newest.keys())
    store.put_if_absent(manifest.path, manifest.data)
    if is_spent(store, manifest.version):
        # Planned before the newest version was republished above torn ones: this number is never read.
        store.delete([manifest.path])
        raise ObjectExistsError("a version of this number was set aside", where=manifest.where)
    _remember(store, manifest.version, newest)
    if before is not None:
        record_checksums(store, manifest.version, set(newest.values()).difference(before.files))


def _files_of(manifest: TableManifest) -> dict[str, str]:
    """Return the paths of the files of a version, each by its identity."""
    files = decode_files(manifest.data, where=manifest.where)
    paths = [file.path for file in files.needed]
    if files.transaction is not None:
        paths.append(files.transaction.path)
    # All names are random except this one, which a lost version may have used before.
    return {**{path: path for path in paths}, f"{manifest.path} {manifest.identity.hex()}": manifest.path}


def _sync(store: ObjectStore, version: int, files: dict[str, str]) -> None:
    """Sync the files of a version, and of those between it and the last durable one."""
    with _lock:
        known = _synced.get(store.uri)
    if known is not None and version == known.version and files.keys() <= known.files:
        return
    first = version - _HISTORY if known is None else known.version + 1
    for between in range(max(first, 1), version):
        with contextlib.suppress(ObjectNotFoundError, CorruptionError):
            manifest = read_manifest(store, between)
            older = _files_of(manifest)
            files = {**older, **files} if known is not None else {manifest.path: manifest.path, **files}
    synced = frozenset() if known is None else known.files
    sync_objects(store, [path for mark, path in files.items() if mark not in synced])


def _remember(store: ObjectStore, version: int, files: Mapping[str, str]) -> None:
    with _lock:
        # Those of older versions are not asked for again.
        _synced[store.uri] = _Synced(version, frozenset(files))


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
    if not store.waits_for_disk:
        return
    paths = list(paths)
    directories: dict[str, None] = {}
    try:
        if len(paths) > _ONE_BY_ONE and _sync_file_system(store.uri):
            return
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
        parents = {os.path.dirname(directory): None for directory in directories}
        for directory in (*directories, *(parent for parent in parents if parent.startswith(store.uri))):
            with contextlib.suppress(FileNotFoundError):
                sync_directory(directory)
        if directories:
            sync_directory(store.uri)
    except StorageError:
        raise
    except OSError as error:
        raise storage_failure(error, "making the new version durable", where=store.uri) from error


def _sync_file_system(path: str) -> bool:
    """Sync the whole file system that a directory is on; False where the system cannot."""
    try:
        syncfs = ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):
        return False
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if syncfs(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(descriptor)
    return True
