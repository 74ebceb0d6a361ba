"""Wide tables: no scan has the library look up all of their columns by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import weir
from weir.base.wide_scan import scanned_batches
from weir.format.wal_entry import TOMBSTONE

COLUMNS = [f"c{number}" for number in range(100)]


def test_all_columns_are_not_looked_up_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    scanner = lance.LanceDataset.scanner

    def counted(dataset: lance.LanceDataset, columns: Any = None, *args: Any, **options: Any) -> Any:
        asked.append(len(columns or ()))
        return scanner(dataset, columns, *args, **options)

    monkeypatch.setattr(lance.LanceDataset, "scanner", counted)
    schema = pa.schema([(name, pa.int64()) for name in COLUMNS])
    table = weir.create(tmp_path / "t", schema, primary_key="c0", fsync=False)
    expected: dict[int, dict[str, int]] = {}
    for start in (0, 5):
        rows = [dict.fromkeys(COLUMNS, start + row) for row in range(10)]
        expected |= {row["c0"]: row for row in rows}
        with table.writer() as writer:
            writer.upsert(rows)
            writer.delete([start])
        del expected[start]
        found = sorted(table.scan().to_pylist(), key=lambda row: row["c0"])
        assert found == sorted(expected.values(), key=lambda row: row["c0"])
        assert table.maintenance.merge().generations == 1
    found = sorted(table.scan(limit=1000).to_pylist(), key=lambda row: row["c0"])
    assert found == sorted(expected.values(), key=lambda row: row["c0"])
    assert asked
    assert max(asked) < 64


def test_the_columns_are_those_that_were_asked_for() -> None:
    rows = pa.table({name: [number] for number, name in enumerate([*COLUMNS, TOMBSTONE])})
    dataset = lance.write_dataset(rows, "memory://")
    for columns in (COLUMNS, [*COLUMNS, TOMBSTONE], COLUMNS[::-1], COLUMNS[:70], COLUMNS[:3], []):
        (batch,) = scanned_batches(dataset, columns, with_row_id=True)
        assert batch.schema.names == [*columns, "_rowid"]
        assert batch.select(columns).to_pylist() == rows.select(columns).to_pylist()
