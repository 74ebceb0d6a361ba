"""A flushed generation as readers see it: a Lance dataset, its bloom filter and its key index."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property, partial
from uuid import UUID

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from weir.base.damaged_file import damaged_file
from weir.base.dataset import library_options
from weir.base.dataset_fields import generation_columns
from weir.base.library_errors import LIBRARY_ERRORS, is_panic
from weir.engine.logs import get_logger
from weir.errors import CorruptionError, ObjectNotFoundError
from weir.format import generation_catalog, layout
from weir.format.bloom_filter import BloomFilter
from weir.format.field_ids import fingerprint, without_field_ids
from weir.format.generation_catalog import GenerationCatalog
from weir.format.resolution import Resolution
from weir.format.shard_manifest import FlushedGeneration
from weir.format.wal_entry import TOMBSTONE
from weir.indexing.library_message import library_message
from weir.lsm.damage import reading
from weir.lsm.keys import KeyIndex, KeySet
from weir.lsm.stored_columns import stored_columns
from weir.lsm.whole_rows import whole_rows
from weir.storage.interface import Bytes, ObjectStore

__all__ = ["Generation"]

_log = get_logger(__name__)

_NOMINAL_BYTES = 64 * 1024


class _Content:
    """The parts of a generation that are loaded to determine its live rows."""

    def __init__(
        self, keys: KeySet | None, tombstones: npt.NDArray[np.bool_], row_ids: npt.NDArray[np.uint64]
    ) -> None:
        self.keys = keys
        self.tombstones = tombstones
        self.row_ids = row_ids

    @property
    def nbytes(self) -> int:
        return (0 if self.keys is None else self.keys.nbytes) + self.tombstones.nbytes + self.row_ids.nbytes


class Generation:
    """One flushed generation of a shard. Immutable, so reads of it are cached per process.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    namespace : str
        Identity of the table.
    shard_id : UUID
        The shard.
    flushed : FlushedGeneration
        What the shard manifest lists.
    key_columns : tuple of str
        Primary-key columns.
    row_schema : Schema
        Columns that the rows are given: the table's, with their field ids, and ``_tombstone``.
    """

    def __init__(
        self,
        store: ObjectStore,
        namespace: str,
        shard_id: UUID,
        flushed: FlushedGeneration,
        key_columns: tuple[str, ...],
        row_schema: pa.Schema,
    ) -> None:
        self.store = store
        self._namespace = namespace
        self._key_columns = key_columns
        self._row_schema = row_schema
        self.shard_id = shard_id
        self.flushed = flushed
        self.path = layout.generation_path(shard_id, flushed.path)
        self.identity: Hashable = ("generation", self.path, fingerprint(row_schema))
        """Identifies this generation among all sources of the table, for caches."""

    @classmethod
    def cached(
        cls,
        store: ObjectStore,
        namespace: str,
        shard_id: UUID,
        flushed: FlushedGeneration,
        key_columns: tuple[str, ...],
        row_schema: pa.Schema,
    ) -> Generation:
        """Return the generation with what this process has opened of it."""
        # A published snapshot says less about a generation than a manifest, so the two are cached separately.
        return store.engine.cache.get_or_load(
            ("generation", namespace, shard_id, flushed, fingerprint(row_schema)),
            lambda: cls(store, namespace, shard_id, flushed, key_columns, row_schema),
            lambda _: _NOMINAL_BYTES,
        )

    @property
    def label(self) -> str:
        """Name for people."""
        return f"generation {self.flushed.generation}"

    @property
    def uri(self) -> str:
        """Where its Lance dataset is."""
        return f"{self.store.uri}/{self.path}"

    @cached_property
    def dataset(self) -> lance.LanceDataset:
        """Its Lance dataset."""
        return self._open()

    @cached_property
    def columns(self) -> Resolution:
        """How the table's columns map to its own; the resulting rows have no field ids."""
        schema = without_field_ids(self._row_schema)
        found = generation_columns(
            self.dataset,
            self._row_schema,
            lambda: self.catalog,
            partial(stored_columns, self.store, self.shard_id, self.flushed),
        )
        return Resolution(schema, found.columns)

    @cached_property
    def _only_fragment(self) -> lance.LanceFragment | None:
        """Its fragment, if it has only one, as all but the largest generations."""
        fragments = self.dataset.get_fragments()
        return fragments[0] if len(fragments) == 1 else None

    def _open(self) -> lance.LanceDataset:
        try:
            return lance.dataset(self.uri, storage_options=library_options(self.store))
        except BaseException as error:
            if not isinstance(error, LIBRARY_ERRORS) and not is_panic(error):
                raise
            raise CorruptionError(
                f"generation {self.flushed.generation} of shard {self.shard_id} is listed in the shard "
                f"manifest but cannot be opened: {library_message(error)}",
                where=damaged_file(self.uri),
                hint="If its files were deleted by hand, restore them; its rows are nowhere else",
            ) from error

    @property
    def bloom_filter(self) -> BloomFilter | None:
        """Its bloom filter; None where its writer left none, or it is not what was written.

        A damaged filter denies existing keys. It has no information beyond the rows: without it a lookup only
        costs more. So a damaged one is logged and ignored.
        """
        path = f"{self.path}/{layout.BLOOM_FILTER}"
        key = ("bloom", self._namespace, self.path, self.flushed)

        def load() -> tuple[BloomFilter | None, int]:
            try:
                data = self.store.get(path)
            except ObjectNotFoundError:
                return None, 0
            where, written = f"{self.store.uri}/{path}", self._written_filter()
            try:
                return self._whole_filter(data, written, where), len(data)
            except CorruptionError as error:
                _log.warning(
                    "generation.bloom_filter_damaged",
                    shard=str(self.shard_id),
                    generation=self.flushed.generation,
                    where=where,
                    error=error.message,
                )
                return None, 0

        return self.store.engine.cache.get_or_load(key, load, lambda loaded: loaded[1])[0]

    def _written_filter(self) -> int | None:
        """Return the recorded checksum of the Bloom filter, if there is one."""
        if self.flushed.bloom_filter_checksum is not None or self.catalog is None:
            return self.flushed.bloom_filter_checksum
        # Published snapshots do not have it, nor do manifests that the library has written since.
        return self.catalog.checksums.get(layout.BLOOM_FILTER)

    def _whole_filter(self, data: Bytes, written: int | None, where: str) -> BloomFilter | None:
        loaded = BloomFilter.from_bytes(data, where=where)
        if written is None:
            # The size is all that can be checked.
            return loaded if loaded.fits(self.flushed.physical_rows) else None
        found = xxhash.xxh64_intdigest(memoryview(data))
        if found != written:
            raise CorruptionError(
                f"the bloom filter has the checksum {found:016x}, but {written:016x} was written", where=where
            )
        return loaded

    @property
    def catalog(self) -> GenerationCatalog | None:
        """What it holds in each column; None where its writer has left no catalog."""
        path = f"{self.path}/{layout.CATALOG}"
        key = ("catalog", self._namespace, self.path)

        def load() -> tuple[GenerationCatalog | None, int]:
            try:
                data = self.store.get(path)
            except ObjectNotFoundError:
                return None, 0
            where = f"{self.store.uri}/{path}"
            catalog = generation_catalog.decode(data, where=where)
            if not catalog.is_of(self.path):
                raise CorruptionError(
                    f"the generation is that of {catalog.directory!r}",
                    where=where,
                    hint="Directories have been moved; weir verify names them",
                )
            return catalog, len(data)

        return self.store.engine.cache.get_or_load(key, load, lambda loaded: loaded[1])[0]

    @property
    def _content_key(self) -> Hashable:
        # The keys are the same whatever the other columns are.
        return ("content", self._namespace, self.path)

    @property
    def _content(self) -> _Content:
        return self.store.engine.cache.get_or_load(
            self._content_key, self._load_content, lambda content: content.nbytes
        )

    @property
    def has_read_keys(self) -> bool:
        """Whether its keys are in memory, from which the index is made."""
        return self.store.engine.cache.get(self._content_key) is not None

    def read_with_keys(self, columns: Sequence[str]) -> pa.Table | None:
        """Read the keys, and columns of every row along with them, which takes less than to read them later.

        Parameters
        ----------
        columns : sequence of str
            Columns of the table that are in the generation as they are.

        Returns
        -------
        Table or None
            The columns, of all rows in their order. None where the keys have been read before.
        """
        if self.has_read_keys:
            return None
        content, rows = self._read_content(columns)
        self.store.engine.cache.put(self._content_key, content, content.nbytes)
        return rows.select(list(columns))

    def _load_content(self) -> _Content:
        return self._read_content(())[0]

    def _read_content(self, along: Sequence[str]) -> tuple[_Content, pa.Table]:
        columns = self.columns
        missing = [name for name in self._key_columns if columns.source_name(name) is None]
        if missing:
            raise CorruptionError(
                f"generation {self.flushed.generation} of shard {self.shard_id} has no column {missing[0]!r}",
                where=self.uri,
                hint="Its files are damaged; restore them from a backup",
            )
        columns = columns.select(self._key_columns)
        present = list(columns.source_names)
        if TOMBSTONE in self.dataset.schema.names:
            present.append(TOMBSTONE)
        with reading(f"generation {self.flushed.generation} of shard {self.shard_id}", self.uri):
            read = list(dict.fromkeys([*present, *along]))
            table, row_ids = whole_rows(self.dataset, read, is_local=self.store.is_local)
        # Without a key nothing is looked up: no row replaces another.
        keys = KeySet(columns.table(table, where=self.uri).columns) if self._key_columns else None
        if TOMBSTONE in present:
            tombstones = table.column(TOMBSTONE).combine_chunks().to_numpy(zero_copy_only=False)
        else:
            tombstones = np.zeros(table.num_rows, dtype=bool)
        return _Content(keys, tombstones, row_ids), table

    @property
    def keys(self) -> KeySet:
        """The key of every row."""
        keys = self._content.keys
        assert keys is not None
        return keys

    @property
    def index(self) -> KeyIndex:
        """From keys to rows. Scans do without it."""
        return self.store.engine.cache.get_or_load(
            ("key index", self._namespace, self.path),
            lambda: KeyIndex.build(self.keys),
            lambda index: index.rows.nbytes + index.hashes.nbytes,
        )

    @property
    def tombstones(self) -> npt.NDArray[np.bool_]:
        """Which rows are deletes."""
        return self._content.tombstones

    @property
    def row_ids(self) -> npt.NDArray[np.uint64]:
        """Lance row id of every row."""
        return self._content.row_ids

    def column(self, name: str) -> pa.Array:
        """Return one column of every row, in their order."""
        columns = self.columns.select([name])
        if not columns.source_names:
            return pa.nulls(len(self.row_ids), columns.schema.field(0).type)
        with reading(f"generation {self.flushed.generation} of shard {self.shard_id}", self.uri):
            scanner = self.dataset.scanner(columns=columns.source_names, scan_in_order=True)
            return columns.table(scanner.to_table(), where=self.uri).column(0).combine_chunks()

    def take(self, rows: npt.NDArray[np.int64], columns: list[str]) -> pa.Table:
        """Return some rows, by their offset among the rows the dataset has not deleted itself."""
        wanted = self.columns.select(columns)
        if not wanted.source_names:
            empty = [pa.nulls(len(rows), field.type) for field in wanted.schema]
            return pa.Table.from_arrays(empty, schema=wanted.schema)
        with reading(f"generation {self.flushed.generation} of shard {self.shard_id}", self.uri):
            # A fragment finds one row in half the time that a dataset takes; of several it wants the order.
            source = (self._only_fragment if len(rows) == 1 else None) or self.dataset
            found = source.take(rows.tolist(), columns=wanted.source_names)
            return found if wanted.is_same(columns) else wanted.table(found, where=self.uri)
