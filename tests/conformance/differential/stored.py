"""Which keys the storage has changes of that are not merged, read in the simplest way."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from uuid import UUID

import lance
import pyarrow as pa
from tests.conformance import library

from weir.base.dataset_fields import marks_of
from weir.format import layout
from weir.format.field_births import Births, births_of
from weir.format.field_ids import FIELD_ID


def log_of(place: Path, shard: UUID) -> Iterator[tuple[int, int | None, pa.Table]]:
    """Yield position, generation and rows of each log entry, in order."""
    directory = place / layout.MEM_WAL / str(shard) / "wal"
    files = sorted((layout.parse_wal_name(path.name), path) for path in directory.glob("*"))
    for position, path in files:
        yield position, *_entry(path.read_bytes())


@lru_cache(maxsize=512)
def _entry(data: bytes) -> tuple[int | None, pa.Table]:
    """Return generation and rows of a log entry."""
    with pa.ipc.open_stream(data) as stream:
        recorded = (stream.schema.metadata or {}).get(b"generation")
        return None if recorded is None else int(recorded), stream.read_all()


def unflushed_keys(place: Path, names: list[str]) -> set[tuple[object, ...]]:
    """Return the keys of log entries that no generation has."""
    found: set[tuple[object, ...]] = set()
    for shard in library.shards_of(place):
        manifest = library.manifest_of(place, shard)
        begun = False
        for position, generation, rows in log_of(place, shard):
            if position <= manifest.replay_after_wal_entry_position or not rows.num_rows:
                continue
            begun = begun or generation is None or generation >= manifest.current_generation
            if begun:
                found.update(tuple(row[name] for name in names) for row in rows.select(names).to_pylist())
    return found


def unflushed_columns(place: Path) -> Iterator[Births]:
    """Yield for each log entry that no generation has the births of its columns, by field id."""
    for shard in library.shards_of(place):
        manifest = library.manifest_of(place, shard)
        for position, _, rows in log_of(place, shard):
            if position > manifest.replay_after_wal_entry_position and rows.num_rows:
                yield births_of(rows.schema)


def unmerged_columns(place: Path) -> Iterator[Births]:
    """Yield the same for each generation that is not merged."""
    for shard in library.shards_of(place):
        for _, path in library.unmerged_of(place, shard):
            yield _columns_of(str(place / layout.generation_path(shard, path)))[0]


def unflushed_types(place: Path) -> Iterator[dict[int, str]]:
    """Yield for each log entry that no generation has the types of its columns, by field id."""
    for shard in library.shards_of(place):
        manifest = library.manifest_of(place, shard)
        for position, _, rows in log_of(place, shard):
            if position > manifest.replay_after_wal_entry_position and rows.num_rows:
                fields = {(one.metadata or {}).get(FIELD_ID): one.type for one in rows.schema}
                yield {int(number): str(kind) for number, kind in fields.items() if number is not None}


def unmerged_types(place: Path) -> Iterator[dict[int, str]]:
    """Yield the same for each generation that is not merged."""
    for shard in library.shards_of(place):
        for _, path in library.unmerged_of(place, shard):
            yield _columns_of(str(place / layout.generation_path(shard, path)))[1]


@lru_cache(maxsize=256)
def _columns_of(uri: str, version: int | None = None) -> tuple[Births, dict[int, str]]:
    """Return births and types of the columns of a generation, or of a version, which never change."""
    dataset = lance.dataset(uri, version)
    return marks_of(dataset), types_of(dataset)


def columns_now(place: Path) -> tuple[Births, dict[int, str]]:
    """Return births and types of the columns that the base table has."""
    return _columns_of(str(place), library.version_of(place))


def types_of(dataset: lance.LanceDataset) -> dict[int, str]:
    """Return the types of a dataset's columns, by field id."""
    names = {one.name(): one.id() for one in dataset.lance_schema.fields()}
    return {names[one.name]: str(one.type) for one in dataset.schema}


def unmerged_keys(place: Path, names: list[str]) -> set[tuple[object, ...]]:
    """Return the keys of which a log or a generation has what the base table has not."""
    found = unflushed_keys(place, names)
    for shard in library.shards_of(place):
        for _, path in library.unmerged_of(place, shard):
            rows = lance.dataset(str(place / layout.generation_path(shard, path))).to_table(columns=names)
            found.update(tuple(row[name] for name in names) for row in rows.to_pylist())
    return found
