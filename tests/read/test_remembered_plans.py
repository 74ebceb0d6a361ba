"""A scan that is repeated while nothing has been written is planned once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import weir
from weir.base.table import BaseTable
from weir.engine.executors import SharedThreads
from weir.read.planner import ScanPlanner
from weir.read.remembered_plans import can_be_remembered
from weir.storage.open import open_store

_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("n", pa.int64()),
        ("now", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)


def _rows(first: int, count: int, n: int) -> pa.Table:
    return pa.table(
        {
            "id": list(range(first, first + count)),
            "n": [n] * count,
            "now": [n] * count,
            "at": pa.nulls(count, pa.timestamp("us", "UTC")),
        },
        schema=_SCHEMA,
    )


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """Return a list of the filters that plans are made for."""
    filters: list[str | None] = []
    make = ScanPlanner._made

    def noted(self: ScanPlanner, snapshot: object, names: object, filter: str | None, *rest: object, **named):  # type: ignore[no-untyped-def]
        filters.append(filter)
        return make(self, snapshot, names, filter, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(ScanPlanner, "_made", noted)
    return filters


def _layered(uri: str) -> weir.Table:
    table = weir.create(uri, _SCHEMA, primary_key="id")
    with table.writer() as writer:
        writer.upsert(_rows(0, 100, 1))
        writer.flush()
        table.maintenance.merge()
        writer.upsert(_rows(50, 100, 2))
        writer.flush()
        writer.upsert(_rows(140, 20, 3))
    return table


def test_a_repeated_scan_is_planned_once(tmp_path: Path, made: list[str | None]) -> None:
    table = _layered(str(tmp_path / "table"))
    for condition, count in ((None, 160), ("n >= 2", 110), ("n IN (1, 3) AND NOT id < 10", 60)):
        for _ in range(3):
            assert table.scan(filter=condition).to_table().num_rows == count
            assert table.scan(filter=condition).count() == count
        # Once for the rows, once for their number.
        assert made == [condition, condition]
        made.clear()


def test_what_is_in_memory_is_not_handed_to_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = _layered(str(tmp_path / "table"))
    submitted: list[str] = []
    submit = SharedThreads.submit

    def noted(self: SharedThreads, function: Callable[..., object], /, *given: object) -> object:
        submitted.append(self.name)
        return submit(self, function, *given)  # type: ignore[no-untyped-call]

    for condition, count in ((None, 160), ("n >= 2", 110), ("abs(n) >= 2", 110)):
        found = table.scan(filter=condition).to_table()
        monkeypatch.setattr(SharedThreads, "submit", noted)
        assert table.scan(filter=condition).to_table().sort_by("id").equals(found.sort_by("id"))
        monkeypatch.undo()
        # The last condition is for Lance, which reads the generations too.
        assert len(submitted) == (3 if condition == "abs(n) >= 2" else 0)
        assert found.num_rows == count
        submitted.clear()


def test_a_write_is_seen_after_a_plan_was_remembered(tmp_path: Path) -> None:
    table = _layered(str(tmp_path / "table"))
    with table.writer() as writer:
        for n in range(4, 8):
            assert table.scan(filter=f"n = {n}").count() == 0
            writer.upsert(_rows(1000 * n, 5, n))
            assert table.scan(filter=f"n = {n}").count() == 5
            writer.flush()
            assert table.scan(filter=f"n = {n}").count() == 5
            table.maintenance.merge()
            assert table.scan(filter=f"n = {n}").count() == 5
            writer.delete([1000 * n])
            assert table.scan(filter=f"n = {n}").count() == 4


def test_scans_that_differ_have_plans_of_their_own(tmp_path: Path) -> None:
    table = _layered(str(tmp_path / "table"))
    for _ in range(2):
        assert table.scan(["id"]).to_table().column_names == ["id"]
        assert table.scan(["n", "id"]).to_table().column_names == ["n", "id"]
        assert table.scan(limit=7).to_table().num_rows == 7
        assert table.scan(limit=8).to_table().num_rows == 8
        assert table.scan(filter="n = 3", limit=8).to_table().num_rows == 8
        assert "consistency" not in table.scan().explain()


def test_keys_that_a_filter_names_are_looked_up_each_time(tmp_path: Path, made: list[str | None]) -> None:
    table = _layered(str(tmp_path / "table"))
    for _ in range(3):
        assert table.scan(filter="id = 55").to_table().column("n").to_pylist() == [2]
    assert made == ["id = 55"] * 3


@pytest.mark.parametrize(
    "condition",
    [
        "at < now()",
        "now () > 3",
        'at < "now"()',
        "at < `now` ()",
        "at < current_timestamp",
        "n > random()",
        "abs(n) = 3",
        "n > 3 -- it's",
        "n > 3 /* it's */ AND at < now() OR n = 'a'",
    ],
)
def test_a_condition_that_may_change_is_not_remembered(tmp_path: Path, condition: str) -> None:
    _layered(str(tmp_path / "table"))
    base = BaseTable.open(open_store(str(tmp_path / "table"), None))
    assert not can_be_remembered(base, condition)


def test_expiry_is_judged_anew(tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    weir.create(uri, _SCHEMA, primary_key="id", expire_after=timedelta(hours=1), expire_by="at")
    assert not can_be_remembered(BaseTable.open(open_store(uri, None)), None)
