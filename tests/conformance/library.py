"""The released library as reader, writer and merger of a table, told only what storage says."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.compute as pc
from lance.mem_wal import (
    CompactedSsTable,
    LsmPointLookupPlanner,
    LsmScanner,
    LsmVectorSearchPlanner,
    ShardSnapshot,
    ShardWriter,
)
from tests.conformance.tables import Key, Kind

from weir.format import index_details, layout, shard_manifest, table_manifest
from weir.format.index_details import IndexDetails
from weir.format.shard_manifest import ShardManifest

# A put returns when its flush has; the default of 100 ms would be most of the time of these tests.
FLUSH_MILLISECONDS = 5

_opened: list[ShardWriter] = []


def shards_of(table: Path) -> list[uuid.UUID]:
    """Return the shards that have a directory."""
    directory = table / layout.MEM_WAL
    return sorted(uuid.UUID(path.name) for path in directory.iterdir()) if directory.exists() else []


def manifest_of(table: Path, shard: uuid.UUID) -> ShardManifest:
    """Return the newest manifest of a shard, by listing."""
    directory = table / layout.manifest_directory(shard)
    names = [name for name in _names_in(directory) if name.endswith(".binpb")]
    newest = directory / max(names, key=layout.parse_manifest_name)
    return _manifest(newest.read_bytes(), str(newest))


def version_of(table: Path) -> int:
    """Return the newest version of the base table."""
    return 2**64 - 1 - int(_newest_version(table).name.removesuffix(".manifest"))


def details_of(table: Path) -> IndexDetails:
    """Return the MemWAL index details of the newest version of the base table."""
    newest = _newest_version(table)
    return _details(newest.read_bytes(), str(newest))


def _newest_version(table: Path) -> Path:
    directory = table / "_versions"
    return directory / min(name for name in _names_in(directory) if name.endswith(".manifest"))


def _names_in(directory: Path) -> list[str]:
    return os.listdir(directory) if isinstance(directory, Path) else [one.name for one in directory.iterdir()]


# The bytes are read each time, and decoded once.


@lru_cache(maxsize=256)
def _manifest(data: bytes, where: str) -> ShardManifest:
    return shard_manifest.decode(data, where=where)


@lru_cache(maxsize=256)
def _details(data: bytes, where: str) -> IndexDetails:
    for entry in table_manifest.decode_index_section(data, where=where):
        if entry.name == index_details.INDEX_NAME:
            return index_details.decode(entry.details, where=where)
    raise AssertionError("the table has no MemWAL index")


def unmerged_of(table: Path, shard: uuid.UUID) -> list[tuple[int, str]]:
    """Return number and directory of the generations a reader of the library has to be told of."""
    merged = details_of(table).merged_generation(shard)
    listed = manifest_of(table, shard).flushed_generations
    return sorted((one.generation, one.path) for one in listed if one.generation > merged)


def snapshots_of(table: Path) -> list[ShardSnapshot]:
    """Describe every shard as the library's readers take it."""
    shards = []
    for shard in shards_of(table):
        snapshot = ShardSnapshot(str(shard)).with_current_generation(
            manifest_of(table, shard).current_generation
        )
        for generation, path in unmerged_of(table, shard):
            snapshot = snapshot.with_sstable(generation, path)
        shards.append(snapshot)
    return shards


def scan(table: Path) -> pa.Table:
    """Return base table and generations, merged by the library."""
    return LsmScanner.from_snapshots(lance.dataset(str(table)), snapshots_of(table)).to_table()


def lookup(table: Path, kind: Kind) -> Callable[[Key], pa.Table]:
    """Return the library's point lookup over base table and generations."""
    planner = LsmPointLookupPlanner(lance.dataset(str(table)), snapshots_of(table))

    def find(key: Key) -> pa.Table:
        columns = kind.key_table([key]).combine_chunks().to_batches()[0].columns
        asked = (
            columns[0] if len(columns) == 1 else pa.StructArray.from_arrays(columns, list(kind.key_columns))
        )
        return planner.plan_lookup(asked).to_table()

    return find


def search(table: Path, column: str, query: list[float], k: int) -> pa.Table:
    """Return the nearest rows over base table and generations."""
    planner = LsmVectorSearchPlanner(lance.dataset(str(table)), snapshots_of(table), column)
    return planner.plan_search(pa.array(query, pa.float32()), k=k, overfetch_factor=8.0).to_table()


def open_writer(table: Path, shard: uuid.UUID) -> ShardWriter:
    """Claim a shard with the library's writer, to be closed: see :func:`close_writers`."""
    dataset = lance.dataset(str(table))
    writer = dataset.mem_wal_writer(str(shard), max_wal_flush_interval_ms=FLUSH_MILLISECONDS)
    _opened.append(writer)
    return writer


def close_quietly(writer: ShardWriter) -> None:
    """Close a writer that may have been fenced, which its flush then reports."""
    with suppress(OSError, RuntimeError):
        writer.close()


def close_writers() -> None:
    """Close every writer that has been opened and may still be open.

    A writer that is left looks for something to flush every few milliseconds for as long as the process
    lives. One that was fenced with rows in it reads the shard's manifest each time, and a handful of
    those keep two cores busy.
    """
    while _opened:
        close_quietly(_opened.pop())


def make_table(path: Path, kind: Kind, rows: pa.Table | None = None, **options: object) -> lance.LanceDataset:
    """Make a table with the library alone."""
    dataset = lance.write_dataset(rows if rows is not None else kind.schema.empty_table(), str(path))
    dataset.initialize_mem_wal(**options)  # type: ignore[arg-type]
    return dataset


def merge(table: Path, shard: uuid.UUID, kind: Kind) -> int:
    """Merge the oldest unmerged generation as the library's documentation has it; return its number.

    The library merges what it is given: tombstones are the caller's work, and deleted first. A crash
    in between would delete them again.
    """
    generation, path = unmerged_of(table, shard)[0]
    rows = lance.dataset(str(table / layout.generation_path(shard, path))).to_table()
    gone = rows.filter(rows["_tombstone"]).select(list(kind.key_columns))
    kept = rows.filter(pc.invert(rows["_tombstone"])).drop_columns("_tombstone")
    dataset = lance.dataset(str(table))
    if gone.num_rows:
        dataset.merge_insert(list(kind.key_columns)).when_matched_delete().execute(gone)
        dataset = lance.dataset(str(table))
    upsert = (
        dataset.merge_insert(list(kind.key_columns)).when_matched_update_all().when_not_matched_insert_all()
    )
    upsert.mark_sstables_as_compacted([CompactedSsTable(str(shard), generation)])
    upsert.execute(kept.cast(kind.schema))
    return generation
