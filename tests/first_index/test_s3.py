"""Tables with the first MemWAL index on an object store: written, fenced, read, merged and upgraded."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.base.table_kit import SCHEMA
from tests.first_index.kit import mem_wal, publish, rows_in
from tests.storage.s3 import S3Endpoint, s3_endpoint

import weir
from weir.base.create import create_base_table
from weir.errors import FencedError
from weir.first_index.inspect import inspect_regions
from weir.first_index.writer import RegionWriter
from weir.format.first_index_details import MemWalState
from weir.storage.open import open_store

__all__ = ["s3_endpoint"]

OPEN = MemWalState.OPEN


@pytest.mark.long
def test_the_whole_way(s3_endpoint: S3Endpoint) -> None:
    uri, options = s3_endpoint.new_uri(), s3_endpoint.options
    store = open_store(uri, options)
    rows = {key: f"base {key}" for key in range(5)}
    data = [{"id": key, "value": value} for key, value in rows.items()]
    create_base_table(store, SCHEMA, ("id",), initial_data=pa.Table.from_pylist(data, SCHEMA))
    # One WAL in the table, one in a bucket of its own.
    elsewhere = f"{s3_endpoint.new_uri('wals')}/us"
    publish(store, mem_wal("eu", 0, OPEN), mem_wal("us", 0, OPEN, wal_location=elsewhere))
    table = weir.open(uri, storage_options=options)
    former = RegionWriter.claim(store, "eu")
    former.upsert([{"id": 1, "value": "first"}])
    with RegionWriter.claim(store, "eu") as writer, RegionWriter.claim(store, "us") as other:
        writer.upsert([{"id": 2, "value": "second"}])
        with pytest.raises(FencedError):
            former.upsert([{"id": 1, "value": "late"}])
        other.upsert([{"id": 9, "value": "elsewhere"}])
        other.delete([0])
        expected = {1: "first", 2: "second", 3: "base 3", 4: "base 4", 9: "elsewhere"}
        assert rows_in(table) == expected
        shown = inspect_regions(store, "region/us/0/0", rows=True)
        assert shown.where.startswith(elsewhere)
        for one in (other, writer):
            one.seal()
            one.flush()
            assert rows_in(table) == expected
        assert other.merge() == 1
        assert rows_in(table) == expected
        assert other.clean_up() == 3
        writer.upsert([{"id": 4, "value": "last"}])
        expected[4] = "last"
        assert rows_in(table) == expected
        assert table.maintenance.verify().findings == ()
    copy = s3_endpoint.new_uri("copy")
    weir.upgrade(uri, into=copy, storage_options=options)
    weir.upgrade(uri, shard_by=weir.bucket("id", 2), storage_options=options)
    for place in (copy, uri):
        assert rows_in(weir.open(place, storage_options=options)) == expected
