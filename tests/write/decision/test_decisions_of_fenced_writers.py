"""What a writer decides that learns meanwhile that its shard is somebody else's."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.write.conftest import wait_until

import weir
from weir.errors import FencedError
from weir.log.manifest_store import commit_manifest, list_shards, read_latest_manifest
from weir.storage.local import LocalStore
from weir.write.decision.decide import decide
from weir.write.fencing import let_go_of
from weir.write.flush.flush import flush_memtable


def test_what_a_fenced_writer_has_let_go_of_is_not_taken_for_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flush that finds the writer fenced drops its rows between the start of a commit and deciding."""
    begun, may_end, decided = (threading.Event() for _ in range(3))

    def flush_late(*arguments: object, **keywords: object) -> object:
        begun.set()
        assert may_end.wait(60)
        return flush_memtable(*arguments, **keywords)  # type: ignore[arg-type]

    def decide_late(*arguments: object) -> object:
        before = unflushed()
        may_end.set()
        wait_until(lambda: unflushed() < before)
        return decide(*arguments)  # type: ignore[arg-type]

    def let_go_late(*arguments: object) -> None:
        if threading.current_thread() is not threading.main_thread():
            assert decided.wait(60)
        let_go_of(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("weir.write.fencing.let_go_of", let_go_late)
    monkeypatch.setattr("weir.write.memtable.memtable_set.flush_memtable", flush_late)
    monkeypatch.setattr("weir.write.shard_writer.decide", decide_late)
    engine = weir.Engine(maintenance="off")

    unflushed = engine.metrics.unflushed_bytes.value
    schema = pa.schema([("id", pa.int64()), ("version", pa.int64())])
    table = engine.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    writer = table.writer(max_memtable_rows=2, flush_on_close=False)
    writer.upsert([{"id": 1, "version": 3}, {"id": 2, "version": 3}])
    assert begun.wait(60)
    store = LocalStore(tmp_path / "t", fsync=False)
    (shard,) = list_shards(store)
    latest = read_latest_manifest(store, shard)
    assert latest is not None
    claimed = replace(latest, version=latest.version + 1, writer_epoch=latest.writer_epoch + 1)
    assert commit_manifest(store, claimed, after=latest) is not None
    with pytest.raises(FencedError):
        writer.upsert([{"id": 1, "version": 1}], condition="version < 0")
    decided.set()
    writer.close()
    assert table.get([1]).to_pylist() == [{"id": 1, "version": 3}]
