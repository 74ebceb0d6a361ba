"""Scans of sources with many dead rows: they find what they would without these, and fail on none of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import weir
from weir.engine.context import default_context

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("value", pa.int64()),
        pa.field("text", pa.string()),
        pa.field("day", pa.date32()),
    ]
)
ROWS = 3_000
Condition = Callable[[dict[str, Any]], bool]


def row(number: int, value: int, text: str) -> dict[str, Any]:
    return {"id": number, "value": value, "text": text, "day": number % 100}


@pytest.fixture(scope="module")
def model() -> dict[int, dict[str, Any]]:
    """Return the live rows."""
    return {}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory, model: dict[int, dict[str, Any]]) -> weir.Table:
    """Dead rows in the base table, most at its beginning, and in a generation; their texts are no numbers."""
    table = weir.create(
        tmp_path_factory.mktemp("dead") / "t", SCHEMA, primary_key="id", fsync=False, maintenance="off"
    )

    def write(writer: Any, rows: list[dict[str, Any]]) -> None:
        writer.upsert(pa.Table.from_pylist(rows, SCHEMA))
        model.update((one["id"], one) for one in rows)

    with table.writer() as writer:
        write(writer, [row(n, n, "none" if n < 600 or n % 20 == 0 else str(n)) for n in range(ROWS)])
    table.maintenance.merge()
    with table.writer() as writer:
        write(writer, [row(n, -n, "none" if n % 3 == 1 else str(-n)) for n in range(600)])
        writer.delete([n for n in range(600, ROWS) if n % 20 == 0])
        writer.flush()
        write(writer, [row(n, n + ROWS, str(n)) for n in range(600) if n % 3 == 1])
    for n in range(600, ROWS, 20):
        del model[n]
    default_context().cache.clear()
    return table


TOTAL: dict[str, Condition] = {
    "value < 0": lambda one: one["value"] < 0,
    "value BETWEEN 700 AND 720 OR id IN (1, 2, 3, 4)": lambda one: (
        700 <= one["value"] <= 720 or one["id"] in (1, 2, 3, 4)
    ),
    "text LIKE '1%' AND value > 650": lambda one: one["text"].startswith("1") and one["value"] > 650,
    "day = '1970-01-08' AND value >= 0": lambda one: one["day"] == 7 and one["value"] >= 0,
    "value > 100000": lambda one: False,
}
OTHERS: dict[str, Condition] = {
    "CAST(text AS BIGINT) >= 1500": lambda one: int(one["text"]) >= 1500,
    "abs(value) < 50": lambda one: abs(one["value"]) < 50,
}


def wanted(model: dict[int, dict[str, Any]], condition: str | None) -> list[int]:
    holds = None if condition is None else {**TOTAL, **OTHERS}[condition]
    return sorted(number for number, one in model.items() if holds is None or holds(one))


@pytest.mark.covering
@pytest.mark.parametrize("condition", [None, *TOTAL, *OTHERS])
@pytest.mark.parametrize("columns", [["id"], ["text", "id"], None])
def test_a_scan_finds_the_live_rows(
    table: weir.Table, model: dict[int, dict[str, Any]], condition: str | None, columns: list[str] | None
) -> None:
    expected = wanted(model, condition)
    scan = table.scan(columns, filter=condition)
    found = scan.to_table()
    assert sorted(found.column("id").to_pylist()) == expected
    assert found.schema.names == (columns or SCHEMA.names)
    for one in found.to_pylist():
        assert all(str(model[one["id"]][name]) == str(one[name]) for name in one if name != "day")
    streamed = pa.Table.from_batches(table.scan(columns, filter=condition).to_reader(), found.schema)
    assert sorted(streamed.column("id").to_pylist()) == expected
    assert table.scan(filter=condition).count() == len(expected)


@pytest.mark.covering
@pytest.mark.parametrize("condition", [None, *TOTAL, *OTHERS])
@pytest.mark.parametrize("limit", [0, 1, 20, 700, 2_000, 10_000])
def test_a_limit_is_of_live_rows(
    table: weir.Table, model: dict[int, dict[str, Any]], condition: str | None, limit: int
) -> None:
    expected = wanted(model, condition)
    found = table.scan(["id"], filter=condition, limit=limit).to_table().column("id").to_pylist()
    assert len(found) == len(set(found)) == min(limit, len(expected))
    assert set(found) <= set(expected)


@pytest.mark.covering
@pytest.mark.parametrize("condition", [None, *TOTAL, *OTHERS])
def test_rows_are_chosen_among_the_live_ones(
    table: weir.Table, model: dict[int, dict[str, Any]], condition: str | None
) -> None:
    seen: list[int] = []

    def choose(first: pa.Table) -> np.ndarray[Any, np.dtype[np.int64]]:
        seen.extend(first.column("id").to_pylist())
        return np.arange(first.num_rows)

    found = table.scan(filter=condition).chosen(["id"], choose)
    assert sorted(seen) == wanted(model, condition)
    assert found.column("id").to_pylist() == seen
    assert [one["text"] for one in found.to_pylist()] == [model[number]["text"] for number in seen]


@pytest.mark.covering
@pytest.mark.parametrize("first", [None, *TOTAL, *OTHERS])
def test_what_is_kept_of_one_scan_is_right_for_others(
    table: weir.Table, model: dict[int, dict[str, Any]], first: str | None
) -> None:
    default_context().cache.clear()
    for condition in (first, None, *TOTAL, first, *OTHERS):
        found = table.scan(["id", "value", "text"], filter=condition).to_table().column("id").to_pylist()
        assert sorted(found) == wanted(model, condition)
        found = table.scan(["id"], filter=condition).to_table().column("id").to_pylist()
        assert sorted(found) == wanted(model, condition)


@pytest.fixture
def lists(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return whether each scan that was begun has passed a block list to the library."""
    asked: list[bool] = []
    scanner = lance.LanceDataset.scanner

    def seen(dataset: lance.LanceDataset, *given: Any, **named: Any) -> Any:
        if named.get("limit") != 0:
            asked.append(named.get("row_addr_blocklist") is not None)
        return scanner(dataset, *given, **named)

    monkeypatch.setattr(lance.LanceDataset, "scanner", seen)
    return asked


def test_the_library_is_told_of_dead_rows_where_a_filter_may_fail_on_them(
    table: weir.Table, lists: list[bool]
) -> None:
    for condition in TOTAL:
        table.scan(["id"], filter=condition).to_table()
    assert lists
    assert not any(lists)
    lists.clear()
    for condition in OTHERS:
        table.scan(["id"], filter=condition).to_table()
    # The base table and a generation have dead rows.
    assert sum(lists) == 2 * len(OTHERS)


def test_where_most_rows_are_dead_they_are_not_read(tmp_path: Path, lists: list[bool]) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False, maintenance="off")
    with table.writer() as writer:
        writer.upsert(pa.Table.from_pylist([row(n, n, "") for n in range(1_000)], SCHEMA))
    table.maintenance.merge()
    with table.writer(flush_on_close=False) as writer:
        writer.upsert(pa.Table.from_pylist([row(n, -n, "") for n in range(900)], SCHEMA))
    lists.clear()
    found = table.scan(["id"], filter="value > 0").to_table()
    assert sorted(found.column("id").to_pylist()) == list(range(900, 1_000))
    assert lists == [True]
