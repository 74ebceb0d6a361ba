"""What is read of an index is enough to build the same index on other rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.dataset import Index
from lance.indices import IndexSegment

from weir.base.index_list import existing_indexes
from weir.engine.context import default_context
from weir.errors import IndexDefinitionError
from weir.indexing.build import build_index, build_segment
from weir.indexing.definition import IndexDefinition
from weir.indexing.kinds import IndexKind
from weir.indexing.vector_model import read_vector_model
from weir.storage.open import open_store

ROWS = 2_000
DIMENSION = 16

DEFINITIONS = [
    IndexDefinition("one", "id", IndexKind.BTREE),
    IndexDefinition("one", "category", IndexKind.BITMAP),
    IndexDefinition("one", "id", IndexKind.ZONEMAP, {"rows_per_zone": 512}),
    IndexDefinition("one", "id", IndexKind.BLOOMFILTER, {"number_of_items": 500, "probability": 0.01}),
    IndexDefinition("one", "text", IndexKind.NGRAM),
    IndexDefinition("one", "tags", IndexKind.LABEL_LIST),
    IndexDefinition("one", "text", IndexKind.INVERTED, {"with_position": True, "stem": False}),
    IndexDefinition(
        "one",
        "text",
        IndexKind.INVERTED,
        {"base_tokenizer": "ngram", "min_ngram_length": 2, "language": "French"},
    ),
    IndexDefinition("one", "vector", IndexKind.IVF_FLAT, {"metric": "dot", "num_partitions": 4}),
    IndexDefinition(
        "one",
        "vector",
        IndexKind.IVF_PQ,
        {"metric": "cosine", "num_partitions": 4, "num_sub_vectors": 4, "num_bits": 8},
    ),
    IndexDefinition(
        "one",
        "vector",
        IndexKind.IVF_HNSW_SQ,
        {"metric": "l2", "num_partitions": 2, "m": 12, "ef_construction": 60},
    ),
]


def rows(start: int, count: int) -> pa.Table:
    random = np.random.default_rng(start)
    numbers = np.arange(start, start + count)
    vectors = pa.array(random.normal(size=count * DIMENSION).astype(np.float32))
    return pa.table(
        {
            "id": numbers,
            "category": (numbers % 10).astype(np.int32),
            "text": [f"running water number {number % 97}" for number in numbers],
            "tags": [[f"tag{number % 5}"] for number in numbers],
            "vector": pa.FixedSizeListArray.from_arrays(vectors, DIMENSION),
        }
    )


def model_of(dataset: lance.LanceDataset) -> Any:
    (index,) = existing_indexes(dataset, default_context().cache)
    assert index.definition is not None
    if not index.definition.kind.is_vector:
        return None
    return read_vector_model(
        open_store(dataset.uri), dataset, index.name, index.definition.kind, index.segments[0].uuid
    )


def labelled(definition: IndexDefinition) -> str:
    return "-".join([definition.kind, *map(str, definition.parameters.values())])


@pytest.mark.parametrize("definition", DEFINITIONS, ids=labelled)
def test_the_same_index_on_other_rows(tmp_path: Path, definition: IndexDefinition) -> None:
    first = lance.write_dataset(rows(0, ROWS), tmp_path / "first")
    build_index(first, definition)
    (index,) = existing_indexes(first, default_context().cache)
    assert index.definition is not None
    assert (index.name, index.column, index.definition.kind) == ("one", definition.column, definition.kind)
    # How many partitions there are is in the model.
    told = {name: value for name, value in definition.parameters.items() if name != "num_partitions"}
    assert {name: index.definition.parameters[name] for name in told} == told

    second = lance.write_dataset(rows(ROWS, 500), tmp_path / "second")
    build_index(second, index.definition, model_of(first))
    (again,) = existing_indexes(second, default_context().cache)
    assert again.definition == index.definition
    if definition.kind.is_vector:
        assert model_of(second) == model_of(first)


@pytest.mark.parametrize("definition", DEFINITIONS, ids=labelled)
def test_a_segment_over_new_fragments(tmp_path: Path, definition: IndexDefinition) -> None:
    dataset = lance.write_dataset(rows(0, ROWS), tmp_path / "table")
    build_index(dataset, definition)
    (before,) = existing_indexes(dataset, default_context().cache)
    assert before.definition is not None
    dataset = lance.write_dataset(rows(ROWS, 300), tmp_path / "table", mode="append")
    dataset = lance.write_dataset(rows(ROWS + 300, 300), tmp_path / "table", mode="append")
    segments: list[IndexSegment | Index] = [
        build_segment(dataset, before.definition, [number], model_of(dataset)) for number in (1, 2)
    ]
    assert existing_indexes(dataset, default_context().cache) == (before,)
    dataset.commit_existing_index_segments("one", definition.column, segments)
    (after,) = existing_indexes(lance.dataset(tmp_path / "table"), default_context().cache)
    assert after.fragment_ids == {0, 1, 2}
    assert after.segments[: len(before.segments)] == before.segments
    assert after.definition == before.definition


@pytest.mark.parametrize("definition", DEFINITIONS[2:4], ids=labelled)
def test_what_is_known_of_an_index_is_not_read_again(tmp_path: Path, definition: IndexDefinition) -> None:
    """The library would keep all of it in memory, also of those segments that come later."""
    dataset = lance.write_dataset(rows(0, ROWS), tmp_path / "table")
    build_index(dataset, definition)
    (before,) = existing_indexes(dataset, default_context().cache)
    dataset = lance.write_dataset(rows(ROWS, 300), tmp_path / "table", mode="append")
    dataset.optimize.optimize_indices(num_indices_to_merge=0)

    def held(dataset: lance.LanceDataset) -> int:
        return int(dataset.session().index_cache_size_bytes())

    listed, described = lance.dataset(tmp_path / "table"), lance.dataset(tmp_path / "table")
    listed.describe_indices()
    (after,) = existing_indexes(described, default_context().cache)
    assert after.definition == before.definition
    assert len(after.segments) == 2
    assert held(described) == held(listed)


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_estimated_distances_of_a_shared_model_compare(tmp_path: Path, metric: str) -> None:
    first = lance.write_dataset(rows(0, ROWS), tmp_path / "first")
    build_index(
        first,
        IndexDefinition(
            "one", "vector", IndexKind.IVF_PQ, {"metric": metric, "num_partitions": 4, "num_sub_vectors": 4}
        ),
    )
    (index,) = existing_indexes(first, default_context().cache)
    assert index.definition is not None
    second = lance.write_dataset(rows(0, ROWS).slice(0, 700), tmp_path / "second")
    build_index(second, index.definition, model_of(first))
    query = {"column": "vector", "q": np.ones(DIMENSION, dtype=np.float32), "k": ROWS, "nprobes": 4}

    def distances(dataset: lance.LanceDataset) -> dict[int, float]:
        scanner = dataset.scanner(columns=["id", "_distance"], nearest=query)
        found = scanner.to_table()
        return dict(zip(found["id"].to_pylist(), found["_distance"].to_pylist(), strict=True))

    everywhere, here = distances(first), distances(second)
    assert len(here) == 700
    assert here == {number: everywhere[number] for number in here}


def test_a_definition_refuses_what_its_kind_does_not_know() -> None:
    with pytest.raises(IndexDefinitionError, match="no parameter 'num_partitions'"):
        IndexDefinition("one", "id", IndexKind.BTREE, {"num_partitions": 3})
    with pytest.raises(IndexDefinitionError, match="no metric 'manhattan'"):
        IndexDefinition("one", "vector", IndexKind.IVF_FLAT, {"metric": "manhattan"})


def test_a_definition_refuses_a_column_that_cannot_have_it() -> None:
    schema = rows(0, 1).schema
    with pytest.raises(IndexDefinitionError, match="has no column 'nothing'"):
        IndexDefinition("one", "nothing", IndexKind.BTREE).check_column(schema)
    for column, kind in (("id", IndexKind.NGRAM), ("text", IndexKind.IVF_PQ), ("vector", IndexKind.BTREE)):
        with pytest.raises(IndexDefinitionError, match=f"cannot have an index of kind {kind}"):
            IndexDefinition("one", column, kind).check_column(schema)
