"""Writing a flushed generation: a Lance dataset with its indexes, key index, bloom filter and catalog.

Lance MemWAL spec, "Flushed MemTable Storage Layout". The directory has a random name, so an attempt
that fails leaves an orphan and the retry starts clean; nothing refers to the directory until the
shard manifest does.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar, cast
from uuid import UUID

import lance
import pyarrow as pa
import xxhash
from lance.file import LanceFileWriter
from lance.fragment import write_fragments

from weir.base.dataset import library_options
from weir.base.dataset_fields import renumbering
from weir.base.publish import TRANSACTIONS
from weir.base.scratch import scratch_directory
from weir.base.whole_files import refuse_torn, refuse_torn_build
from weir.engine import failpoint
from weir.engine.concurrent_map import concurrent_map
from weir.errors import StorageError
from weir.format import generation_catalog, layout, numbered_manifest, pk_index
from weir.format.bloom_filter import BloomFilter
from weir.format.field_ids import has_field_ids, without_field_ids
from weir.format.key_hash import hash_keys
from weir.format.keys import encode_keys
from weir.format.shard_manifest import FlushedGeneration
from weir.format.unsliced import unsliced
from weir.indexing.build_plan import BuildPlan, GenerationIndex
from weir.indexing.library_message import library_message
from weir.lsm.generation_files import checksum_files
from weir.storage.interface import ObjectStore
from weir.storage.local_errors import hint_for
from weir.write.flush.generation_rows import GenerationRows
from weir.write.flush.generation_summary import summarize

__all__ = ["write_generation"]

One = TypeVar("One")
Other = TypeVar("Other")

_KEY_INDEX_FILE_VERSION = "2.0"
_DATA = "data"
_FIRST_MANIFEST = f"_versions/{2**64 - 2}.manifest"
_SMALL_BYTES = 4 * 1024 * 1024
"""Rows up to which the whole dataset is built here, and stored at once."""


@dataclass(frozen=True, slots=True)
class _Place:
    store: ObjectStore
    path: str

    @property
    def uri(self) -> str:
        return f"{self.store.uri}/{self.path}"

    @property
    def storage_options(self) -> dict[str, str] | None:
        return library_options(self.store)


def write_generation(
    store: ObjectStore,
    shard_id: UUID,
    generation: int,
    rows: GenerationRows,
    key_columns: tuple[str, ...],
    *,
    in_memory_bytes: int,
    indexes: Sequence[GenerationIndex] = (),
    urgency: Callable[[], float] = lambda: 1.0,
    name: str | None = None,
) -> FlushedGeneration:
    """Write ``rows`` as a generation and make them durable. Publishes nothing.

    Parameters
    ----------
    rows : GenerationRows
        The newest row of every key, in write order, with ``_tombstone``. If the fields of their schema carry
        the table's field ids, those of the dataset get them.
    key_columns : tuple of str
        Primary-key columns.
    in_memory_bytes : int
        Memory of the MemTable, recorded for operators.
    indexes : sequence of GenerationIndex, optional
        The indexes that generations are to have, of which a build plan chooses those worth building.
    urgency : callable
        How urgent it is (:class:`weir.engine.throttle.Throttle`). Default: so that it does not rest.
    name : str, optional
        Name of the directory. Default: a random one with the number of the generation.

    Returns
    -------
    FlushedGeneration
        What the shard manifest will list.
    """
    name = name or layout.generation_name(secrets.token_hex(4), generation)
    place = _Place(store, layout.generation_path(shard_id, name))
    keys = rows.columns(key_columns)
    if rows.is_large:
        # The library uses one processor for most of it, and releases the GIL.
        written, of_keys = _both(
            store, partial(_write_rows, place, rows, urgency), lambda: _key_files(place, rows, keys).stored()
        )
    else:
        written, of_keys = _write_rows(place, rows, urgency), _key_files(place, rows, keys)
    failpoint.reach("flush.after_data")
    plan = BuildPlan.of(indexes, rows.written.schema, rows.num_rows)
    built = plan.build(written.dataset(place)) if plan.indexes else ()
    failpoint.reach("flush.after_indexes")
    unstored = [partial(store.put, path, data) for path, data in written.unstored.items()]
    checksum = of_keys.bloom_filter_checksum
    own = {} if checksum is None else {layout.BLOOM_FILTER: checksum}

    def put_catalog() -> None:
        catalog = replace(
            summarize(rows, built),
            checksums={**own, **_library_files(place)},
            directory=place.path,
            has_field_ids=has_field_ids(rows.written.schema),
        )
        store.put(f"{place.path}/{layout.CATALOG}", generation_catalog.encode(catalog))

    # The catalog of a local disk holds checksums of all the others: they come one after the other there.
    _write_all(store, [*unstored, *of_keys.unstored, put_catalog])
    failpoint.reach("flush.after_key_index")
    store.sync(place.path)
    return FlushedGeneration(
        generation=generation,
        path=name,
        in_memory_bytes=in_memory_bytes,
        physical_rows=rows.num_rows,
        primary_key_bytes=sum(key.nbytes for key in keys),
        bloom_filter_checksum=checksum,
    )


def _library_files(place: _Place) -> dict[str, int]:
    """Return the checksums of what the library has written, where it costs little to read it again.

    It must be complete. A local disk still has it in memory, and has no other check for flipped bits. Object
    stores have their own checksums, would transfer everything again, and store objects completely or not at
    all.
    """
    if not place.store.is_local:
        return {}
    return checksum_files(place.store, place.path, leave_out=(layout.BLOOM_FILTER,))


@dataclass(frozen=True, slots=True)
class _Written:
    """A dataset whose rows are stored.

    Parameters
    ----------
    opened : LanceDataset or None
        The dataset, where all of it is stored.
    unstored : mapping of str to bytes, default {}
        By path, the files that make it one, and that are still to be stored.
    """

    opened: lance.LanceDataset | None
    unstored: dict[str, bytes] = field(default_factory=dict)

    def dataset(self, place: _Place) -> lance.LanceDataset:
        """Return the dataset, once all of it is stored."""
        if self.opened is not None:
            return self.opened
        _write_all(place.store, [partial(place.store.put, *one) for one in self.unstored.items()])
        self.unstored.clear()
        return lance.dataset(place.uri, storage_options=place.storage_options)


@dataclass(frozen=True, slots=True)
class _KeyFiles:
    """The files used for key lookups.

    Parameters
    ----------
    bloom_filter_checksum : int or None
        None where the rows have no key.
    unstored : tuple of callable
        Functions that store the files not stored yet.
    """

    bloom_filter_checksum: int | None
    unstored: tuple[Callable[[], object], ...]

    def stored(self) -> _KeyFiles:
        """Return the same, once all of them are stored."""
        for store in self.unstored:
            store()
        return replace(self, unstored=())


def _key_files(place: _Place, rows: GenerationRows, keys: list[pa.Array]) -> _KeyFiles:
    """Make the bloom filter and the key index."""
    checksum = None
    files: list[Callable[[], object]] = []
    if rows.is_settled:
        # Without it the LSM readers of the library stop, which know of no merge engine, and of no table
        # without a key.
        files += _key_index_files(place, keys)
    if keys:
        bloom_filter = BloomFilter.build(hash_keys(keys)).to_bytes()
        checksum = xxhash.xxh64_intdigest(bloom_filter)
        files.append(partial(place.store.put, f"{place.path}/{layout.BLOOM_FILTER}", bloom_filter))
    return _KeyFiles(checksum, tuple(files))


def _write_rows(place: _Place, rows: GenerationRows, urgency: Callable[[], float]) -> _Written:
    with _library_failures(place):
        return _rows_written(place, rows, urgency)


def _rows_written(place: _Place, rows: GenerationRows, urgency: Callable[[], float]) -> _Written:
    schema = rows.written.schema
    plain = without_field_ids(schema, births=False)
    data: pa.Table | pa.RecordBatchReader
    if rows.is_large:
        # Piece by piece: nothing is copied as a whole, and there is somewhere to rest.
        pieces = (
            pa.RecordBatch.from_arrays(piece.columns, schema=plain)
            for piece in place.store.engine.throttle.paced(rows.pieces(), urgency)
        )
        data = pa.RecordBatchReader.from_batches(plain, pieces)
    else:
        # As one piece: the library takes half as long again for what comes in fifty.
        data = unsliced(pa.Table.from_batches(rows.to_table().combine_chunks().to_batches(), plain))
    if not place.store.is_local:
        return _committed_beside(place, data, schema)
    dataset = lance.write_dataset(data, place.uri, mode="create", storage_options=place.storage_options)
    numbers = renumbering(dataset, schema) if has_field_ids(schema) else {}
    return _Written(_renumbered(place, dataset, numbers) if numbers else dataset)


def _committed_beside(place: _Place, data: pa.Table | pa.RecordBatchReader, schema: pa.Schema) -> _Written:
    """Store rows, and build what makes them a dataset here, to be stored with the other small files.

    The library needs three sequential round trips for it, and two more to number its columns. The data files
    of small generations are stored the same way: the library would check for a dataset first.
    """
    is_small = isinstance(data, pa.Table) and data.nbytes <= _SMALL_BYTES
    plain = without_field_ids(schema, births=False)
    with scratch_directory() as scratch:
        if is_small:
            fragments = write_fragments(data, str(scratch), mode="create")
        else:
            fragments = write_fragments(data, place.uri, mode="create", storage_options=place.storage_options)
        dataset = lance.LanceDataset.commit(scratch, lance.LanceOperation.Overwrite(plain, fragments))
        manifest = (scratch / _FIRST_MANIFEST).read_bytes()
        numbers = renumbering(dataset, schema) if has_field_ids(schema) else {}
        refuse_torn(
            str(scratch),
            manifest,
            where=str(scratch / _FIRST_MANIFEST),
            known=() if is_small else {f"{_DATA}/{file.path}" for one in fragments for file in one.files},
        )
        if numbers:
            where = f"{place.uri}/{_FIRST_MANIFEST}"
            manifest = numbered_manifest.with_numbers(manifest, numbers, where=where)
        unstored = {
            f"{place.path}/{file.relative_to(scratch).as_posix()}": file.read_bytes()
            for directory in (_DATA, TRANSACTIONS)
            for file in (scratch / directory).rglob("*")
            if file.is_file()
        }
    return _Written(None, {**unstored, f"{place.path}/{_FIRST_MANIFEST}": manifest})


def _renumbered(place: _Place, dataset: lance.LanceDataset, numbers: Mapping[int, int]) -> lance.LanceDataset:
    """Give the columns of an unpublished generation the table's field ids."""
    path = f"{place.path}/{_FIRST_MANIFEST}"
    where = f"{place.store.uri}/{path}"
    manifest = place.store.get(path)
    refuse_torn_build(place.uri, manifest, where=where)
    place.store.put(path, numbered_manifest.with_numbers(manifest, numbers, where=where))
    return lance.dataset(place.uri, storage_options=place.storage_options)


def _both(store: ObjectStore, one: Callable[[], One], other: Callable[[], Other]) -> tuple[One, Other]:
    """Do two things at once; when one fails, the other has ended too."""
    done = concurrent_map(_call, (one, other), is_local=False, engine=store.engine)
    first, second = done
    return cast("One", first), cast("Other", second)


def _call(what: Callable[[], object]) -> object:
    return what()


def _write_all(store: ObjectStore, files: Sequence[Callable[[], object]]) -> None:
    """Write files: all at once where each is a round trip."""
    for _ in concurrent_map(_call, files, is_local=store.is_local, engine=store.engine):
        pass


@contextmanager
def _library_failures(place: _Place) -> Iterator[None]:
    """Report errors of the library as store failures."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:
        raise _failed(place, error) from error
    except BaseException as error:
        # A panic of the library is not an Exception; anything else here should end the process.
        if type(error).__name__ != "PanicException":
            raise
        raise _failed(place, error) from error


def _failed(place: _Place, error: BaseException) -> StorageError:
    hints = (hint_for(error), "Its rows are safe in the WAL; the flush can be repeated")
    return StorageError(
        f"a generation could not be written: {library_message(error)}",
        where=place.uri,
        hint=". ".join(hint for hint in hints if hint),
    )


def _key_index_files(place: _Place, keys: list[pa.Array]) -> list[Callable[[], None]]:
    """Return what writes the files of the key index."""
    index = pk_index.build(encode_keys(keys))

    def write(file_name: str, batch: pa.RecordBatch) -> None:
        with (
            _library_failures(place),
            LanceFileWriter(
                f"{place.uri}/{layout.PK_INDEX}/{file_name}.lance",
                batch.schema,
                version=_KEY_INDEX_FILE_VERSION,
                storage_options=place.storage_options,
            ) as writer,
        ):
            for start in range(0, batch.num_rows, pk_index.PAGE_ROWS):
                writer.write_batch(batch.slice(start, pk_index.PAGE_ROWS))

    return [
        partial(write, "page_data", index.page_data),
        partial(write, "page_lookup", index.page_lookup),
    ]
