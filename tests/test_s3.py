"""The whole path on an object store: the same table, the same answers, and few round trips."""

from __future__ import annotations

import pyarrow as pa
import pytest

import weir
from tests.storage.s3 import S3Endpoint, s3_endpoint
from weir.engine.context import default_context
from weir.errors import FencedError, StorageError, TableExistsError
from weir.storage.counting import CountingStore

__all__ = ["s3_endpoint"]

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])


def names(found: pa.Table) -> dict[int, str]:
    assert len(set(found.column("id").to_pylist())) == found.num_rows
    return dict(zip(found.column("id").to_pylist(), found.column("name").to_pylist(), strict=True))


def test_whole_path(s3_endpoint: S3Endpoint) -> None:
    uri, options = s3_endpoint.new_uri(), s3_endpoint.options
    table = weir.create(uri, SCHEMA, primary_key="id", shard_by=weir.bucket("id", 2), storage_options=options)
    with pytest.raises(TableExistsError):
        weir.create(uri, SCHEMA, primary_key="id", storage_options=options)
    expected: dict[int, str] = {}
    with table.writer() as writer:
        writer.upsert([{"id": n, "name": f"first {n}"} for n in range(20)])
        expected |= {n: f"first {n}" for n in range(20)}
        writer.flush()
        writer.upsert([{"id": n, "name": f"second {n}"} for n in range(5)])
        expected |= {n: f"second {n}" for n in range(5)}
        writer.delete([7])
        del expected[7]
        default_context().cache.clear()
        elsewhere = weir.open(uri, storage_options=options)
        assert names(elsewhere.scan().to_table()) == expected
        assert names(elsewhere.get([3, 7, 19])) == {3: "second 3", 19: "first 19"}
        with elsewhere.writer(takeover=True) as other:
            other.upsert([{"id": n, "name": f"third {n}"} for n in range(10, 14)])
            expected |= {n: f"third {n}" for n in range(10, 14)}
            with pytest.raises(FencedError):
                writer.upsert([{"id": n, "name": "late"} for n in range(20)])
    assert elsewhere.maintenance.merge().rows_upserted == len(expected)
    assert names(table.scan().to_table()) == expected
    assert names(table.scan(filter="name LIKE 'second%'").to_table()) == {n: f"second {n}" for n in range(5)}
    default_context().cache.clear()
    assert names(weir.open(uri, storage_options=options).scan(consistency="snapshot").to_table()) == expected


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"bucket": "weir-none"}, "The bucket or container does not exist .*Check its name"),
        ({"allow_http": "false"}, "set the storage option 'allow_http' to 'true'"),
        # Nothing listens on the port of the discard service.
        ({"aws_endpoint": "http://127.0.0.1:9"}, "check that the store is reachable"),
    ],
)
def test_what_keeps_a_table_from_being_opened_is_said_with_what_to_do(
    s3_endpoint: S3Endpoint, changes: dict[str, str], says: str
) -> None:
    options = {**s3_endpoint.options, **changes}
    bucket = options.pop("bucket", None) or s3_endpoint.new_bucket()
    with pytest.raises(StorageError, match=says) as caught:
        weir.open(f"s3://{bucket}/table", storage_options=options)
    assert caught.value.where == f"s3://{bucket}/table"
    assert "<Error>" not in str(caught.value)


def test_a_strong_read_costs_one_probe_per_shard(s3_endpoint: S3Endpoint) -> None:
    uri, options = s3_endpoint.new_uri(), s3_endpoint.options
    made = weir.create(uri, SCHEMA, primary_key="id", shard_by=weir.bucket("id", 3), storage_options=options)
    store = CountingStore(made.internals.store)
    table = weir.Table(store, made.internals.base)
    with made.writer(flush_on_close=False) as writer:
        writer.upsert([{"id": n, "name": "x"} for n in range(30)])
        table.scan().to_table()
        store.reset()
        assert table.scan().count() == 30
        # One listing finds the shards, one probe each looks for a WAL entry after the last known one.
        assert dict(store.counts) == {"list_directories": 1, "get": 3}
        writer.upsert([{"id": 100, "name": "y"}])
        store.reset()
        assert table.scan().count() == 31
        assert sum(store.counts.values()) <= 6
        store.reset()
        assert table.get([100]).num_rows == 1
        assert dict(store.counts) == {"list_directories": 1, "get": 3}
