"""Copying a version of the base table to another location, where it becomes visible once complete."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from lance.dataset import LanceOperation

from weir.base.column_marks import births_to_mark, marks_of_columns
from weir.base.manifest import TableManifest, read_manifest
from weir.base.publish import built_in_scratch, mem_wal_index_change, publish_version
from weir.base.table import BaseTable
from weir.errors import ConflictError, TableError
from weir.format.index_details import IndexDetails
from weir.format.table_manifest import decode_files
from weir.storage.interface import ObjectStore

__all__ = ["copy_files", "publish_copy"]

_AT_ONCE = 4


def copy_files(base: BaseTable, target: ObjectStore) -> int:
    """Copy every file of a version of a table; files that already exist completely are skipped.

    A file is held in memory while it is copied, up to four of them at once.

    Parameters
    ----------
    base : BaseTable
        The version.
    target : ObjectStore
        Where to.

    Returns
    -------
    int
        How many files the version has.

    Raises
    ------
    TableError
        Some of them are below another table, as in a shallow clone.
    """
    manifest = read_manifest(base.store, base.version)
    _refuse_files_elsewhere(base)
    paths = list(_paths(base.store, manifest))

    def copy(path: str) -> None:
        there, here = target.head(path), base.store.head(path)
        # The names are random, so a file of the name has the content, unless it was cut short.
        if there is None or here is None or there.size != here.size:
            target.put(path, base.store.get(path))

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="weir-copy") as pool:
        list(pool.map(copy, paths))
    return len(paths)


def _paths(store: ObjectStore, manifest: TableManifest) -> Iterator[str]:
    files = decode_files(manifest.data, where=manifest.where)
    for file in files.needed:
        if file.size is None and file.path.startswith("_indices/"):
            below = [one.path for one in store.list(file.path)]
            if below:
                yield from below
                continue
            # A whole index without files: those of Weir's and Lance's own details have none.
            if store.head(file.path) is None:
                continue
        yield file.path


def _refuse_files_elsewhere(base: BaseTable) -> None:
    elsewhere = any(
        file.base_id is not None
        for fragment in base.dataset.get_fragments()
        for file in fragment.metadata.files
    )
    if elsewhere:
        raise TableError(
            "some data files are below another table, which the table was cloned or branched from",
            where=base.uri,
            hint="Make it whole first: LanceDataset.deep_clone",
        )


def publish_copy(base: BaseTable, target: ObjectStore, details: IndexDetails) -> BaseTable:
    """Make a copied version the table at its new place, with other details of the MemWAL index.

    Its first version there is the one after the copied one.

    Parameters
    ----------
    base : BaseTable
        The version that was copied.
    target : ObjectStore
        Where its files are.
    details : IndexDetails
        The details of its MemWAL index.

    Raises
    ------
    ConflictError
        A table was created there meanwhile.
    """
    manifest = read_manifest(base.store, base.version)
    changes: list[LanceOperation.BaseOperation] = [
        mem_wal_index_change(manifest.version, details, replaced=manifest.mem_wal_index())
    ]
    if not births_to_mark(base.births).items() <= base.marks.items():
        # The birth of an unmarked column follows from the history, which is not copied.
        changes.insert(0, marks_of_columns(base, manifest))
    # Both are one version, so the first of two begins one below.
    begin = manifest.version + 1 - len(changes)
    with built_in_scratch(target, manifest, changes, begin=begin) as scratch:
        version = publish_version(target, scratch, manifest.version + 1, counts_down=manifest.counts_down)
    if version is None:
        raise ConflictError("another process has created a table at the same location", where=target.uri)
    return BaseTable.open(target)
