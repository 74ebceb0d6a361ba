"""Compaction of a branch or a shallow clone, whose indexes lie below the table it was made from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import weir

KINDS = {
    "ranges": "BTREE",
    "few": "BITMAP",
    "zones": "ZONEMAP",
    "blooms": "BLOOMFILTER",
    "grams": "NGRAM",
    "words": "INVERTED",
    "near": "IVF_PQ",
}
TYPES = {"grams": pa.string(), "words": pa.string(), "near": pa.list_(pa.float32(), 8)}
SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), *((name, TYPES.get(name, pa.int64())) for name in KINDS)]
)


def rows(keys: range) -> pa.Table:
    vectors = np.random.default_rng(keys.start).random((len(keys), 8), dtype=np.float32)
    numbers = [key % 7 for key in keys]
    texts = [f"word{key % 5} and more" for key in keys]
    columns = {name: texts if TYPES.get(name) == pa.string() else numbers for name in KINDS}
    return pa.table({"id": list(keys), **columns, "near": list(vectors)}, schema=SCHEMA)


def write(table: weir.Table, keys: range) -> None:
    with table.writer() as writer:
        writer.upsert(rows(keys))
        writer.flush()
    table.maintenance.merge()


@pytest.fixture(params=["branch", "shallow clone"])
def clone_of(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[weir.Table], weir.Table]:
    def clone(source: weir.Table) -> weir.Table:
        dataset = lance.dataset(source.uri)
        if request.param == "branch":
            return weir.open(str(dataset.create_branch("other").uri).removeprefix("file://"), fsync=False)
        dataset.shallow_clone(str(tmp_path / "clone"), dataset.version)
        return weir.open(tmp_path / "clone", fsync=False)

    return clone


def answers(table: weir.Table) -> list[object]:
    """Ask by every kind of index, of Weir and of the library."""
    dataset = lance.dataset(table.uri)
    conditions = [f"{name} = 3" for name in ("ranges", "few", "zones", "blooms")]
    conditions.append("contains(grams, 'word2')")
    vector = rows(range(3, 4))["near"][0].as_py()
    nearest = {"column": "near", "q": vector, "k": 3, "nprobes": 64, "refine_factor": 50}
    return [
        *(dataset.to_table(filter=condition).num_rows for condition in conditions),
        *(table.scan(filter=condition).to_table().num_rows for condition in conditions[:4]),
        dataset.to_table(full_text_query="word1", limit=10_000).num_rows,
        table.search_text("word1", column="words", k=10_000).to_table().num_rows,
        dataset.to_table(nearest=nearest).num_rows,
        table.search(vector, column="near", k=3).to_table().num_rows,
    ]


@pytest.mark.covering
@pytest.mark.parametrize("merged", [False, True])
def test_indexes_of_the_source_can_be_read_after_a_compaction(
    tmp_path: Path, clone_of: Callable[[weir.Table], weir.Table], merged: bool
) -> None:
    table = weir.create(tmp_path / "table", SCHEMA, primary_key="id", fsync=False)
    for start in range(0, 900, 300):
        write(table, range(start, start + 300))
    for column, kind in KINDS.items():
        table.indexes.create(column, kind)
    of_source = answers(table)
    clone = clone_of(table)
    if merged:
        write(clone, range(600, 1200))
    expected = answers(clone)
    assert clone.maintenance.compact().fragments_removed > 1
    clone = weir.open(clone.uri, fsync=False)
    assert answers(clone) == expected
    assert clone.maintenance.verify().findings == ()
    clone.maintenance.catch_up_indexes()
    assert answers(clone) == expected
    assert answers(table) == of_source


def test_an_index_that_the_library_has_moved_out_of_reach_is_found_and_made_anew(
    tmp_path: Path, clone_of: Callable[[weir.Table], weir.Table]
) -> None:
    table = weir.create(tmp_path / "table", SCHEMA, primary_key="id", fsync=False)
    for start in range(0, 900, 300):
        write(table, range(start, start + 300))
    table.indexes.create("ranges", "BTREE")
    # Fragments become one only where the same segments of all indexes cover them.
    lance.dataset(table.uri).optimize.optimize_indices(num_indices_to_merge=10)
    clone = clone_of(table)
    assert clone.maintenance.verify().findings == ()
    # It writes what it moves along below the clone, and then looks for it below the source.
    lance.dataset(clone.uri).optimize.compact_files()
    clone = weir.open(clone.uri, fsync=False)
    found = {(one.check, one.message.split("'")[1]) for one in clone.maintenance.verify().findings}
    assert ("base_index.files", "ranges_idx") in found
    with pytest.raises(weir.errors.CorruptionError, match="weir verify"):
        clone.scan(filter="ranges = 3").to_table()
    planned = clone.maintenance.repair(dry_run=True)
    assert sorted(one.to_dict()["name"] for one in planned.repairs) == ["id_idx", "ranges_idx"]
    assert clone.maintenance.repair().repairs == planned.repairs
    assert clone.maintenance.repair().repairs == ()
    assert clone.scan(filter="ranges = 3").to_table().num_rows == len([n for n in range(900) if n % 7 == 3])
    assert clone.maintenance.verify().findings == ()
