"""The source of the format "weir-events" without Spark: the snapshot that the driver takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import weir
from weir.errors import SchemaError
from weir.events.store import EventStore
from weir.read.scan import Scan
from weir.spark.event_options import EventReadOptions
from weir.spark.event_reader import EventBatchReader, event_columns
from weir.spark.types import spark_schema
from weir.table.table import Table

FIELDS = {"n": "int | null", "side": ["left", "right"]}


@pytest.fixture
def store(tmp_path: Path) -> EventStore:
    store = weir.events.create(tmp_path / "store", buckets=2, fsync=False)
    store.define("order", FIELDS)
    with store.writer() as writer:
        writer.append("order", "u", {"n": 1, "side": "left"})
    return store


def defined_before_the_next_scan(
    store: EventStore, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Define a version, and write an event of it, between the read of the catalog and that of the events."""
    scan = Table.scan

    def late(table: Table, *arguments: Any, **options: Any) -> Scan:
        monkeypatch.undo()
        with weir.events.open(store.path) as other:
            other.define("order", fields)
            with other.writer(hold=False) as writer:
                writer.append("order", "u", {"n": 2, "side": "right"})
        return scan(table, *arguments, **options)

    monkeypatch.setattr(Table, "scan", late)


def rows_of(store: EventStore, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    options = EventReadOptions.parse({"path": store.path, "type": "order"})
    reader = EventBatchReader(options, spark_schema(event_columns(options)))
    defined_before_the_next_scan(store, fields, monkeypatch)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    found: list[Any] = pa.Table.from_batches(batches).sort_by("event_id").select(["n", "side"]).to_pylist()
    return found


def test_a_batch_knows_the_versions_of_the_events_that_it_reads(
    store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    wider = {"n": "float | null", "side": ["left", "right"]}
    with pytest.raises(SchemaError, match="'n' is double"):
        rows_of(store, wider, monkeypatch)
    assert rows_of(store, wider, monkeypatch) == [
        {"n": n, "side": side} for n, side in ((1.0, "left"), (2.0, "right"), (2.0, "right"))
    ]


def test_a_batch_has_the_columns_that_were_expected(
    store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    longer = {**FIELDS, "note": "string | null"}
    assert rows_of(store, longer, monkeypatch) == [{"n": 1, "side": "left"}, {"n": 2, "side": "right"}]
