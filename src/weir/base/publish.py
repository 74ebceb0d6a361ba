"""Publishing a new version of the table that Weir has the library build: of its MemWAL index or its schema.

The library cannot do this safely. Its commit of a ``CreateIndex`` never conflicts with a ``merge_insert``
committed since the version it read: it replaces the index anyway, and the merge progress from the commit of
the merged rows is lost (with every setting of ``max_retries``). So the library builds the new manifest from a
copy of its predecessor, in a private scratch directory, and then it is published with one put-if-absent under
the name that any other commit on that version would need too. The loser finds the name taken and starts over
from what the winner wrote.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from uuid import UUID, uuid4

import lance
from lance.bitmap import Bitmap
from lance.dataset import Index, LanceOperation

from weir.base.durability import make_durable, record_new_files, refuse_torn_files, sync_objects
from weir.base.library_errors import LIBRARY_ERRORS, storage_failure
from weir.base.manifest import TableManifest, manifest_path, read_manifest
from weir.base.predecessor import may_follow
from weir.base.scratch import scratch_directory
from weir.base.spent_versions import is_spent
from weir.base.whole_files import refuse_torn_build
from weir.engine.concurrent_map import concurrent_map
from weir.errors import ObjectExistsError, ObjectNotFoundError
from weir.format import first_index_details, index_details
from weir.format.first_index_details import FirstIndexDetails
from weir.format.index_details import IndexDetails
from weir.format.table_manifest import (
    IndexEntry,
    as_first_version,
    read_head,
    with_index_details,
    with_version,
)
from weir.storage.interface import ObjectStore

__all__ = [
    "TRANSACTIONS",
    "SegmentChange",
    "as_of_today",
    "built_in_scratch",
    "built_version",
    "mem_wal_index_change",
    "publish_details",
    "publish_first_details",
    "publish_manifest",
    "publish_operation",
    "publish_schema",
    "publish_version",
]

TRANSACTIONS = "_transactions"
"""Directory of the table's transaction files, in which concurrent commits look for conflicts."""

_INDEXES = "_indices"


@dataclass(frozen=True, slots=True)
class SegmentChange:
    """Segments of indexes that a version gets and loses.

    Parameters
    ----------
    new : sequence of Index
        Segments that were built over fragments of the version before, and not been committed.
    removed : sequence of Index, default ()
        Segments that the version before has.
    dropped : collection of str, default ()
        Indexes of which the version has none left.
    """

    new: Sequence[Index]
    removed: Sequence[Index] = ()
    dropped: Collection[str] = ()

    @property
    def directories(self) -> list[str]:
        """Where the files of the new segments are."""
        return [f"{_INDEXES}/{one.uuid}" for one in self.new]

    @property
    def files(self) -> list[str]:
        """The files of the new segments."""
        return [f"{_INDEXES}/{one.uuid}/{file.path}" for one in self.new for file in one.files or ()]


def publish_details(
    store: ObjectStore,
    manifest: TableManifest,
    details: IndexDetails,
    index_id: UUID | None = None,
    *,
    segments: SegmentChange | None = None,
) -> int | None:
    """Publish the version after ``manifest`` with other details of the MemWAL index.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    manifest : TableManifest
        The newest version; with or without a MemWAL index.
    details : IndexDetails
        The details of its MemWAL index.
    index_id : UUID, optional
        The id for its MemWAL index, if a file under that id belongs to it. It must be unused; default: a
        random one.
    segments : SegmentChange, optional
        What else becomes of indexes, in the same version.

    Returns
    -------
    int or None
        The version published, or None if another commit has taken it.
    """
    change = mem_wal_index_change(
        manifest.version, details, replaced=manifest.mem_wal_index(), index_id=index_id
    )
    if segments is None:
        return publish_operation(store, manifest, change)
    sync_objects(store, segments.directories)
    change = LanceOperation.CreateIndex(
        [*segments.new, *change.new_indices], [*segments.removed, *change.removed_indices]
    )
    version = publish_operation(store, manifest, change)
    if version is not None and store.waits_for_disk:
        with contextlib.suppress(ObjectNotFoundError):  # cleaned up already
            record_new_files(store, manifest, read_manifest(store, version))
    return version


def publish_first_details(
    store: ObjectStore,
    manifest: TableManifest,
    details: FirstIndexDetails,
    operation: LanceOperation.BaseOperation | None = None,
) -> int | None:
    """Publish the version after ``manifest`` with details of the first form of the MemWAL index.

    The library cannot commit on top of such details, nor with them. So it builds the version with current
    details, which are replaced before it becomes visible; the transaction keeps the current ones.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    manifest : TableManifest
        The newest version, with a MemWAL index of either form.
    details : FirstIndexDetails
        The details of its MemWAL index.
    operation : LanceOperation.BaseOperation, optional
        A further change in the version, whose files must be in the table already. Default: none.

    Returns
    -------
    int or None
        The version published, or None if another commit has taken it.
    """
    stored = first_index_details.encode(details)

    def with_stored(data: bytes) -> bytes:
        return with_index_details(data, index_details.INDEX_NAME, stored, where=manifest.where)

    read = as_of_today(manifest, IndexDetails())
    if operation is None:
        operation = mem_wal_index_change(manifest.version, IndexDetails(), replaced=read.mem_wal_index())
    return publish_operation(store, read, operation, changed=with_stored)


def as_of_today(manifest: TableManifest, details: IndexDetails) -> TableManifest:
    """Return a version as if its MemWAL index had the current form, which the library reads and builds on."""
    data = with_index_details(
        manifest.data, index_details.INDEX_NAME, index_details.encode(details), where=manifest.where
    )
    return replace(manifest, data=data, stored=manifest.data if manifest.stored is None else manifest.stored)


@contextlib.contextmanager
def built_in_scratch(
    store: ObjectStore,
    manifest: TableManifest,
    operations: Sequence[LanceOperation.BaseOperation],
    *,
    begin: int | None = None,
) -> Iterator[Path]:
    """Have the library build versions on a copy of a manifest, in a directory for the length of a block.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    manifest : TableManifest
        The version that is copied.
    operations : sequence of LanceOperation.BaseOperation
        What makes a version each, in order.
    begin : int, optional
        The number that the copy gets. Default: its own.
    """
    begin = manifest.version if begin is None else begin
    with scratch_directory() as scratch:
        copied = scratch / manifest_path(begin, counts_down=manifest.counts_down)
        copied.parent.mkdir()
        copied.write_bytes(
            manifest.data
            if begin == manifest.version
            else with_version(manifest.data, begin, where=manifest.where)
        )
        try:
            for version, operation in enumerate(operations, begin):
                lance.LanceDataset.commit(str(scratch), operation, read_version=version)
        except LIBRARY_ERRORS as error:
            raise storage_failure(error, "building the table's next version", where=store.uri) from error
        yield scratch


def publish_operation(
    store: ObjectStore,
    manifest: TableManifest,
    operation: LanceOperation.BaseOperation,
    *,
    changed: Callable[[bytes], bytes] | None = None,
) -> int | None:
    """Publish the version that an operation of the library makes of ``manifest``.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    manifest : TableManifest
        The newest version.
    operation : LanceOperation.BaseOperation
        The operation.
    changed : callable, optional
        A transformation of the library's manifest before it is published.

    Returns
    -------
    int or None
        The version published, or None if another commit has taken it.
    """
    make_durable(store, manifest.version)
    with built_in_scratch(store, manifest, [operation]) as scratch:
        return publish_version(
            store,
            scratch,
            manifest.version + 1,
            counts_down=manifest.counts_down,
            changed=changed,
            after=manifest,
        )


def publish_schema(
    store: ObjectStore,
    manifest: TableManifest,
    details: IndexDetails,
    operations: Sequence[LanceOperation.BaseOperation],
) -> int | None:
    """Publish the version after ``manifest`` with other columns and other details of the MemWAL index.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    manifest : TableManifest
        The newest version, with a MemWAL index.
    details : IndexDetails
        The details of its MemWAL index.
    operations : sequence of LanceOperation.BaseOperation
        The library's operations that set the schema, in order. Data files must be in the table already. Other
        committers see the last one when they check for conflicts.

    Returns
    -------
    int or None
        The version published, or None if another commit has taken it.
    """
    make_durable(store, manifest.version)
    version = manifest.version
    made = manifest
    all_of_them = (
        mem_wal_index_change(version, details, replaced=manifest.mem_wal_index()),
        *operations,
    )
    for number, operation in enumerate(all_of_them, 1):
        # Each counts one up: all but the last start one below, so that it stays one version.
        last = number == len(all_of_them)
        begin = version if last else version - 1
        with built_in_scratch(store, made, [operation], begin=begin) as scratch:
            if last:
                published = publish_version(
                    store, scratch, version + 1, counts_down=manifest.counts_down, after=manifest
                )
                if published is not None:
                    with contextlib.suppress(ObjectNotFoundError):  # cleaned up already
                        record_new_files(store, manifest, read_manifest(store, published))
                return published
            built = scratch / manifest.path
            made = replace(manifest, data=built.read_bytes())
            refuse_torn_build(str(scratch), made.data, where=str(built))
    raise AssertionError("there is at least one operation")


def mem_wal_index_change(
    version: int, details: IndexDetails, *, replaced: IndexEntry | None, index_id: UUID | None = None
) -> LanceOperation.CreateIndex:
    """Return the library's operation that sets the MemWAL index of a version.

    Parameters
    ----------
    version : int
        The version it is based on.
    details : IndexDetails
        The details of the index.
    replaced : IndexEntry or None
        The MemWAL index of that version.
    index_id : UUID, optional
        The id of the new index. Default: a random one.
    """
    # A fresh uuid each time: readers of the library cache decoded details under it.
    new = _index(str(index_id or uuid4()), version, index_details.encode(details))
    removed = []
    if replaced is not None:
        removed.append(_index(str(replaced.uuid), replaced.dataset_version, replaced.details))
    return LanceOperation.CreateIndex([new], removed)


def _index(uuid: str, version: int, details: bytes) -> Index:
    return Index(
        uuid=uuid,
        name=index_details.INDEX_NAME,
        fields=[],
        dataset_version=version,
        fragment_ids=Bitmap(),
        index_version=0,
        created_at=datetime.now(UTC),
        index_details=(index_details.TYPE_URL, details),
    )


def publish_version(
    store: ObjectStore,
    scratch: Path,
    version: int,
    *,
    counts_down: bool,
    changed: Callable[[bytes], bytes] | None = None,
    after: TableManifest | None = None,
) -> int | None:
    """Publish a version that the library has built in a scratch directory.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    scratch : Path
        The directory. Data files must be in the table already.
    version : int
        The version.
    counts_down : bool
        How the table names its manifests.
    changed : callable, optional
        A transformation of the manifest before it is published.
    after : TableManifest, optional
        As for :func:`publish_manifest`.

    Returns
    -------
    int or None
        The version number, or None if another commit has taken it.
    """
    manifest, transactions = built_version(store, scratch, version, counts_down=counts_down)
    if changed is not None:
        manifest = replace(manifest, data=changed(bytes(manifest.data)))
    return publish_manifest(store, manifest, transactions, after=after)


def built_version(
    store: ObjectStore, scratch: Path, version: int, *, counts_down: bool, number: int | None = None
) -> tuple[TableManifest, dict[str, bytes]]:
    """Return a version that the library has built: its manifest, and its transaction file by its path.

    Parameters
    ----------
    store, scratch, version, counts_down
        As for :func:`publish_version`.
    number : int, optional
        The number it gets, of a table that has no other version. Default: its own.
    """
    path = manifest_path(version, counts_down=counts_down)
    own = (scratch / TRANSACTIONS).glob(f"{version - 1}-*")
    transactions = {f"{TRANSACTIONS}/{file.name}": file.read_bytes() for file in own}
    data = (scratch / path).read_bytes()
    refuse_torn_build(str(scratch), data, where=str(scratch / path))
    if number is not None:
        version, path = number, manifest_path(number, counts_down=counts_down)
        data = as_first_version(data, number, where=f"{store.uri}/{path}")
        if not read_head(data, where=f"{store.uri}/{path}").transaction_file:
            transactions = {}
    return TableManifest(version, path, data, f"{store.uri}/{path}"), transactions


def publish_manifest(
    store: ObjectStore,
    manifest: TableManifest,
    transactions: Mapping[str, bytes],
    *,
    after: TableManifest | None = None,
) -> int | None:
    """Publish a version whose other files are in the table already.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    manifest : TableManifest
        The version.
    transactions : mapping of str to bytes
        The transaction file that it names, by its path.
    after : TableManifest, optional
        The version that it was built on, which has to be there still: that is asked while the transaction
        file is stored, and so takes no time. Default: it comes after none that is in this store.

    Returns
    -------
    int or None
        The version, or None if another commit has taken it.

    Raises
    ------
    ConflictError
        The version that it was built on is gone, and nothing newer is there. Nothing was published.
    StorageError
        Some is missing of a file that the library has written. Nothing was published.
    """
    version, path = manifest.version, manifest.path
    looks: list[Callable[[], bool | None]] = [] if after is None else [partial(may_follow, store, after)]
    # On a disk this says more than checking the files, which may be missing too, and is fast.
    if store.is_local and not all(look() for look in looks):
        return None
    refuse_torn_files(store, manifest)
    # Random names: nothing refers to them until the manifest has its place.
    steps: list[Callable[[], bool | None]] = [
        partial(store.put, name, content) for name, content in transactions.items()
    ]
    if not store.is_local:
        steps += looks
    for goes_on in concurrent_map(_done, steps, is_local=store.is_local, engine=store.engine):
        if goes_on is False:
            store.delete(transactions)
            return None
    try:
        store.put_if_absent(path, manifest.data)
    except ObjectExistsError:
        # Ours anyway if the answer to an earlier attempt was lost (invariant I4): no two manifests are alike,
        # every one names its own transaction.
        if bytes(store.get(path)) != bytes(manifest.data):
            store.delete(transactions)
            return None
    if is_spent(store, version):
        # Planned before the newest version was republished above torn ones: this number is never read.
        store.delete([path, *transactions])
        return None
    return version


def _done(step: Callable[[], bool | None]) -> bool | None:
    return step()
