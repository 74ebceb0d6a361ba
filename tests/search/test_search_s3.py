"""Indexes, searches and SQL on an object store: the same answers as over a dict, at every stage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.search.search_model import check_ranking, nearest, text_scores
from tests.storage.s3 import S3Endpoint, s3_endpoint

import weir
from weir.engine.context import default_context
from weir.search.text.query import TextQuery
from weir.write.table_writer import TableWriter

__all__ = ["s3_endpoint"]

DIMENSION = 8
PARTITIONS = 2
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("text", pa.string()),
        ("number", pa.int32()),
        ("vector", pa.list_(pa.float32(), DIMENSION)),
    ]
)
WORDS = [f"w{number}" for number in range(12)]
Row = dict[str, Any]


def rows(generator: np.random.Generator, keys: range) -> list[Row]:
    return [
        {
            "id": key,
            "text": " ".join(generator.choice(WORDS, generator.integers(0, 8))),
            "number": key % 5,
            "vector": generator.normal(size=DIMENSION).astype(np.float32).tolist(),
        }
        for key in keys
    ]


def check(table: weir.Table, model: dict[Any, Row]) -> None:
    for query in (np.zeros(DIMENSION), np.linspace(-1, 1, DIMENSION)):
        # All partitions are looked into, so that the index finds what comparing all rows does.
        found = table.search(query, 7, nprobes=PARTITIONS, columns=["id"]).to_table()
        check_ranking(found, ["id"], "_distance", nearest(model, query), 7, descending=False)
    found = table.search(np.ones(DIMENSION), 5, filter="number = 3", nprobes=PARTITIONS).to_table()
    some = nearest(model, np.ones(DIMENSION), keep=lambda row: row["number"] == 3)
    check_ranking(found, ["id"], "_distance", some, 5, descending=False)
    texts: list[TextQuery] = [
        weir.MatchQuery("w1 w7"),
        weir.PhraseQuery("w3 w4"),
        weir.BooleanQuery(["w2"], must_not=["w5"]),
    ]
    for text in texts:
        found = table.search_text(text, 9).to_table()
        check_ranking(found, ["id"], "_score", text_scores(model, text), 9, descending=True)
    both = table.search_hybrid(np.zeros(DIMENSION), "w2", 4, nprobes=PARTITIONS).to_table()
    assert both.num_rows == 4
    for row in both.to_pylist():
        assert row["text"] == model[row["id"],]["text"]
    found = table.sql("SELECT * FROM t WHERE number > 1 ORDER BY number DESC, id LIMIT 6").to_table()
    best = sorted(
        (row for row in model.values() if row["number"] > 1), key=lambda row: (-row["number"], row["id"])
    )
    assert found.to_pylist() == best[:6]
    assert table.scan(filter="number = 4").count() == sum(row["number"] == 4 for row in model.values())
    keys = [3, 10_000, 41, 7, 120]
    assert table.get(keys).to_pylist() == [model[key,] for key in keys if (key,) in model]


@pytest.mark.long
def test_searches_at_every_stage(s3_endpoint: S3Endpoint) -> None:
    uri, options = s3_endpoint.new_uri(), s3_endpoint.options
    table = weir.create(uri, SCHEMA, primary_key="id", shard_by=weir.bucket("id", 2), storage_options=options)
    generator = np.random.default_rng(2)
    model: dict[Any, Row] = {}

    def write(writer: TableWriter, keys: range) -> None:
        written = rows(generator, keys)
        writer.upsert(written)
        model.update({(row["id"],): row for row in written})

    with table.writer() as writer:
        write(writer, range(120))
    table.maintenance.merge()
    table.indexes.create("text", "INVERTED", with_position=True, stem=False, remove_stop_words=False)
    table.indexes.create("vector", "IVF_FLAT", num_partitions=PARTITIONS)
    table.indexes.create("number", "BITMAP")
    check(table, model)
    with table.writer(flush_on_close=False) as writer:
        write(writer, range(30, 60))
        writer.flush()
        write(writer, range(50, 70))
        writer.delete([0, 7, 55])
        for key in (0, 7, 55):
            del model[key,]
        check(table, model)
        default_context().cache.clear()
        elsewhere = weir.open(uri, storage_options=options)
        check(elsewhere, model)
    token = table.snapshot()
    before = dict(model)
    with table.writer() as writer:
        write(writer, range(200, 230))
    table.maintenance.merge()
    check(elsewhere, model)
    table.maintenance.catch_up_indexes()
    table.maintenance.compact()
    check(elsewhere, model)
    found = elsewhere.search_text("w3", 50, at=token).to_table()
    expected = text_scores(before, weir.MatchQuery("w3"))
    check_ranking(found, ["id"], "_score", expected, 50, descending=True)
