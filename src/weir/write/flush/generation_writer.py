"""Writing a flushed generation: a Lance dataset with its indexes, key index, bloom filter and catalog.

Lance MemWAL spec, "Flushed MemTable Storage Layout". The directory has a random name, so an attempt
that fails leaves an orphan and the retry starts clean; nothing refers to the directory until the
shard manifest does.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from uuid import UUID

import lance
import pyarrow as pa
import xxhash
from lance.file import LanceFileWriter

from weir.base.dataset_fields import renumbering
from weir.engine import failpoint
from weir.errors import StorageError
from weir.format import generation_catalog, layout, numbered_manifest, pk_index
from weir.format.bloom_filter import BloomFilter
from weir.format.field_ids import has_field_ids, without_field_ids
from weir.format.key_hash import hash_keys
from weir.format.keys import encode_keys
from weir.format.shard_manifest import FlushedGeneration
from weir.format.unsliced import unsliced
from weir.indexing.generation import GenerationIndex, build_generation_indexes, is_on, is_worth_building
from weir.indexing.library_message import library_message
from weir.lsm.generation_files import checksum_files
from weir.storage.interface import ObjectStore
from weir.storage.local_errors import hint_for
from weir.write.flush.generation_rows import GenerationRows
from weir.write.flush.generation_summary import summarize

__all__ = ["write_generation"]

_KEY_INDEX_FILE_VERSION = "2.0"
_FIRST_MANIFEST = f"_versions/{2**64 - 2}.manifest"


@dataclass(frozen=True, slots=True)
class _Place:
    store: ObjectStore
    path: str

    @property
    def uri(self) -> str:
        return f"{self.store.uri}/{self.path}"

    @property
    def storage_options(self) -> dict[str, str] | None:
        return dict(self.store.storage_options) or None


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
        What the MemTable took in memory, recorded for operators.
    indexes : sequence of GenerationIndex, optional
        The indexes that generations are to have, where this one gains from them.
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
    with _library_failures(place):
        dataset = _write_rows(place, rows, urgency)
    failpoint.reach("flush.after_data")
    built = build_generation_indexes(
        dataset,
        [one for one in indexes if is_worth_building(one, rows.num_rows) and is_on(one, rows.written.schema)],
    )
    failpoint.reach("flush.after_indexes")
    if rows.is_settled:
        # Without it the LSM readers of the library stop, which know of no merge engine, and of no table
        # without a key.
        with _library_failures(place):
            _write_key_index(place, keys)
    bloom_filter_checksum = _write_bloom_filter(place, keys) if keys else None
    own = {} if bloom_filter_checksum is None else {layout.BLOOM_FILTER: bloom_filter_checksum}
    checksums = {**own, **_library_files(place)}
    catalog = replace(
        summarize(rows, built),
        checksums=checksums,
        directory=place.path,
        has_field_ids=has_field_ids(rows.written.schema),
    )
    store.put(f"{place.path}/{layout.CATALOG}", generation_catalog.encode(catalog))
    failpoint.reach("flush.after_key_index")
    store.sync(place.path)
    return FlushedGeneration(
        generation=generation,
        path=name,
        in_memory_bytes=in_memory_bytes,
        physical_rows=rows.num_rows,
        primary_key_bytes=sum(key.nbytes for key in keys),
        bloom_filter_checksum=bloom_filter_checksum,
    )


def _library_files(place: _Place) -> dict[str, int]:
    """Return the checksums of what the library has written, where it costs little to read it again.

    A disk of this machine has it in memory still, and nothing else on it that would notice a bit that
    turns over. Object stores keep checksums of their own, and would send everything once more.
    """
    if not place.store.is_local:
        return {}
    return checksum_files(place.store, place.path, leave_out=(layout.BLOOM_FILTER,))


def _write_rows(place: _Place, rows: GenerationRows, urgency: Callable[[], float]) -> lance.LanceDataset:
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
    dataset = lance.write_dataset(data, place.uri, mode="create", storage_options=place.storage_options)
    numbers = renumbering(dataset, schema) if has_field_ids(schema) else {}
    return _renumbered(place, dataset, numbers) if numbers else dataset


def _renumbered(place: _Place, dataset: lance.LanceDataset, numbers: Mapping[int, int]) -> lance.LanceDataset:
    """Give the columns of a generation that nobody can see yet the ids that the table has for them."""
    path = f"{place.path}/{_FIRST_MANIFEST}"
    manifest = numbered_manifest.with_numbers(
        place.store.get(path), numbers, where=f"{place.store.uri}/{path}"
    )
    place.store.put(path, manifest)
    return lance.dataset(place.uri, storage_options=place.storage_options)


@contextmanager
def _library_failures(place: _Place) -> Iterator[None]:
    """Report what the library raises as what it is to the caller: the store failed."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:
        raise _failed(place, error) from error
    except BaseException as error:
        # A panic of the library is no Exception; anything else here is to end the process.
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


def _write_bloom_filter(place: _Place, keys: list[pa.Array]) -> int:
    """Write the bloom filter of some keys; return its checksum."""
    bloom_filter = BloomFilter.build(hash_keys(keys)).to_bytes()
    place.store.put(f"{place.path}/{layout.BLOOM_FILTER}", bloom_filter)
    return xxhash.xxh64_intdigest(bloom_filter)


def _write_key_index(place: _Place, keys: list[pa.Array]) -> None:
    index = pk_index.build(encode_keys(keys))
    for file_name, batch in (("page_data", index.page_data), ("page_lookup", index.page_lookup)):
        with LanceFileWriter(
            f"{place.uri}/{layout.PK_INDEX}/{file_name}.lance",
            batch.schema,
            version=_KEY_INDEX_FILE_VERSION,
            storage_options=place.storage_options,
        ) as writer:
            for start in range(0, batch.num_rows, pk_index.PAGE_ROWS):
                writer.write_batch(batch.slice(start, pk_index.PAGE_ROWS))
