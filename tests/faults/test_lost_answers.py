"""Every write to the store is done, and its answer lost, once (invariant I4)."""

from __future__ import annotations

import re
from datetime import timedelta

import pyarrow as pa
import pytest

import weir
from tests.faults.proxy import Fault, FirstOfEach, proxied
from tests.storage.s3 import S3Endpoint, s3_endpoint
from weir.engine.context import default_context
from weir.errors import FencedError, StorageError

__all__ = ["s3_endpoint"]

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])

# Each kind of object that is written under a condition.
KINDS = {
    "log entry": r"/wal/",
    "shard manifest": r"/manifest/[01]+\.binpb",
    "lease": r"/lease\.json",
    "manifest of the base table": r"/_versions/",
    "marks": r"/_weir/garbage/marks\.json",
    "pin": r"/_weir/snapshots/",
    "consumer": r"/_weir/consumers/",
}


def rows_of(found: pa.Table) -> dict[int, str]:
    assert len(set(found.column("id").to_pylist())) == found.num_rows
    return dict(zip(found.column("id").to_pylist(), found.column("name").to_pylist(), strict=True))


def tell_a_story(uri: str, options: dict[str, str]) -> None:
    """Do everything that writes to a table, none of which may fail or be done twice."""
    table = weir.create(uri, SCHEMA, primary_key="id", storage_options=options)
    feed = table.changes(consumer="story")
    with table.writer(flush_on_close=False) as writer:
        expected = {n: f"first {n}" for n in range(10)}
        writer.upsert([{"id": n, "name": name} for n, name in expected.items()])
        writer.delete([7])
        del expected[7]
        writer.flush()
        writer.upsert([{"id": 3, "name": "second 3"}])
        expected[3] = "second 3"
        (shard,) = writer._shards.writers
        shard.lease.renew()
        shard.lease.renew()
        token, then = table.snapshot(), dict(expected)
        with weir.open(uri, storage_options=options).writer(takeover=True) as other:
            other.upsert([{"id": 4, "name": "third 4"}])
            expected[4] = "third 4"
            with pytest.raises(FencedError):
                writer.upsert([{"id": 4, "name": "late"}])
    assert table.maintenance.merge().generations == 2
    changes = [row["_op"] for batch in feed for row in batch.rows.to_pylist()]
    assert changes == ["upsert"] * 10 + ["delete"] + ["upsert"] * 2
    feed.commit()
    with table.writer() as writer:
        writer.delete([0])
        del expected[0]
    assert (table.maintenance.merge().generations, table.maintenance.merge().generations) == (1, 0)
    feed.commit()
    for _ in range(3):
        table.maintenance.collect_garbage(horizon=timedelta(0))
    default_context().cache.clear()
    table = weir.open(uri, storage_options=options)
    assert rows_of(table.scan().to_table()) == expected
    assert rows_of(table.get(list(range(10)))) == expected
    assert rows_of(table.scan(at=token).to_table()) == then
    table.release(token)
    table.drop_consumer("story")
    status = table.status()
    assert (status.unflushed_rows, status.unmerged_rows) == (0, 0)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "fault", [Fault.LOST, Fault.DUPLICATE, pytest.param(Fault.FAILED_AFTER, marks=pytest.mark.long)]
)
def test_no_lost_answer_is_noticed(s3_endpoint: S3Endpoint, fault: Fault) -> None:
    plan = FirstOfEach(fault, "|".join(KINDS.values()))
    with proxied(s3_endpoint, plan) as proxy:
        uri = "s3://" + s3_endpoint.new_bucket() + "/table"
        tell_a_story(uri, proxy.options)
    for kind, path in KINDS.items():
        hit = [request for request in plan.happened if re.search(path, request.path)]
        assert hit, f"no {kind} was written"


def test_a_writer_that_hears_nothing_goes_on_at_the_same_position(s3_endpoint: S3Endpoint) -> None:
    """The client gives up and does not ask again; the next append finds what the first one left."""
    with proxied(s3_endpoint) as proxy:
        table = weir.create(s3_endpoint.new_uri(), SCHEMA, primary_key="id", storage_options=proxy.options)
        with table.writer() as writer:
            (first,) = writer.upsert([{"id": 1, "name": "heard"}]).positions.values()
            plan = FirstOfEach(Fault.SILENT, KINDS["log entry"])
            proxy.plan = plan
            with pytest.raises(StorageError):
                writer.upsert([{"id": 2, "name": "not heard"}])
            assert len(plan.happened) == 1
            proxy.plan = lambda request: Fault.NONE
            (next_one,) = writer.upsert([{"id": 3, "name": "heard again"}]).positions.values()
            assert next_one == first + 2
            expected = {1: "heard", 2: "not heard", 3: "heard again"}
            assert rows_of(table.scan().to_table()) == expected
        default_context().cache.clear()
        assert rows_of(table.scan().to_table()) == expected
        table.maintenance.merge()
        assert rows_of(table.scan().to_table()) == expected
