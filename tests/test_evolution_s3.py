"""Columns that change on an object store: the same as on files, and no more requests."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest

import weir
from tests.base.alter_histories import History
from tests.storage.s3 import S3Endpoint, s3_endpoint
from weir.engine.context import default_context

__all__ = ["s3_endpoint"]

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])


@pytest.mark.long
@pytest.mark.parametrize("seed", [3])
def test_histories(s3_endpoint: S3Endpoint, seed: int) -> None:
    History(s3_endpoint.new_uri(), seed, s3_endpoint.options).run(8)


def test_nothing_of_a_dropped_column_shows_in_one_with_its_id(s3_endpoint: S3Endpoint) -> None:
    uri, options = s3_endpoint.new_uri(), s3_endpoint.options

    def plain() -> lance.LanceDataset:
        return lance.dataset(uri, storage_options=dict(options))

    weir.create(uri, SCHEMA, primary_key="id", storage_options=options)
    plain().add_columns(pa.field("x", pa.int64()))
    with weir.open(uri, storage_options=options).writer() as writer:
        writer.upsert([{"id": 1, "v": 10, "x": 77}])
        writer.flush()
        writer.upsert([{"id": 2, "v": 20, "x": 78}])
    plain().drop_columns(["x"])
    plain().add_columns(pa.field("y", pa.int64()))
    default_context().cache.clear()
    table = weir.open(uri, storage_options=options)
    expected = [{"id": 1, "v": 10, "y": None}, {"id": 2, "v": 20, "y": None}]
    assert table.scan().to_table().sort_by("id").to_pylist() == expected
    table.maintenance.recover()
    table.maintenance.merge()
    assert plain().to_table().sort_by("id").to_pylist() == expected


def test_rows_of_the_log_have_the_columns_that_somebody_else_has_just_given(s3_endpoint: S3Endpoint) -> None:
    uri, options = s3_endpoint.new_uri(), s3_endpoint.options
    schema = pa.schema([*SCHEMA, ("w", pa.int64())])
    with weir.create(uri, schema, primary_key="id", storage_options=options).writer() as writer:
        writer.upsert([{"id": 1, "v": 10, "w": 20}])
        reader = weir.open(uri, storage_options=options)
        other = weir.open(uri, storage_options=options)
        other.alter(rename={"v": "w", "w": "v"})
        other.alter(add=[pa.field("x", pa.int64())])
        # Its first read, which looks for the columns first and finds them in a newer version.
        found = reader.scan(columns=["id", "v", "w", "x"]).to_table()
        assert found.to_pylist() == [{"id": 1, "v": 20, "w": 10, "x": None}]
