"""What the status says of the indexes of a table, and what that costs."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import weir
from weir.base.details_commit import update_details
from weir.maintenance.index_status import IndexReport, index_reports
from weir.storage.counting import CountingStore

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("carrier", pa.string()), ("delay", pa.int64())]
)


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    return weir.create(
        tmp_path / "table", SCHEMA, primary_key="id", shard_by=weir.bucket("id", 2), fsync=False
    )


def write(table: weir.Table, keys: range) -> None:
    with table.writer() as writer:
        writer.upsert([{"id": key, "carrier": f"C{key % 3}", "delay": key} for key in keys])


def reports(table: weir.Table) -> dict[str, IndexReport]:
    return {index.name: index for index in table.status().indexes}


def test_an_index_behind_its_rows_and_up_to_them(table: weir.Table) -> None:
    write(table, range(10))
    table.maintenance.merge()
    table.indexes.create("carrier", "BITMAP")
    table.maintenance.catch_up_indexes()
    first = reports(table)
    assert sorted(first) == ["carrier_idx", "id_idx"]
    carrier = first["carrier_idx"]
    assert (carrier.kind, carrier.column, carrier.is_maintained) == ("BITMAP", "carrier", True)
    assert (carrier.rows, carrier.unindexed_rows, carrier.behind) == (10, 0, {})

    write(table, range(8, 30))
    assert reports(table)["carrier_idx"] == carrier
    table.maintenance.merge()
    behind = reports(table)["carrier_idx"]
    # Two of the rows that it covers were replaced by the merge.
    assert (behind.rows, behind.unindexed_rows) == (8, 22)
    assert behind.behind == {shard.shard_id: 1 for shard in table.status().shards}
    write(table, range(30, 40))
    table.maintenance.merge()
    assert set(reports(table)["carrier_idx"].behind.values()) == {2}

    table.maintenance.catch_up_indexes()
    caught_up = reports(table)["carrier_idx"]
    assert (caught_up.rows, caught_up.unindexed_rows, caught_up.behind) == (40, 0, {})
    assert caught_up.segments > carrier.segments


def test_an_index_that_is_not_maintained(table: weir.Table) -> None:
    write(table, range(10))
    table.maintenance.merge()
    table.internals.base.latest().dataset.create_scalar_index("delay", "ZONEMAP")
    assert reports(table)["delay_idx"].is_maintained
    update_details(
        table.internals.base.latest(), lambda details: replace(details, maintain_all_indexes=False)
    )
    report = reports(table)["delay_idx"]
    assert (report.kind, report.is_maintained, report.rows) == ("ZONEMAP", False, 10)
    write(table, range(10, 20))
    table.maintenance.merge()
    report = reports(table)["delay_idx"]
    assert (report.unindexed_rows, report.behind) == (10, {})
    table.indexes.drop("delay_idx")
    assert sorted(reports(table)) == ["id_idx"]


def test_json_has_what_the_report_has(table: weir.Table) -> None:
    write(table, range(10))
    table.maintenance.merge()
    table.indexes.create("carrier", "BITMAP")
    write(table, range(10, 20))
    table.maintenance.merge()
    said = {one["name"]: one for one in json.loads(json.dumps(table.status().to_dict()))["indexes"]}
    report = reports(table)["carrier_idx"]
    assert said["carrier_idx"] == {
        "name": "carrier_idx",
        "kind": "BITMAP",
        "column": "carrier",
        "segments": 1,
        "rows": 10,
        "unindexed_rows": 10,
        "is_maintained": True,
        "behind": {str(shard): generations for shard, generations in report.behind.items()},
    }


def test_indexes_cost_no_request(table: weir.Table) -> None:
    write(table, range(20))
    table.maintenance.merge()

    def requests() -> dict[str, int]:
        store = CountingStore(table.internals.store)
        weir.Table(store, table.internals.base.latest()).status()
        return dict(store.counts)

    requests()
    without = requests()
    for column in ("carrier", "delay"):
        table.indexes.create(column, "ZONEMAP")
    requests()
    assert requests() == without


def test_what_a_handle_has_is_enough(table: weir.Table) -> None:
    write(table, range(20))
    table.maintenance.merge()
    table.indexes.create("carrier", "ZONEMAP")
    table.indexes.create("delay", "BTREE")
    write(table, range(20, 30))
    table.maintenance.merge()
    base = table.internals.base.latest()
    before = index_reports(base)
    shutil.rmtree(table.uri)
    assert index_reports(base) == before
    opened_before = {one.name: one.unindexed_rows for one in before}
    assert opened_before == {"carrier_idx": 10, "delay_idx": 10, "id_idx": 0}
