"""What stands in for the Lance library: data sets whose files are objects of the simulated store.

It has the steps that matter to Weir's protocols and nothing else. A data set is a run of versions; each
is one object, put if absent, that says which data files belong to it and which of their rows are
deleted. A commit writes data first. Of two commits that follow the same version one comes second; it
looks at what the first has changed, and is put on top of it unless both touch one row. Merge progress
is refused unless it is above what is recorded, and it is part of the version whose rows it describes.

Rows do not go through the store as bytes. An object holds a number, and the rows are kept here under
it, so that whoever reads a file that is not there finds nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from random import Random
from typing import Any, cast
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.commit import CommitConflictError
from tests.simulation.store import SimulatedStore

from weir.base.column_births import ColumnBirths
from weir.base.details_commit import update_details
from weir.base.row_commit import FragmentLeft, RowChange, _marked
from weir.base.spent_versions import is_spent, set_aside_path
from weir.base.table import BaseTable
from weir.base.torn_versions import TornVersion
from weir.errors import CorruptionError, ObjectExistsError, ObjectNotFoundError, StorageError
from weir.format.field_births import Births
from weir.format.field_ids import interned
from weir.format.index_details import IndexCatchup, IndexDetails, MergedGeneration
from weir.format.layout import MEM_WAL
from weir.write.flush.generation_writer import _Place, _Written

__all__ = [
    "Change",
    "Dataset",
    "DatasetVersion",
    "FileWriter",
    "Fragment",
    "Library",
    "Mark",
    "MergeInsert",
    "live_rows_of",
    "version_path",
]

KEY_INDEX = "id_idx"

_CONFLICT_RETRIES = 10
_KEY_LIST = re.compile(r"`id` IN \(([-0-9, ]+)\)")


@dataclass(frozen=True, slots=True)
class Mark:
    """Merge progress to record: what ``lance.CompactedSsTable`` is for Lance."""

    shard: str
    generation: int


@dataclass(frozen=True, slots=True)
class Fragment:
    """A data file and which of its rows are deleted.

    What deletes of Weir's own have left of one names the file that says so.
    """

    number: int
    path: str
    rows: int
    deleted: frozenset[int] = frozenset()
    deletions: str | None = None

    @property
    def text(self) -> str:
        """What the library says of it: equal exactly if it is the same."""
        described = {
            "files": [{"path": self.path.removeprefix("data/")}],
            "number": self.number,
            "rows": self.rows,
            "deleted": sorted(self.deleted),
            "deletions": self.deletions,
        }
        return json.dumps(described)

    @classmethod
    def of_text(cls, text: str) -> Fragment:
        """Return the fragment that a text describes."""
        found = json.loads(text)
        path = f"data/{found['files'][0]['path']}"
        deleted = frozenset(found["deleted"])
        return cls(found["number"], path, found["rows"], deleted, found["deletions"])


@dataclass(frozen=True, slots=True)
class Change:
    """What a version changed: what commits that come second look at."""

    deleted_rows: frozenset[int] = frozenset()
    rewritten: frozenset[int] = frozenset()
    """Fragments whose rows are in others now."""
    inserted_keys: frozenset[int] = frozenset()
    marks: tuple[Mark, ...] = ()

    @property
    def touched(self) -> frozenset[int]:
        """Fragments of which rows were deleted or moved."""
        return self.rewritten | {row >> 32 for row in self.deleted_rows}


@dataclass(frozen=True, slots=True)
class DatasetVersion:
    """What the manifest of a version says."""

    version: int
    fragments: tuple[Fragment, ...]
    next_fragment: int
    committed_at: float
    schema: pa.Schema
    details: IndexDetails = field(default_factory=IndexDetails)
    change: Change = field(default_factory=Change)

    @property
    def uuid(self) -> UUID:
        """The id of the MemWAL index, as its entry in the manifest has it."""
        return _index_id(self.version)

    @property
    def files(self) -> set[str]:
        """What it refers to."""
        return {path for one in self.fragments for path in (one.path, one.deletions) if path is not None}


@lru_cache(maxsize=1024)
def _index_id(version: int) -> UUID:
    return UUID(int=version)


@dataclass(frozen=True, slots=True)
class _LanceField:
    label: str
    number: int

    def name(self) -> str:
        return self.label

    def id(self) -> int:
        return self.number

    def children(self) -> list[_LanceField]:
        return []


class _LanceSchema:
    def __init__(self, names: tuple[str, ...], key: tuple[str, ...]) -> None:
        self._fields = [_LanceField(name, number) for number, name in enumerate(names)]
        self._key = [one for one in self._fields if one.label in key]

    def fields(self) -> list[_LanceField]:
        return self._fields

    def unenforced_primary_key(self) -> list[_LanceField]:
        return self._key


@dataclass(frozen=True, slots=True)
class _Index:
    """The key index, which is always there."""

    name: str = KEY_INDEX
    index_type: str = "BTree"
    field_names: tuple[str, ...] = ("id",)


class _Tags:
    @staticmethod
    def list() -> dict[str, dict[str, int]]:
        return {}


@dataclass(frozen=True, slots=True)
class _CleanupStats:
    bytes_removed: int


class Library:
    """Stands in for the module ``lance`` in one simulation."""

    CompactedSsTable = Mark

    def __init__(self, store: SimulatedStore, schema: pa.Schema, key: tuple[str, ...]) -> None:
        self.store = store
        self.schema = schema
        self.key = key
        self._kept: list[Any] = []
        self.live_rows: dict[Fragment, pa.Table] = {}
        """Of every data file that somebody has read with what is deleted of it."""
        self.no_rows = pa.schema([*schema, ("_rowid", pa.uint64())]).empty_table()
        self.lance_schemas: dict[tuple[str, ...], _LanceSchema] = {}
        self._rows_of_files: dict[str, list[dict[str, Any]]] = {}

    def get(self, path: str) -> Any:
        """Return what an object stands for."""
        try:
            data = self.store.get(path)
        except StorageError as error:
            raise _as_the_library_has_it(error) from error
        return self.kept(data)

    def put(self, path: str, value: Any) -> None:
        """Write an object that stands for a value."""
        try:
            self.store.put(path, self.keep(value), syncs=False)
        except StorageError as error:
            raise _as_the_library_has_it(error) from error

    def put_if_absent(self, path: str, value: Any, *, syncs: bool = False) -> None:
        """Write an object that stands for a value, if there is none."""
        try:
            self.store.put_if_absent(path, self.keep(value), syncs=syncs)
        except StorageError as error:
            raise _as_the_library_has_it(error) from error

    def files_of_versions(self, versions: Iterable[int]) -> set[str]:
        """Return what some versions of the base table refer to. It takes no time."""
        found: set[str] = set()
        for number in versions:
            data = self.store.peek(version_path("", number))
            if data is not None:
                found |= self.kept(data).files
        return found

    def make_durable(self) -> None:
        """Sync all versions of the base table there are, and their files."""
        of_base = [path for path in self.store.unsynced if not path.startswith(MEM_WAL)]
        self.store.sync_all(of_base)

    def keep(self, value: Any) -> bytes:
        """Keep a value and return the content of the object that stands for it."""
        self._kept.append(value)
        return b"%d" % (len(self._kept) - 1)

    def kept(self, data: Any) -> Any:
        """Return the value an object stands for."""
        if not data:
            raise OSError("LanceError(IO): Invalid range 0..0 for object of size 0 bytes")
        return self._kept[int(bytes(data))]

    def tear_in(self, data: bytes) -> str | None:
        """Return what of a version of the base table is empty or gone, if anything. It takes no time."""
        if not data:
            return "its manifest is empty"
        gone = sorted(path for path in self.kept(data).files if self.store.peek(path) is None)
        return f"{gone[0]} is gone" if gone else None

    def new_name(self) -> str:
        """Return a name nobody has."""
        return self.store.scheduler.random.randbytes(6).hex()

    def directory(self, uri: str) -> str:
        """Return a data set's directory in the store, with a slash at its end unless it is the root."""
        path = uri.removeprefix(self.store.uri).strip("/")
        return f"{path}/" if path else ""

    def write_dataset(
        self, data: pa.Table, uri: str, mode: str, storage_options: Mapping[str, str] | None = None
    ) -> Dataset:
        """Write rows as a new data set: the data file, then the first version."""
        assert mode == "create"
        directory = self.directory(uri)
        path = f"{directory}data/{self.new_name()}.lance"
        self.put(path, data)
        first = DatasetVersion(
            1, (Fragment(0, path, data.num_rows),), 1, self.store.scheduler.now, interned(data.schema)
        )
        with suppress(ObjectExistsError):  # nobody else has this name
            self.put_if_absent(version_path(directory, 1), first)
        return Dataset(self, uri, first)

    def create_base(self, details: IndexDetails) -> None:
        """Create the base table, empty."""
        first = DatasetVersion(1, (), 0, self.store.scheduler.now, self.schema, details)
        self.put_if_absent(version_path("", 1), first, syncs=True)

    def dataset(
        self, uri: str, version: int | None = None, storage_options: Mapping[str, str] | None = None
    ) -> Dataset:
        """Open a data set at its newest version or another."""
        number = version or self.newest(uri)
        return Dataset(self, uri, self.read_version(uri, number))

    def LanceDataset(  # noqa: N802
        self,
        uri: str,
        version: int | None = None,
        storage_options: Mapping[str, str] | None = None,
        serialized_manifest: bytes | None = None,
    ) -> Dataset:
        """Open a data set, also one whose manifest is known: it is read all the same."""
        return self.dataset(uri, version)

    def newest(self, uri: str) -> int:
        """Return the newest version of a data set."""
        directory = self.directory(uri)
        try:
            newest = self.store.first_of(f"{directory}_versions")
        except StorageError as error:
            raise _as_the_library_has_it(error) from error
        if newest is None:
            raise OSError(f"Dataset at path {uri} was not found")
        return number_of(newest)

    def read_version(self, uri: str, version: int) -> DatasetVersion:
        """Read the manifest of a version."""
        try:
            found: DatasetVersion = self.get(version_path(self.directory(uri), version))
        except ObjectNotFoundError:
            raise OSError(f"Dataset at path {uri}, version {version} was not found") from None
        return found

    def update(self, random: Random) -> bool:
        """Write some rows of the base table anew, as they are; return whether others let it.

        So an update of the library's that sets nothing new: the rows are deleted in the fragments that they
        were in, and are in a new one. Unlike the library's it is not tried again if another comes first.
        """
        at = self.read_version("", self.newest(""))
        moved = [live_rows_of(one, self.read_rows(one.path)) for one in at.fragments]
        drawn = [[random.random() < 0.5 for _ in range(rows.num_rows)] for rows in moved]
        moved = [rows.filter(pa.array(flags, pa.bool_())) for rows, flags in zip(moved, drawn, strict=True)]
        rows = pa.concat_tables(moved) if moved else None
        if rows is None or not rows.num_rows:
            return False
        path = f"data/{self.new_name()}.lance"
        self.store.put(path, self.keep(rows.drop_columns(["_rowid"])), syncs=False)
        change = Change(frozenset(rows.column("_rowid").to_pylist()))
        following = _following(at, change, [Fragment(-1, path, rows.num_rows)], self.store.scheduler.now)
        try:
            self.store.put_if_absent(version_path("", following.version), self.keep(following), syncs=False)
        except ObjectExistsError:
            return False
        return True

    def read_rows(self, path: str) -> pa.Table:
        """Read a data file."""
        try:
            table: pa.Table = self.get(path)
        except ObjectNotFoundError:
            raise OSError(f"Not found: {path}") from None
        return table

    def rows_of(self, version: DatasetVersion) -> dict[int, tuple[int, dict[str, Any]]]:
        """Return key and row of every row of a version by its id. For the checker: it takes no time."""
        found = {}
        for fragment in version.fragments:
            data = self.store.peek(fragment.path)
            if data is None:
                raise AssertionError(f"version {version.version} refers to {fragment.path}, which is gone")
            if fragment.deletions is not None and self.store.peek(fragment.deletions) is None:
                raise AssertionError(f"version {version.version} refers to {fragment.deletions}")
            rows = self._rows_of_files.get(fragment.path)
            if rows is None:
                rows = self._rows_of_files[fragment.path] = self.kept(data).to_pylist()
            for offset, row in enumerate(rows):
                if offset not in fragment.deleted:
                    found[fragment.number << 32 | offset] = (row["id"], row)
        return found


def _as_the_library_has_it(error: StorageError) -> Exception:
    """Return a failure of the store in the form it has when Lance reports it."""
    if isinstance(error, (ObjectExistsError, ObjectNotFoundError)):
        return error
    return OSError(f"LanceError(IO): {error}")


@lru_cache(maxsize=4096)
def version_path(directory: str, version: int) -> str:
    """Return the path of the manifest of a version, as Lance's second naming scheme has it."""
    return f"{directory}_versions/{2**64 - 1 - version:020}.manifest"


@lru_cache(maxsize=4096)
def number_of(path: str) -> int:
    """Return the version whose manifest has a path."""
    return 2**64 - 1 - int(path.rsplit("/", 1)[-1].removesuffix(".manifest"))


class Dataset:
    """Stands in for ``lance.LanceDataset``."""

    # Looking keys up in index pages is for real files: the filter is the path to simulate.
    has_stable_row_ids = True

    def __init__(self, library: Library, uri: str, at: DatasetVersion) -> None:
        self.library = library
        self._at = at
        self._table: pa.Table | None = None
        self.uri = uri
        self.syncs = False
        """Whether what it commits is durable when others can find it."""

    def __copy__(self) -> Dataset:
        copied = Dataset(self.library, self.uri, self._at)
        copied._table = self._table
        return copied

    def __getstate__(self) -> tuple[str, int, None, DatasetVersion]:
        """Return what tells which version it is, where the library's has the manifest."""
        return self.uri, self.version, None, self._at

    def get_fragments(self) -> list[Any]:
        """Name no fragment, so that rows are taken by row id."""
        return []

    def base_paths(self) -> dict[int, object]:
        """Name no other table in which files of this one lie."""
        return {}

    @property
    def at(self) -> DatasetVersion:
        return self._at

    @property
    def version(self) -> int:
        return self._at.version

    def get_version(self) -> dict[str, object]:
        """Return what tells the version from any other of its number."""
        at = self._at
        return {"version": at.version, "timestamp": at.committed_at, "metadata": at.files}

    @property
    def schema(self) -> pa.Schema:
        return self._at.schema

    @property
    def lance_schema(self) -> _LanceSchema:
        names, known = tuple(self._at.schema.names), self.library.lance_schemas
        if names not in known:
            known[names] = _LanceSchema(names, self.library.key)
        return known[names]

    def checkout_latest(self) -> None:
        newest = self.library.newest(self.uri)
        if newest != self.version:
            self._move(self.library.read_version(self.uri, newest))

    def checkout_version(self, version: int) -> Dataset:
        return Dataset(self.library, self.uri, self.library.read_version(self.uri, version))

    def describe_indices(self) -> list[_Index]:
        return [_Index()]

    @property
    def tags(self) -> _Tags:
        return _Tags()

    def cleanup_old_versions(
        self, *, versions: Sequence[int], error_if_tagged_old_versions: bool
    ) -> _CleanupStats:
        """Remove versions, and data files that no other version refers to."""
        library = self.library
        directory = library.directory(self.uri)
        removed = {number for number in versions if number != library.newest(self.uri)}
        try:
            listed = {number_of(entry.path) for entry in library.store.list(f"{directory}_versions")}
        except StorageError as error:
            raise _as_the_library_has_it(error) from error
        # Those that come in meanwhile refer to new files and to those of the newest version.
        needed: set[str] = set()
        unneeded: set[str] = set()
        for number in sorted(listed):
            try:
                at: DatasetVersion = library.get(version_path(directory, number))
            except ObjectNotFoundError:
                continue  # somebody else has removed it meanwhile
            (unneeded if number in removed else needed).update(one.path for one in at.fragments)
        try:
            library.store.delete([version_path(directory, number) for number in sorted(removed & listed)])
            library.store.delete(sorted(unneeded - needed))
        except StorageError as error:
            raise _as_the_library_has_it(error) from error
        return _CleanupStats(len(unneeded - needed))

    def count_rows(self) -> int:
        return sum(one.rows - len(one.deleted) for one in self._at.fragments)

    def scanner(
        self,
        columns: list[str] | None = None,
        filter: str | None = None,
        limit: int | None = None,
        row_addr_blocklist: bytes | None = None,
        with_row_id: bool = False,
        scan_in_order: bool = False,
        batch_size: int | None = None,
        fragments: list[object] | None = None,
    ) -> _Scanner:
        assert fragments is None, "the simulated library divides no scan"
        rows = self._rows()
        if filter is not None:
            listed = _KEY_LIST.fullmatch(filter)
            assert listed is not None, f"the simulated library knows no filter such as {filter!r}"
            wanted = {int(text) for text in listed[1].split(",")}
            keep = [key in wanted for key in rows.column("id").to_pylist()]
            if not all(keep):
                rows = rows.filter(pa.array(keep, pa.bool_()))
        if row_addr_blocklist is not None:
            blocked = set(np.frombuffer(row_addr_blocklist, dtype=np.uint64).tolist())
            keep = [row not in blocked for row in rows.column("_rowid").to_pylist()]
            if not all(keep):
                rows = rows.filter(pa.array(keep, pa.bool_()))
        names = [name for name in rows.schema.names if name != "_rowid"] if columns is None else columns
        shown = rows.select([*names, *(["_rowid"] if with_row_id else [])])
        return _Scanner(shown if limit is None else shown.slice(0, limit))

    def take(self, indices: list[int], columns: list[str] | None = None) -> pa.Table:
        rows = self._rows().drop_columns(["_rowid"])
        return rows.select(columns or rows.schema.names).take(pa.array(indices, pa.int64()))

    def _take_rows(self, row_ids: list[int], columns: list[str]) -> pa.Table:
        at = {row_id: offset for offset, row_id in enumerate(self._rows().column("_rowid").to_pylist())}
        return self.take([at[row_id] for row_id in row_ids], columns)

    def merge_insert(self, on: list[str]) -> MergeInsert:
        return MergeInsert(self, on)

    def _rows(self) -> pa.Table:
        """Return the rows that are not deleted, with their ids."""
        if self._table is None:
            library = self.library
            tables = []
            for fragment in self._at.fragments:
                rows = library.read_rows(fragment.path)
                if fragment.deletions is not None:
                    library.read_rows(fragment.deletions)
                live = library.live_rows.get(fragment)
                if live is None:
                    live = library.live_rows[fragment] = live_rows_of(fragment, rows)
                tables.append(live)
            if not tables:
                self._table = library.no_rows
            else:
                self._table = tables[0] if len(tables) == 1 else pa.concat_tables(tables)
        return self._table

    def commit(self, change: Change, new: Sequence[Fragment], *, read: int | None = None) -> None:
        """Commit a change, on top of what others have committed meanwhile unless both touch one row.

        Meanwhile is since the version that was read for it: by default the dataset's.
        """
        library = self.library
        newest = self._at
        for version in range((read or newest.version) + 1, library.newest(self.uri) + 1):
            try:
                newest = library.read_version(self.uri, version)
            except OSError as error:
                if library.store.fsync and "was not found" in str(error):
                    continue  # set aside, and there is a newer one
                raise
            _refuse_conflict(change, newest.change)
        while True:
            _refuse_stale_marks(newest.details, change.marks)
            following = _following(newest, change, new, library.store.scheduler.now)
            if self.syncs:
                library.make_durable()
            path = version_path(library.directory(self.uri), following.version)
            try:
                library.put_if_absent(path, following, syncs=self.syncs)
            except ObjectExistsError:
                newest = library.read_version(self.uri, following.version)
                _refuse_conflict(change, newest.change)
                continue
            if self.syncs and _is_given_up(library.store, following.version):
                raise CommitConflictError("Commit conflict: a version of this number was set aside")
            self._move(following)
            return

    def _move(self, at: DatasetVersion) -> None:
        self._at, self._table = at, None


def live_rows_of(fragment: Fragment, rows: pa.Table) -> pa.Table:
    """Return the rows of a data file that are not deleted, with their ids."""
    ids = np.arange(rows.num_rows, dtype=np.uint64) + np.uint64(fragment.number << 32)
    rows = rows.append_column("_rowid", pa.array(ids))
    if not fragment.deleted:
        return rows
    return rows.filter(pa.array([offset not in fragment.deleted for offset in range(rows.num_rows)]))


class _Scanner:
    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    @property
    def projected_schema(self) -> pa.Schema:
        return self._rows.schema

    def to_table(self) -> pa.Table:
        return self._rows

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        return iter(self._rows.combine_chunks().to_batches())

    def count_rows(self) -> int:
        return int(self._rows.num_rows)


class MergeInsert:
    """Stands in for ``lance.dataset.MergeInsertBuilder``."""

    def __init__(self, dataset: Dataset, on: Sequence[str]) -> None:
        assert list(on) == ["id"]
        self._dataset = dataset
        self._retries = _CONFLICT_RETRIES
        self._delete = self._update = self._insert = False
        self._marks: tuple[Mark, ...] = ()

    def use_index(self, use: bool) -> MergeInsert:
        return self

    def conflict_retries(self, retries: int) -> MergeInsert:
        self._retries = retries
        return self

    def when_matched_delete(self) -> MergeInsert:
        self._delete = True
        return self

    def when_matched_update_all(self) -> MergeInsert:
        self._update = True
        return self

    def when_not_matched_insert_all(self) -> MergeInsert:
        self._insert = True
        return self

    def mark_sstables_as_compacted(self, marks: Sequence[Mark]) -> MergeInsert:
        self._marks = tuple(marks)
        return self

    def execute(self, source: pa.Table | pa.RecordBatchReader) -> dict[str, int]:
        rows = source if isinstance(source, pa.Table) else source.read_all()
        for attempt in range(self._retries + 1):
            if attempt:
                self._dataset.checkout_latest()
            try:
                return self._attempt(rows)
            except CommitConflictError:
                if attempt == self._retries:
                    raise
        raise AssertionError("unreachable")

    def _attempt(self, rows: pa.Table) -> dict[str, int]:
        library, dataset = self._dataset.library, self._dataset
        there = dataset._rows()
        row_of_key: dict[int, list[int]] = {}
        for key, row in zip(there.column("id").to_pylist(), there.column("_rowid").to_pylist(), strict=True):
            row_of_key.setdefault(key, []).append(row)
        keys = rows.column("id").to_pylist()
        matched = [key for key in keys if key in row_of_key]
        gone = frozenset(row for key in matched for row in row_of_key[key])
        new = []
        if self._update or self._insert:
            path = f"{library.directory(dataset.uri)}data/{library.new_name()}.lance"
            library.put(path, rows.select(library.schema.names))
            new = [Fragment(-1, path, rows.num_rows)]
        inserted = frozenset(keys) - frozenset(matched) if self._insert else frozenset()
        dataset.commit(Change(gone, inserted_keys=inserted, marks=self._marks), new)
        return {
            "num_inserted_rows": len(inserted),
            "num_updated_rows": len(matched) if self._update else 0,
            "num_deleted_rows": len(gone) if self._delete else 0,
        }


def _refuse_conflict(ours: Change, theirs: Change) -> None:
    if ours.deleted_rows & theirs.deleted_rows or ours.inserted_keys & theirs.inserted_keys:
        raise CommitConflictError("Commit conflict: a row was changed by both")
    if ours.rewritten & theirs.touched or theirs.rewritten & ours.touched:
        raise CommitConflictError("Commit conflict: a fragment was rewritten by one and changed by the other")


def _refuse_stale_marks(details: IndexDetails, marks: Sequence[Mark]) -> None:
    for mark in marks:
        if details.merged_generation(UUID(mark.shard)) >= mark.generation:
            raise OSError(f"Stale SSTable compaction: {mark.shard} is not below {mark.generation}")


def _following(newest: DatasetVersion, change: Change, new: Sequence[Fragment], now: float) -> DatasetVersion:
    gone: dict[int, set[int]] = {}
    for row in change.deleted_rows:
        gone.setdefault(row >> 32, set()).add(row & 0xFFFFFFFF)
    fragments = [
        replace(one, deleted=one.deleted | gone[one.number]) if one.number in gone else one
        for one in newest.fragments
        if one.number not in change.rewritten
    ]
    fragments += [replace(one, number=newest.next_fragment + count) for count, one in enumerate(new)]
    merged = {one.shard_id: one.generation for one in newest.details.merged_generations}
    merged |= {UUID(mark.shard): mark.generation for mark in change.marks}
    details = replace(
        newest.details,
        merged_generations=tuple(MergedGeneration(shard, number) for shard, number in merged.items()),
    )
    return DatasetVersion(
        newest.version + 1,
        tuple(fragments),
        newest.next_fragment + len(new),
        now,
        newest.schema,
        details,
        change,
    )


class FileWriter:
    """Stands in for ``lance.file.LanceFileWriter``."""

    library: Library

    def __init__(self, path: str, schema: pa.Schema, **options: Any) -> None:
        self._path = self.library.directory(path).removesuffix("/")
        self._batches: list[pa.RecordBatch] = []
        self._schema = schema

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)

    def __enter__(self) -> FileWriter:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            rows = pa.Table.from_batches(self._batches, self._schema)
            self.library.put(self._path, rows)


class FileReader:
    """Stands in for ``lance.file.LanceFileReader``."""

    def __init__(self, path: str, **options: Any) -> None:
        self._path = path

    def read_all(self) -> _Scanner:
        library = FileWriter.library
        return _Scanner(library.read_rows(library.directory(self._path).removesuffix("/")))


def fragments_of(dataset: Dataset) -> dict[int, str]:
    """Stand in for :func:`weir.base.row_commit.fragments_of`."""
    return {one.number: one.text for one in dataset.at.fragments}


def fragment_sizes(dataset: Dataset) -> dict[int, int]:
    """Stand in for :func:`weir.base.row_commit.fragment_sizes`."""
    return {one.number: one.rows for one in dataset.at.fragments}


def rows_by_address(
    dataset: Dataset, fragment_ids: Iterable[int], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Stand in for :func:`weir.base.row_commit.rows_by_address`."""
    wanted = set(fragment_ids)
    for fragment in dataset.at.fragments:
        if fragment.number in wanted:
            rows = live_rows_of(fragment, FileWriter.library.read_rows(fragment.path))
            yield from rows.select([*columns, "_rowid"]).rename_columns([*columns, "_rowaddr"]).to_batches()


def write_fragment_files(
    dataset: Dataset, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> tuple[str, ...]:
    """Stand in for :func:`weir.base.row_commit.write_fragment_files`."""
    library = FileWriter.library
    rows = pa.Table.from_batches(list(batches))
    path = f"data/{library.new_name()}.lance"
    library.put(path, rows.select(library.schema.names))
    return (Fragment(-1, path, rows.num_rows).text,)


def committed_beside(place: _Place, data: pa.Table, schema: pa.Schema) -> _Written:
    """Stand in for :func:`weir.write.flush.generation_writer._committed_beside`."""
    dataset: Any = FileWriter.library.write_dataset(data, place.uri, "create")
    return _Written(dataset)


def without_rows(dataset: Dataset, fragment_id: int, offsets: npt.NDArray[np.int64]) -> FragmentLeft | None:
    """Stand in for :func:`weir.base.row_commit.without_rows`."""
    library = FileWriter.library
    fragment = next((one for one in dataset.at.fragments if one.number == fragment_id), None)
    if fragment is None:
        return None
    deleted = fragment.deleted | set(offsets.tolist())
    new = len(deleted) - len(fragment.deleted)
    if len(deleted) == fragment.rows:
        return FragmentLeft(fragment_id, None, new)
    path = f"_deletions/{library.new_name()}.arrow"
    library.put(path, pa.table({"deleted": sorted(deleted)}))
    left = replace(fragment, deleted=deleted, deletions=path)
    return FragmentLeft(fragment_id, left.text, new, path)


def refuse_torn(root: str, manifest: object, **_: object) -> None:
    """Stand in for what :mod:`weir.base.whole_files` has: what this library writes is all there."""


@contextmanager
def committing(store: SimulatedStore, dataset: Dataset) -> Iterator[Dataset]:
    """Stand in for :func:`weir.base.durability.committing`."""
    own = copy(dataset)
    if store.fsync:
        make_durable(store, dataset.version)
        own.syncs = True
    yield own


def make_durable(store: SimulatedStore, version: int) -> None:
    """Stand in for :func:`weir.base.durability.make_durable`."""
    FileWriter.library.make_durable()


def commit_rows(
    store: SimulatedStore,
    manifest: TableManifest,
    change: RowChange,
    marks: Sequence[MergedGeneration],
    *,
    knows_its_own: bool = True,
) -> int | None:
    """Stand in for :func:`weir.base.row_commit.commit_rows`."""
    library, at = FileWriter.library, manifest.at
    left = {one.fragment_id: one.left for one in change.left}
    fragments: list[Fragment] = []
    gone: set[int] = set()
    for before in at.fragments:
        text = left.get(before.number, before.text)
        after = None if text is None else Fragment.of_text(text)
        deleted = frozenset(range(before.rows)) if after is None else after.deleted
        gone.update(before.number << 32 | offset for offset in deleted - before.deleted)
        fragments += [] if after is None else [after]
    new = [
        replace(Fragment.of_text(text), number=at.next_fragment + count)
        for count, text in enumerate(change.new)
    ]
    following = DatasetVersion(
        manifest.version + 1,
        (*fragments, *new),
        at.next_fragment + len(new),
        store.scheduler.now,
        at.schema,
        _marked(at.details, marks),
        Change(frozenset(gone), marks=tuple(Mark(str(one.shard_id), one.generation) for one in marks)),
    )
    library.make_durable()
    path, data = version_path("", following.version), library.keep(following)
    try:
        store.put_if_absent(path, data)
    except ObjectExistsError:
        if not knows_its_own or bytes(store.get(path)) != data:
            return None
    return None if _is_given_up(store, following.version) else following.version


def _is_given_up(store: SimulatedStore, version: int) -> bool:
    """Whether a version was published under a number that was set aside; it is deleted then."""
    if not is_spent(store, version):
        return False
    store.delete([version_path("", version)])
    return True


@dataclass(frozen=True, slots=True)
class TableManifest:
    """Stands in for :class:`weir.base.manifest.TableManifest`."""

    version: int
    at: DatasetVersion
    identity: bytes
    data: bytes = b""
    nbytes: int = 1024
    counts_down: bool = True
    where: str = "_versions"

    @property
    def path(self) -> str:
        return version_path("", self.version)

    def mem_wal_index(self) -> DatasetVersion:
        return self.at

    def index_segments(self) -> frozenset[UUID]:
        return frozenset()

    def decode_details(self, entry: DatasetVersion) -> IndexDetails:
        return entry.details


def read_manifest(store: SimulatedStore, version: int) -> TableManifest:
    """Stand in for :func:`weir.base.manifest.read_manifest`."""
    data = store.get(version_path("", version))
    if not data:
        raise CorruptionError("the manifest is empty", where=f"{store.uri}/{version_path('', version)}")
    # No two objects of the library have the same content.
    return TableManifest(version, FileWriter.library.kept(data), bytes(data).rjust(8), bytes(data))


def manifest_that_was_read(version: int, path: str, data: bytes, where: str) -> TableManifest:
    """Stand in for what makes a :class:`weir.base.manifest.TableManifest`, of one that may be torn."""
    at = FileWriter.library.kept(data) if data else None
    return TableManifest(version, cast(DatasetVersion, at), bytes(data).rjust(8), bytes(data))


def with_version(data: bytes, version: int, *, where: str) -> bytes:
    """Stand in for :func:`weir.format.table_manifest.with_version`."""
    library = FileWriter.library
    return library.keep(replace(library.kept(data), version=version, change=Change()))


def head_message(data: bytes, *, where: str) -> bytes:
    """Stand in for :func:`weir.format.table_manifest.head_message`."""
    return data


def made_by_one_transaction(data: bytes, found: DatasetVersion, *, where: str) -> bool:
    """Stand in for :func:`weir.format.table_manifest.made_by_one_transaction`."""
    return FileWriter.library.kept(data) is found


def decode_files(data: bytes, *, where: str) -> None:
    """Stand in for :func:`weir.format.table_manifest.decode_files`: its error alone is used."""
    if not data:
        raise CorruptionError("the manifest is empty", where=where)


def is_first_form(details: IndexDetails) -> bool:
    """Stand in for :func:`weir.format.first_index_details.is_first_form`: no table here is that old."""
    return False


def move_aside(store: SimulatedStore, chosen: Sequence[TornVersion]) -> None:
    """Stand in for what moves the manifests of torn versions."""
    for one in chosen:
        store.move(one.path, set_aside_path(one.version))


def refuse_damaged_version(store: SimulatedStore, version: int, *, doing: str) -> None:
    """Stand in for :func:`weir.base.file_checksums.refuse_damaged_version`: none is damaged here."""


def refuse_damaged_deletion_files(store: SimulatedStore, version: int) -> None:
    """Stand in for :func:`weir.base.deleted_rows.refuse_damaged_deletion_files`: none is damaged here."""


def refuse_damaged_key_index(base: BaseTable, names: Collection[str] = (), *, and_up_to: int = 0) -> None:
    """Stand in for :func:`weir.base.key_index_files.refuse_damaged_key_index`: there are no such files."""


def refuse_damaged_indexes(base: BaseTable, names: Collection[str] | None = None, *, doing: str) -> None:
    """Stand in for :func:`weir.base.index_files.refuse_damaged_indexes`: there are no such files."""


def births_of_columns(
    store: SimulatedStore, namespace: str, manifest: TableManifest, marks: Births
) -> ColumnBirths:
    """Stand in for :func:`weir.base.column_births.births_of_columns`: columns stay as they are here."""
    return ColumnBirths(marks)


def mark_columns(base: BaseTable) -> BaseTable:
    """Stand in for :func:`weir.base.column_marks.mark_columns`: columns stay as they are here."""
    return base


def what_is_torn(store: SimulatedStore, manifest: TableManifest, *, indexes: bool = True) -> str | None:
    """Stand in for :func:`weir.base.torn_versions.what_is_torn`."""
    return FileWriter.library.tear_in(manifest.data) if store.fsync else None


def publish_details(
    store: SimulatedStore,
    manifest: TableManifest,
    details: IndexDetails,
    index_id: object = None,
    *,
    segments: MissingSegments | None = None,
) -> int | None:
    """Stand in for :func:`weir.base.publish.publish_details`."""
    library = FileWriter.library
    library.make_durable()
    if segments is not None:
        details = _caught_up(details)
    following = replace(
        manifest.at,
        version=manifest.version + 1,
        committed_at=store.scheduler.now,
        details=details,
        change=Change(),
    )
    path, data = version_path("", following.version), library.keep(following)
    try:
        store.put_if_absent(path, data)
    except ObjectExistsError:
        if bytes(store.get(path)) != data:
            return None
    return None if _is_given_up(store, following.version) else following.version


def to_lance_bytes(table: pa.Table) -> bytes:
    """Stand in for what writes published shard snapshots as a Lance file."""
    return FileWriter.library.keep(table)


def from_lance_bytes(data: bytes, where: str) -> pa.Table:
    """Stand in for what reads them."""
    return FileWriter.library.kept(data)


def extend_key_index(base: BaseTable) -> BaseTable:
    """Stand in for :func:`weir.base.key_index.extend_key_index`: record that the index has caught up."""
    return update_details(base, _caught_up)


def _caught_up(details: IndexDetails) -> IndexDetails:
    return replace(details, index_catchup=(IndexCatchup(KEY_INDEX, details.merged_generations),))


@dataclass(frozen=True, slots=True)
class MissingSegments:
    """Stands in for :class:`weir.base.publish.SegmentChange`: one without files."""

    files: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


def build_missing_segments(base: BaseTable, early: Sequence[object] = ()) -> MissingSegments | None:
    """Stand in for :func:`weir.base.key_index.build_missing_segments`."""
    return None if _caught_up(base.details) == base.details else MissingSegments()


def record_catchup(base: BaseTable, names: Collection[str]) -> BaseTable:
    """Stand in for :func:`weir.base.index_upkeep.record_catchup`."""
    return extend_key_index(base)


def serialize_row_addrs(row_ids: list[int]) -> bytes:
    """Stand in for ``lance.dataset.serialize_row_addrs``."""
    return np.array(row_ids, dtype=np.uint64).tobytes()
