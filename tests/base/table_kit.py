"""Tables and generations for the tests of weir.base, made with the library and the format codecs alone."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import lance
import pyarrow as pa

from weir.base.create import create_base_table
from weir.base.table import BaseTable
from weir.format import layout, shard_manifest
from weir.format.shard_manifest import FlushedGeneration, ShardManifest
from weir.format.wal_entry import TOMBSTONE
from weir.storage.interface import ObjectStore
from weir.storage.local import LocalStore

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.string())])

Row = tuple[Any, ...]
Key = tuple[Any, ...]


def new_store(directory: Path) -> LocalStore:
    """Return a store for a table that does not exist yet."""
    return LocalStore(directory / f"table-{secrets.token_hex(4)}", fsync=False)


def new_table(
    directory: Path,
    schema: pa.Schema = SCHEMA,
    primary_key: tuple[str, ...] = ("id",),
    rows: Sequence[Row] = (),
) -> BaseTable:
    """Create a table with some rows."""
    data = table_of(schema, rows) if rows else None
    return create_base_table(new_store(directory), schema, primary_key, initial_data=data)


def table_of(schema: pa.Schema, rows: Iterable[Row]) -> pa.Table:
    """Return an Arrow table of some rows, without the marks of the primary key."""
    plain = pa.schema([pa.field(field.name, field.type) for field in schema])
    return pa.Table.from_pylist([dict(zip(plain.names, row, strict=True)) for row in rows], schema=plain)


def write_generation(
    base: BaseTable,
    shard_id: UUID,
    number: int,
    rows: Sequence[Row | Key],
    *,
    max_rows_per_file: int = 1024 * 1024,
) -> FlushedGeneration:
    """Write a generation. A row with values for the key columns alone is a tombstone."""
    width = len(base.schema)
    keys = len(base.primary_key)
    assert all(len(row) in (width, keys) for row in rows)
    full = [row if len(row) == width else (*row, *[None] * (width - keys)) for row in rows]
    fields = [pa.field(field.name, field.type) for field in base.schema]
    table = table_of(pa.schema(fields), full)
    table = table.append_column(
        pa.field(TOMBSTONE, pa.bool_(), nullable=False),
        pa.array([len(row) != width for row in rows], pa.bool_()),
    )
    name = layout.generation_name(secrets.token_hex(4), number)
    uri = f"{base.uri}/{layout.generation_path(shard_id, name)}"
    lance.write_dataset(table, uri, max_rows_per_file=max_rows_per_file)
    return FlushedGeneration(number, name, in_memory_bytes=table.nbytes, physical_rows=len(rows))


def manifest_of(shard_id: UUID, generations: Sequence[FlushedGeneration], version: int = 1) -> ShardManifest:
    """Return the manifest of a shard that has flushed some generations."""
    following = generations[-1].generation + 1 if generations else 1
    return ShardManifest(
        shard_id, version, current_generation=following, flushed_generations=tuple(generations)
    )


def store_manifest(store: ObjectStore, manifest: ShardManifest) -> ShardManifest:
    """Store a shard manifest and read it back, as a merger would."""
    path = layout.manifest_path(manifest.shard_id, manifest.version)
    store.put_if_absent(path, shard_manifest.encode(manifest))
    return shard_manifest.decode(store.get(path), where=path)


def newest_manifest(store: ObjectStore, shard_id: UUID) -> ShardManifest:
    """Return the newest manifest of a shard, whoever wrote it."""
    entries = [
        entry for entry in store.list(layout.manifest_directory(shard_id)) if entry.path.endswith(".binpb")
    ]
    return max(
        (shard_manifest.decode(store.get(entry.path), where=entry.path) for entry in entries),
        key=lambda manifest: manifest.version,
    )


def contents(base: BaseTable) -> dict[Key, Row]:
    """Return the rows of the base table by key; fails if two rows have one key."""
    rows = base.dataset.to_table().to_pylist()
    found = {tuple(row[name] for name in base.primary_key): tuple(row.values()) for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    return found


def apply(model: dict[Key, Row], base: BaseTable, rows: Iterable[Row | Key]) -> None:
    """Do to a dict what a generation does to the table. Key columns come first."""
    keys = len(base.primary_key)
    for row in rows:
        if len(row) == keys:
            model.pop(tuple(row), None)
        else:
            model[tuple(row[:keys])] = tuple(row)


def progress(base: BaseTable, shard_id: UUID) -> int:
    """Return the newest merged generation in the newest version."""
    return base.latest().details.merged_generation(shard_id)


def new_shard() -> UUID:
    """Return the id of a shard nobody has used."""
    return uuid4()


def together(*work: Callable[[], None]) -> None:
    """Run some functions at once, each in a thread of its own; none of them fails."""
    failures: list[BaseException] = []

    def guarded(one: Callable[[], None]) -> None:
        try:
            one()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
