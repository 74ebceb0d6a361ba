"""What Weir writes, the released library reads, looks up, takes over and writes on."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from tests.conformance import library
from tests.conformance.tables import KINDS, Model

import weir
from weir.errors import SchemaError


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", KINDS)
def test_the_library_reads_and_takes_over_what_weir_writes(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    model, place, keys = Model(kind), tmp_path / "t", kind.keys
    table = weir.create(place, kind.plain_schema, primary_key=kind.key_columns, fsync=False)
    with table.writer() as writer:
        writer.upsert(model.upsert(keys[:8]))
    table.maintenance.merge()
    with table.writer() as writer:
        writer.upsert(model.upsert(keys[2:4]))
        writer.delete(model.delete(keys[:2]))
        writer.flush()
        writer.upsert(model.upsert([keys[0], keys[8], keys[8]]))
        writer.delete(model.delete([keys[2], keys[11]]))
        writer.flush()

    # Flushed: the base table and two generations.
    (shard,) = library.shards_of(place)
    assert [generation for generation, _ in library.unmerged_of(place, shard)] == [2, 3]
    model.check(table.scan().to_table())
    model.check(library.scan(place))
    find = library.lookup(place, kind)
    for key in keys:
        found = find(key).select(kind.schema.names).to_pylist()
        assert found == model.at(key)
        assert found == table.get(kind.key_table([key])).to_pylist()

    # A tail that no generation covers, with tombstones of flushed, merged and unflushed rows.
    with table.writer(flush_on_close=False) as writer:
        writer.upsert(model.upsert([keys[1], keys[5], keys[9]]))
        writer.delete(model.delete([keys[0], keys[4], keys[9]]))
        writer.upsert(model.upsert([keys[4]]))
    with library.open_writer(place, shard) as theirs:
        model.check(theirs.lsm_scanner().to_table())
        theirs.put(model.upsert([keys[0], keys[10]]))
        theirs.delete(model.delete([keys[1], keys[3]]))
        model.check(theirs.lsm_scanner().to_table())
        model.check(table.scan().to_table())
    model.check(library.scan(place))
    model.check(table.scan().to_table())

    # Weir carries on after the library.
    with table.writer() as writer:
        writer.upsert(model.upsert([keys[1], keys[11]]))
        writer.delete(model.delete([keys[10]]))
        model.check(table.scan().to_table())
    model.check(library.scan(place))
    table.maintenance.merge()
    model.check(lance.dataset(str(place)).to_table())
    model.check(library.scan(place))


NO_KEYS = [
    *(pa.time64("us"), pa.duration("us"), pa.float32(), pa.float64()),
    *(pa.list_(pa.int32()), pa.struct([("a", pa.int32())])),
]


@pytest.mark.parametrize("type", NO_KEYS, ids=str)
def test_key_types_the_library_refuses_are_refused_at_creation(type: pa.DataType, tmp_path: Path) -> None:
    """A table that the library could not open would break the promise, so it is never made."""
    marked = pa.field("id", type, nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"})
    with pytest.raises(OSError, match=r"(?i)primary key"):
        lance.write_dataset(pa.schema([marked]).empty_table(), str(tmp_path / "theirs")).initialize_mem_wal()
    with pytest.raises(SchemaError, match="cannot be part of a primary key") as caught:
        weir.create(tmp_path / "ours", pa.schema([("id", type)]), primary_key="id")
    assert "'id'" in str(caught.value)
    assert "Supported types: int8" in str(caught.value)
    assert not (tmp_path / "ours").exists()


VECTORS = np.random.default_rng(4).normal(size=(400, 4)).astype(np.float32)
VECTOR_SCHEMA = pa.schema([pa.field("id", pa.int32(), nullable=False), ("vector", pa.list_(pa.float32(), 4))])


def vectors(ids: range, shift: int = 0) -> pa.Table:
    values = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS[np.array(ids) + shift].reshape(-1)), 4)
    return pa.table([pa.array(ids, pa.int32()), values], schema=VECTOR_SCHEMA)


def nearest(rows: pa.Table, query: list[float], k: int) -> dict[int, float]:
    """Return the k nearest rows by looking at all of them."""
    flat = rows["vector"].combine_chunks().flatten().to_numpy().reshape(-1, 4)
    distances = ((flat - np.array(query, np.float32)) ** 2).sum(axis=1)
    order = np.argsort(distances)[:k]
    return {rows["id"][int(row)].as_py(): round(float(distances[row]), 4) for row in order}


def as_distances(found: pa.Table) -> dict[int, float]:
    return {row["id"]: round(row["_distance"], 4) for row in found.select(["id", "_distance"]).to_pylist()}


def test_the_library_searches_vectors_of_a_weir_table(tmp_path: Path) -> None:
    """Its planner asks the vector index of every source: generations of any size have one."""
    place = tmp_path / "t"
    table = weir.create(place, VECTOR_SCHEMA, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert(vectors(range(300)))
    table.maintenance.merge()
    lance.dataset(str(place)).create_index("vector", "IVF_FLAT", num_partitions=1)
    queries = [VECTORS[row].tolist() for row in (3, 17, 295, 350)]
    for query in queries:
        assert as_distances(library.search(place, "vector", query, 5)) == nearest(
            table.scan().to_table(), query, 5
        )

    with table.writer() as writer:
        writer.upsert(vectors(range(290, 320), shift=50))
        writer.delete([3, 17])
    for query in queries:
        assert as_distances(library.search(place, "vector", query, 5)) == nearest(
            table.scan().to_table(), query, 5
        )

    table.maintenance.merge()
    lance.dataset(str(place)).optimize.optimize_indices()
    for query in queries:
        assert as_distances(library.search(place, "vector", query, 5)) == nearest(
            table.scan().to_table(), query, 5
        )


def test_the_library_searches_a_large_generation(tmp_path: Path) -> None:
    """The same of a generation larger than the base table."""
    random = np.random.default_rng(5)

    def drawn(ids: range) -> pa.Table:
        flat = pa.array(random.normal(size=4 * len(ids)).astype(np.float32))
        return pa.table(
            [pa.array(ids, pa.int32()), pa.FixedSizeListArray.from_arrays(flat, 4)], schema=VECTOR_SCHEMA
        )

    place = tmp_path / "t"
    table = weir.create(place, VECTOR_SCHEMA, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert(drawn(range(1_000)))
    table.maintenance.merge()
    table.indexes.create("vector", "IVF_FLAT", num_partitions=1)
    with table.writer() as writer:
        writer.upsert(drawn(range(900, 9_900)))
        writer.delete([1, 2, 3])
    everything = table.scan().to_table()
    assert everything.num_rows == 9_897
    for query in random.normal(size=(5, 4)).astype(np.float32).tolist():
        assert as_distances(library.search(place, "vector", query, 5)) == nearest(everything, query, 5)
