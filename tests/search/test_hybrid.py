"""Two rankings as one, against the formulas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import weir

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("text", pa.string()), ("vector", pa.list_(pa.float32(), 2))]
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> weir.Table:
    table = weir.create(tmp_path_factory.mktemp("t") / "t", SCHEMA, primary_key="id", fsync=False)
    lance.dataset(table.uri).create_scalar_index("text", "INVERTED")
    generator = np.random.default_rng(0)
    with table.writer() as writer:
        for start in range(0, 90, 30):
            words = generator.choice(["storm", "snow", "rain"], (30, 4))
            writer.upsert(
                [
                    {"id": start + at, "text": " ".join(words[at]), "vector": generator.random(2).tolist()}
                    for at in range(30)
                ]
            )
            if start < 60:
                writer.flush()
            if start < 30:
                table.maintenance.merge()
    return table


def fused(
    near: list[dict[str, Any]], apt: list[dict[str, Any]], kind: str, weights: tuple[float, float], rrf_k: int
) -> dict[int, float]:
    total: dict[int, float] = {}
    for rows, weight, goodness in (
        (near, weights[0], [-row["_distance"] for row in near]),
        (apt, weights[1], [row["_score"] for row in apt]),
    ):
        for place, row in enumerate(rows):
            if kind == "rrf":
                added = 1 / (rrf_k + place + 1)
            else:
                added = (goodness[place] - min(goodness)) / (max(goodness) - min(goodness))
            total[row["id"]] = total.get(row["id"], 0.0) + weight * added
    return total


@pytest.mark.parametrize(
    ("kind", "weights", "rrf_k"),
    [
        ("rrf", (1.0, 1.0), 60),
        ("rrf", (2.0, 0.5), 5),
        ("weighted", (0.5, 0.5), 60),
        ("weighted", (0.0, 1.0), 60),
    ],
)
def test_relevance_is_that_of_the_formula(
    table: weir.Table, kind: str, weights: tuple[float, float], rrf_k: int
) -> None:
    query, words = [0.3, 0.6], "snow storm"
    near = table.search(query, 20).to_table().to_pylist()
    apt = table.search_text(words, 20).to_table().to_pylist()
    found = table.search_hybrid(
        query, words, 12, fusion=kind, weights=weights, rrf_k=rrf_k, candidates=20, columns=["text"]
    ).to_table()
    assert found.schema.names == ["text", "_distance", "_score", "_relevance"]
    expected = fused(near, apt, kind, weights, rrf_k)
    best = sorted(expected.values(), reverse=True)[:12]
    np.testing.assert_allclose(found["_relevance"].to_numpy(), best, rtol=1e-5, atol=1e-6)


def test_the_order_is_that_of_places_where_relevance_is_equal(table: weir.Table) -> None:
    # Reciprocal ranks of the same weights: first of one ranking and first of the other are equal.
    found = table.search_hybrid([0.9, 0.9], "storm", 90, candidates=90).to_table()
    again = table.search_hybrid([0.9, 0.9], "storm", 90, candidates=90).to_table()
    assert found.equals(again)
    assert len(set(found["id"].to_pylist())) == found.num_rows == 90
    relevance = found["_relevance"].to_pylist()
    assert relevance == sorted(relevance, reverse=True)


def test_a_row_that_one_ranking_found_has_no_value_of_the_other(table: weir.Table, tmp_path: Path) -> None:
    found = table.search_hybrid([0.5, 0.5], "rain", 50, candidates=50, filter="id < 60").to_table()
    assert max(found["id"].to_pylist()) < 60
    apt = set(table.search_text("rain", 50, filter="id < 60").to_table()["id"].to_pylist())
    for row in found.to_pylist():
        assert (row["_score"] is not None) == (row["id"] in apt)
    explained = table.search_hybrid([0.5, 0.5], "rain").explain()
    assert "reciprocal ranks" in explained
    assert "full-text index of text" in explained


def test_a_row_that_is_infinitely_far_away_is_the_last_of_the_weighted(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    table.indexes.create("text", "INVERTED")
    with table.writer() as writer:
        writer.upsert([{"id": at, "text": "rain", "vector": [float(at), 0.0]} for at in range(3)])
        writer.upsert([{"id": 9, "text": "snow", "vector": [1e30, 0.0]}])
    found = table.search_hybrid([2.0, 0.0], "rain", 4, fusion="weighted").to_table()
    assert found["id"].to_pylist() == [2, 1, 0, 9]
    assert found["_relevance"].to_pylist() == [1.0, 0.875, 0.5, 0.0]
