"""Tables with the first MemWAL index, made of the codecs alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.base.table_kit import new_table

from weir.base.dataset import open_dataset
from weir.base.manifest import read_manifest
from weir.base.publish import as_of_today, mem_wal_index_change, publish_first_details, publish_operation
from weir.base.table import BaseTable
from weir.first_index.wal import RegionWal, new_location
from weir.format.first_index_details import FirstIndexDetails, MemWal, MemWalState
from weir.format.index_details import INDEX_NAME, IndexDetails
from weir.format.table_manifest import with_index_details
from weir.format.u64_segment import U64Segment
from weir.storage.interface import ObjectStore

Row = tuple[int, str | None]
"""A key and its value; None deletes it."""


def mem_wal(region: str, generation: int, state: MemWalState, **more: Any) -> MemWal:
    """Return a MemWAL without entries."""
    made = MemWal(
        region,
        generation,
        "memory://0",
        new_location(region, generation, "a"),
        U64Segment(),
        state,
        "owner",
        1,
    )
    return replace(made, **more)


BASE: list[Row] = [(1, "a"), (2, "b"), (3, "c")]
MEM_WALS: list[tuple[MemWal, list[list[Row]]]] = [
    # Merged: what its WAL says is older than the base table.
    (mem_wal("eu", 0, MemWalState.MERGED), [[(1, "too old")]]),
    (mem_wal("eu", 1, MemWalState.FLUSHED), [[(1, "A"), (4, "d")], [(4, "D")]]),
    (mem_wal("eu", 2, MemWalState.SEALED), [[(1, None)], [(5, "e")]]),
    (mem_wal("eu", 3, MemWalState.OPEN), [[(5, "E")]]),
    (mem_wal("us", 0, MemWalState.OPEN), [[(2, None), (9, "i")]]),
]
EXPECTED = {3: "c", 4: "D", 5: "E", 9: "i"}
"""What is in such a table with such MemWALs."""


def rows_of(base: BaseTable, rows: Sequence[Row]) -> pa.Table:
    """Return rows as an entry has them."""
    columns = [[key for key, _ in rows], [value for _, value in rows], [value is None for _, value in rows]]
    arrays = [pa.array(one, field.type) for one, field in zip(columns, base.row_schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=base.row_schema)


def first_table(
    directory: Path, rows: Sequence[Row], mem_wals: Sequence[tuple[MemWal, Sequence[Sequence[Row]]]]
) -> ObjectStore:
    """Make a table with the first MemWAL index: rows of the base table, and MemWALs with their entries."""
    base = new_table(directory, rows=rows)
    wal = RegionWal(base.store)
    listed = []
    for one, entries in mem_wals:
        for number, entry in enumerate(entries):
            wal.append(one, number, rows_of(base, entry))
        listed.append(replace(one, entries=U64Segment.of(range(len(entries)))))
    publish(base.store, *listed)
    return base.store


def publish(store: ObjectStore, *mem_wals: MemWal) -> None:
    """Publish a version with these MemWALs."""
    manifest = read_manifest(store, open_dataset(store).version)
    assert publish_first_details(store, manifest, FirstIndexDetails(mem_wals)) is not None


def rows_in(table: Any) -> dict[int, str]:
    """Return what a scan of a table shows; every key once."""
    found = table.scan().to_table()
    rows = dict(zip(found.column("id").to_pylist(), found.column("value").to_pylist(), strict=True))
    assert len(rows) == found.num_rows
    return rows


def publish_bytes(store: ObjectStore, stored: bytes) -> None:
    """Publish a version whose details of the first form are these bytes, whatever they say."""
    manifest = as_of_today(read_manifest(store, open_dataset(store).version), IndexDetails())
    change = mem_wal_index_change(manifest.version, IndexDetails(), replaced=manifest.mem_wal_index())
    version = publish_operation(
        store,
        manifest,
        change,
        changed=lambda data: with_index_details(data, INDEX_NAME, stored, where=manifest.where),
    )
    assert version is not None


def files(store: ObjectStore) -> dict[str, bytes]:
    """Return every object of a table."""
    return {one.path: bytes(store.get(one.path)) for one in store.list("")}
