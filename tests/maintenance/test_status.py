"""What the status says of the writers of shards, and what that costs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import weir
from tests.forked_program import weir_python
from weir.format import layout
from weir.maintenance.status import ShardReport
from weir.storage.counting import CountingStore
from weir.storage.interface import Bytes, ObjectStore

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("value", pa.string())])

DIES_WITH_A_LEASE = """
import os, sys, weir
weir.open(sys.argv[1]).writer().upsert([{"id": 1, "value": "x"}])
os._exit(0)
"""


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    return weir.create(tmp_path / "table", SCHEMA, primary_key="id", fsync=False)


def the_shard(table: weir.Table) -> ShardReport:
    (shard,) = table.status().shards
    return shard


def test_writers_and_their_leases(table: weir.Table) -> None:
    began = datetime.now(UTC)
    with table.writer() as writer:
        writer.upsert([{"id": 1, "value": "x"}])
        held = the_shard(table)
        assert held.lease == "held"
        assert held.writer == f"process {os.getpid()} on {socket.gethostname()}"
        assert held.lease_expires_at is not None
        assert timedelta(0) <= held.lease_expires_at - began - timedelta(seconds=300) < timedelta(minutes=2)
        assert held.unflushed_rows == 1
    released = the_shard(table)
    assert (released.lease, released.writer, released.unflushed_rows) == ("released", held.writer, 0)
    assert released.lease_expires_at is not None
    assert released.lease_expires_at <= datetime.now(UTC)
    json.dumps(table.status().to_dict())


def test_a_writer_that_is_gone(table: weir.Table) -> None:
    subprocess.run([*weir_python(), DIES_WITH_A_LEASE, table.uri], check=True)
    assert the_shard(table).lease == "abandoned"
    with table.writer() as writer:
        writer.upsert([{"id": 2, "value": "y"}])
        assert the_shard(table).lease == "held"


def test_leases_that_say_nothing(table: weir.Table) -> None:
    with table.writer() as writer:
        writer.upsert([{"id": 1, "value": "x"}])
    path = layout.lease_path(the_shard(table).shard_id)
    table.internals.store.put(path, b"{}")
    damaged = the_shard(table)
    assert (damaged.lease, damaged.writer, damaged.lease_expires_at) == ("damaged", "", None)
    # As after the released library, which takes none.
    table.internals.store.delete([path])
    assert the_shard(table).lease == "none"


def test_a_lease_costs_one_request_per_shard(table: weir.Table, tmp_path: Path) -> None:
    made = weir.create(
        tmp_path / "three", SCHEMA, primary_key="id", fsync=False, shard_by=weir.bucket("id", 3)
    )
    with made.writer(flush_on_close=False) as writer:
        writer.upsert([{"id": key, "value": "x"} for key in range(30)])
    store = Recording(made.internals.store)
    seen = weir.Table(store, made.internals.base)
    seen.status()
    # Whoever looks at a shard for the first time asks its lease how far the log has come.
    leases = [path for path in store.read if path.startswith("_mem_wal/") and path.endswith("/lease.json")]
    assert (len(leases), len(set(leases))) == (6, 3)
    store.read.clear()
    seen.status()
    leases = [path for path in store.read if path.startswith("_mem_wal/") and path.endswith("/lease.json")]
    assert (len(leases), len(set(leases))) == (3, 3)


class Recording(CountingStore):
    """Remembers what was read."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.read: list[str] = []

    def get(self, path: str) -> Bytes:
        self.read.append(path)
        return super().get(path)
