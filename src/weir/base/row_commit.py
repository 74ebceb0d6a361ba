"""Replacing rows of the base table and recording merge progress, as one version made by many tasks.

The library's merge, ``merge_insert``, is one call on one machine. Here its parts are separate calls: new
fragments are written (:func:`write_fragment_files`), rows are marked as deleted in their fragments
(:func:`without_rows`), and everything becomes a version with the merge progress (:func:`commit_rows`). Until
then none of these files is visible, and the library's cleanup eventually removes them if the commit never
happens.

As in :mod:`weir.base.publish`, the version is built from a copy of its predecessor's manifest, and published
with one put-if-absent, which fails if another commit came first.

Whatever Weir knows of the library that is nowhere promised, for this, is in this module and in
:mod:`weir.format.merged_version`. :func:`rows_can_be_committed` tries it on a table of a few rows: where
the library has changed, merges are the library's own (:mod:`weir.merge.merge_insert`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any
from uuid import UUID, uuid4

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.dataset import LanceOperation
from lance.fragment import FragmentMetadata, write_fragments

from weir.base.durability import make_durable, make_files_durable, record_new_files
from weir.base.file_checksums import refuse_damaged_deletions
from weir.base.library_errors import is_panic
from weir.base.manifest import TableManifest, manifest_path, read_manifest
from weir.base.publish import TRANSACTIONS, built_in_scratch, publish_details, publish_manifest
from weir.base.scratch import scratch_directory
from weir.base.whole_files import refuse_torn_build
from weir.engine.logs import get_logger
from weir.errors import WeirError
from weir.format.index_details import IndexDetails, MergedGeneration
from weir.format.merged_version import transaction_with_marks, with_merge_marks
from weir.format.table_fields import decode_fields
from weir.format.table_manifest import decode_files
from weir.storage.interface import ObjectStore
from weir.storage.local import LocalStore

__all__ = [
    "FragmentLeft",
    "RowChange",
    "append_fragments",
    "commit_rows",
    "deletion_files",
    "fragment_files",
    "fragment_sizes",
    "fragments_of",
    "fragments_with_files",
    "row_operation",
    "rows_by_address",
    "rows_can_be_committed",
    "without_rows",
    "write_fragment_files",
]

_log = get_logger(__name__)
_DATA = "data"
_BRANCH_ELSEWHERE = "Can not find the root location of branch"
_KEYS_READ_AT_ONCE = 131_072
_NO_FIELD = -2
"""What the library writes in place of the id of a field that a data file has, and that is read no more."""


@dataclass(frozen=True, slots=True)
class FragmentLeft:
    """A fragment of some version after removing some of its rows. Can be pickled.

    Parameters
    ----------
    fragment_id : int
        The fragment.
    left : str or None
        The library's description of it, with a new deletion file; None if no row is left.
    deleted : int
        Rows that were there and are not left.
    file : str or None
        Path of that deletion file, relative to the table.
    """

    fragment_id: int
    left: str | None
    deleted: int
    file: str | None = None


@dataclass(frozen=True, slots=True)
class RowChange:
    """What a merge makes of the rows of a version.

    Parameters
    ----------
    left : sequence of FragmentLeft
        The fragments that lose rows.
    new : sequence of str
        The library's descriptions of fragments that were written for it.
    """

    left: Sequence[FragmentLeft]
    new: Sequence[str]


def fragments_of(dataset: lance.LanceDataset) -> dict[int, str]:
    """Return the library's description of every fragment of a version, by its id: equal if it is the same."""
    return {one.fragment_id: _text(one.metadata) for one in dataset.get_fragments()}


def fragment_sizes(dataset: lance.LanceDataset) -> dict[int, int]:
    """Return how many rows every fragment of a version has, those deleted among them, by its id."""
    return {one.fragment_id: one.physical_rows for one in dataset.get_fragments()}


def rows_by_address(
    dataset: lance.LanceDataset, fragment_ids: Iterable[int], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield columns of the rows of some fragments, with their addresses in the column ``_rowaddr``.

    Parameters
    ----------
    dataset : LanceDataset
        The base table at a version.
    fragment_ids : iterable of int
        Some of its fragments.
    columns : sequence of str
        The columns.
    """
    fragments = [dataset.get_fragment(number) for number in fragment_ids]
    scanner = dataset.scanner(
        columns=list(columns),
        with_row_address=True,
        fragments=[one for one in fragments if one is not None],
        batch_size=_KEYS_READ_AT_ONCE,
        scan_in_order=False,
    )
    yield from scanner.to_batches()


def _text(metadata: FragmentMetadata) -> str:
    return json.dumps(metadata.to_json(), sort_keys=True)


def _fragment(text: str) -> FragmentMetadata:
    return FragmentMetadata.from_json(text)


def write_fragment_files(
    dataset: lance.LanceDataset, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> tuple[str, ...]:
    """Write rows into fragments that belong to no version yet, and return the library's descriptions.

    Parameters
    ----------
    dataset : LanceDataset
        The base table: the fragments have the ids of its columns.
    schema : Schema
        Its columns.
    batches : iterable of RecordBatch
        The rows. They are written as they come.
    """
    left = iter(batches)
    written = append_fragments(lambda: pa.RecordBatchReader.from_batches(schema, left), dataset)
    return tuple(_text(one) for one in written if one.physical_rows)


def append_fragments(
    rows: Callable[[], pa.RecordBatchReader | pa.Table], dataset: lance.LanceDataset, **options: Any
) -> list[FragmentMetadata]:
    """Write rows into fragments that belong to no version yet.

    Parameters
    ----------
    rows : callable
        Returns the rows from the start at every call.
    dataset : LanceDataset
        The base table.
    **options
        For the library.
    """
    written: list[FragmentMetadata]
    try:
        written = write_fragments(rows(), dataset, mode="append", **options)
        return written
    except ValueError as error:
        if _BRANCH_ELSEWHERE not in str(error):
            raise
    # In a copied branch directory, the library searches for the branch and does not find it.
    options.setdefault("storage_options", dataset.latest_storage_options())
    written = write_fragments(rows(), dataset.uri, mode="append", **options)
    return written


def fragments_with_files(
    dataset: lance.LanceDataset, hidden: str, copy: Callable[[str], str]
) -> tuple[str, ...]:
    """Describe fragments that have the rows of another dataset, in copies of its files.

    Parameters
    ----------
    dataset : LanceDataset
        The other dataset. It has deleted no row, and its columns have the ids of those of the table.
    hidden : str
        A column of it that the table does not have: its values in the files no longer belong to a column.
    copy : callable
        Takes the name of a data file, copies it, and returns the name of the copy.
    """
    gone = {field.id() for field in dataset.lance_schema.fields() if field.name() == hidden}
    found = []
    for fragment in dataset.get_fragments():
        described = fragment.metadata.to_json()
        for file in described["files"]:
            file["path"] = copy(file["path"])
            file["fields"] = [_NO_FIELD if number in gone else number for number in file["fields"]]
        found.append(json.dumps({**described, "id": 0}, sort_keys=True))
    return tuple(found)


def without_rows(
    dataset: lance.LanceDataset, fragment_id: int, offsets: npt.NDArray[np.int64]
) -> FragmentLeft | None:
    """Delete rows of a fragment, in a deletion file that belongs to no version yet.

    Parameters
    ----------
    dataset : LanceDataset
        The base table at a version.
    fragment_id : int
        One of its fragments.
    offsets : ndarray of int64
        Which rows: their places in the fragment. Those that have been deleted before count for nothing.

    Returns
    -------
    FragmentLeft or None
        None if the fragment does not exist.
    """
    fragment = dataset.get_fragment(fragment_id)
    if fragment is None:
        return None
    before = fragment.num_deletions
    left: Any = fragment._fragment.delete_rows(offsets.tolist())
    if left is None:
        return FragmentLeft(fragment_id, None, fragment.physical_rows - before)
    metadata = left.metadata()
    file = left.deletion_file()
    deleted = (metadata.deletion_file.num_deleted_rows if metadata.deletion_file else 0) - before
    return FragmentLeft(fragment_id, _text(metadata), deleted, file)


def fragment_files(descriptions: Iterable[str]) -> Iterator[str]:
    """Yield the paths of the data files of fragments, relative to the table."""
    for text in descriptions:
        yield from (f"{_DATA}/{file['path']}" for file in json.loads(text)["files"])


def deletion_files(left: Iterable[FragmentLeft]) -> Iterator[str]:
    """Yield the paths of the deletion files of reduced fragments, relative to the table."""
    for one in left:
        if one.file is not None:
            yield one.file


def commit_rows(
    store: ObjectStore, manifest: TableManifest, change: RowChange, marks: Sequence[MergedGeneration]
) -> int | None:
    """Publish the version after ``manifest`` with other rows, and with merge progress.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    manifest : TableManifest
        The version that the change was made for, or a later one in which the fragments that lose rows are
        unchanged.
    change : RowChange
        What becomes of the rows.
    marks : sequence of MergedGeneration
        The merge progress to record, in addition to that of other shards.

    Returns
    -------
    int or None
        The version published, or None if another commit has taken it.

    Raises
    ------
    CorruptionError
        A deletion file to be replaced is damaged. Nothing was committed.
    StorageError
        The library refuses, or the disk.
    """
    make_durable(store, manifest.version)
    built, transactions = _build(store, manifest, change, marks)
    make_files_durable(store, built)
    if store.waits_for_disk:
        before, after = (
            [file.path for file in decode_files(one.data, where=one.where).needed]
            for one in (manifest, built)
        )
        refuse_damaged_deletions(store, before, frozenset(after))
    version = publish_manifest(store, built, transactions, after=manifest)
    if version is not None:
        record_new_files(store, manifest, built)
    return version


def row_operation(manifest: TableManifest, change: RowChange) -> LanceOperation.Update:
    """Return the library's operation that changes the rows of a version."""
    return LanceOperation.Update(
        removed_fragment_ids=[one.fragment_id for one in change.left if one.left is None],
        updated_fragments=[_fragment(one.left) for one in change.left if one.left is not None],
        new_fragments=[_fragment(text) for text in change.new],
        fields_modified=[],
        fields_for_preserving_frag_bitmap=_all_fields(manifest),
        update_mode="rewrite_rows",
    )


def _build(
    store: ObjectStore, manifest: TableManifest, change: RowChange, marks: Sequence[MergedGeneration]
) -> tuple[TableManifest, dict[str, bytes]]:
    """Return the manifest of the next version, and its transaction file by its path."""
    operation = row_operation(manifest, change)
    version = manifest.version + 1
    path = manifest_path(version, counts_down=manifest.counts_down)
    with built_in_scratch(store, manifest, [operation]) as scratch:
        built = scratch / path
        data = built.read_bytes()
        refuse_torn_build(str(scratch), data, where=str(built))
        files = (scratch / TRANSACTIONS).glob(f"{manifest.version}-*")
        transactions = {
            f"{TRANSACTIONS}/{file.name}": transaction_with_marks(
                file.read_bytes(), marks, where=f"{store.uri}/{TRANSACTIONS}/{file.name}"
            )
            for file in files
        }
    where = f"{store.uri}/{path}"
    library_made = TableManifest(version, path, data, where)
    entry = library_made.mem_wal_index()
    details = IndexDetails() if entry is None else library_made.decode_details(entry)
    data = with_merge_marks(data, _marked(details, marks), uuid4(), marks, where=where)
    return TableManifest(version, path, data, where), transactions


def _all_fields(manifest: TableManifest) -> list[int]:
    return sorted(field.id for field in decode_fields(manifest.data, where=manifest.where))


def _marked(details: IndexDetails, marks: Sequence[MergedGeneration]) -> IndexDetails:
    todo = {mark.shard_id: mark for mark in marks}
    merged = []
    for one in details.merged_generations:
        mark = todo.pop(one.shard_id, None)
        merged.append(one if mark is None else replace(one, generation=mark.generation))
    return replace(details, merged_generations=(*merged, *todo.values()))


@lru_cache(maxsize=1)
def rows_can_be_committed() -> bool:
    """Whether the library does for merges what this module asks of it: tried once in a process."""
    try:
        with scratch_directory() as directory:
            _try_out(str(directory / "table"))
    except (WeirError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError) as error:
        _log.warning("merge.by_library", reason=f"{type(error).__name__}: {error}")
        return False
    except BaseException as error:
        if not is_panic(error):
            raise
        _log.warning("merge.by_library", reason=str(error))
        return False
    return True


def _try_out(place: str) -> None:
    rows = pa.table({"key": [1, 2, 3, 4], "value": ["a", "b", "c", "d"]})
    dataset = lance.write_dataset(rows, place, max_rows_per_file=2)
    store = LocalStore(place, fsync=False)
    _check(publish_details(store, read_manifest(store, dataset.version), IndexDetails()), 2)
    dataset = lance.dataset(place)
    more = pa.table({"key": [1, 5], "value": ["e", "f"]})
    new = write_fragment_files(dataset, rows.schema, more.to_batches())
    flagged = pa.table({"key": [6], "value": ["g"], "flag": [False]})
    other = lance.write_dataset(flagged, f"{place}-other")

    def copy(name: str) -> str:
        shutil.copyfile(f"{place}-other/{_DATA}/{name}", f"{place}/{_DATA}/copied-{name}")
        return f"copied-{name}"

    new += fragments_with_files(other, "flag", copy)
    gone = [(0, [0]), (1, [0, 1])]
    found = [without_rows(dataset, number, np.array(offsets)) for number, offsets in gone]
    left = [one for one in found if one is not None]
    _check([one.deleted for one in left], [1, 2])
    mark = MergedGeneration(UUID(int=7), 3)
    manifest = read_manifest(store, 2)
    _check([commit_rows(store, manifest, RowChange(left, new), [mark]) for _ in range(2)], [3, None])
    after = lance.dataset(place)
    _check(after.version, 3)
    _check(after.to_table().sort_by("key").column("value").to_pylist(), ["e", "b", "f", "g"])
    made = read_manifest(store, 3)
    entry = made.mem_wal_index()
    _check(None if entry is None else made.decode_details(entry).merged_generations, (mark,))


def _check(found: object, expected: object) -> None:
    if found != expected:
        raise ValueError(f"the library arrived at {found!r} instead of {expected!r}")
