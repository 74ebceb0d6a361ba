"""Lookups of keys whose rows are in many sources, compared with a dict, and what is read for them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import weir
from weir.base.key_pages import KeyPages
from weir.errors import CorruptionError
from weir.lsm.generation import Generation

KEYS = 400

Model = dict[tuple[Any, ...], dict[str, Any]]

_KEYS: dict[str, dict[str, pa.DataType]] = {
    "one integer": {"id": pa.int32()},
    "one text": {"id": pa.string()},
    "two columns": {"part": pa.string(), "id": pa.int64()},
}


def _row(kinds: dict[str, pa.DataType], number: int, value: int) -> dict[str, Any]:
    parts = {"id": number, "part": f"part {number % 3}"}
    key = {
        name: f"key {parts[name]}" if name == "id" and pa.types.is_string(kind) else parts[name]
        for name, kind in kinds.items()
    }
    return {"value": value, **key, "text": None if value % 7 == 0 else f"text {value}"}


@pytest.fixture(params=list(_KEYS))
def written(
    request: pytest.FixtureRequest, tmp_path: Path
) -> tuple[weir.Table, Model, list[tuple[Any, ...]]]:
    """A table with a base of two merges, three generations and rows in the log; what is in it; all keys."""
    kinds = _KEYS[request.param]
    # The key is neither first nor last, nor are its columns in their order.
    fields = [
        pa.field("value", pa.int64()),
        *(pa.field(name, kind, nullable=False) for name, kind in reversed(kinds.items())),
        pa.field("text", pa.string()),
    ]
    table = weir.create(str(tmp_path / "t"), pa.schema(fields), primary_key=list(kinds), fsync=False)
    generator = np.random.default_rng(3)
    model: Model = {}
    with table.writer(flush_on_close=False) as writer:
        for round_, step in enumerate(["merge", "merge", "flush", "flush", "flush", "log", "log"]):
            numbers = generator.choice(KEYS, KEYS // 3, replace=False).tolist()
            rows = [_row(kinds, number, 1_000 * round_ + number) for number in numbers]
            writer.upsert(rows)
            model.update((tuple(row[name] for name in kinds), row) for row in rows)
            dead = [tuple(row[name] for name in kinds) for row in rows[:20]]
            writer.delete(dead)
            for key in dead:
                del model[key]
            if step != "log":
                writer.flush()
            if step == "merge":
                table.maintenance.merge()
    every = [tuple(_row(kinds, number, 0)[name] for name in kinds) for number in range(KEYS)]
    # Opened anew, because who has followed the log goes on seeing it in place of the generations.
    return weir.open(table.uri), model, every


@pytest.mark.one_in(2)
def test_finds_the_newest_row_of_every_key_in_the_order_asked(
    written: tuple[weir.Table, Model, list[tuple[Any, ...]]],
) -> None:
    table, model, every = written
    names = table.schema.names
    key = list(table.primary_key)
    generator = np.random.default_rng(4)
    for columns in (None, names[::-1], key, [key[0], "text"], ["value"], ["text", *key]):
        for count in (KEYS, 30, 2, 1, 1, 1):
            wanted = [every[at] for at in generator.choice(KEYS, count, replace=False)]
            found = table.get(wanted, columns=columns)
            shown = columns or names
            expected = [{name: model[one][name] for name in shown} for one in wanted if one in model]
            assert found.to_pylist() == expected
            assert found.schema.equals(pa.schema([table.schema.field(name) for name in shown]))
    assert len(model) < KEYS


@pytest.mark.one_in(2)
def test_the_key_is_not_read(
    written: tuple[weir.Table, Model, list[tuple[Any, ...]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, model, every = written
    read: set[str] = set()
    of_generation, of_base = Generation.take, KeyPages.take

    def generation_take(self: Generation, rows: Any, columns: list[str]) -> pa.Table:
        read.update(columns)
        return of_generation(self, rows, columns)

    def base_take(self: KeyPages, addresses: Any, columns: list[str]) -> pa.Table:
        read.update(columns)
        return of_base(self, addresses, columns)

    monkeypatch.setattr(Generation, "take", generation_take)
    monkeypatch.setattr(KeyPages, "take", base_take)
    assert table.get(every).num_rows == len(model)
    assert read - {"_rowid"} == {"value", "text"}
    read.clear()
    assert table.get(every, columns=list(table.primary_key)).num_rows == len(model)
    assert read <= {"_rowid"}


def test_a_key_that_plain_lance_has_appended_once_more_is_named(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
    table = weir.create(tmp_path, schema, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert([{"id": 1, "n": 1}, {"id": 2, "n": 2}])
    table.maintenance.merge()
    again = pa.table({"id": [1], "n": [5]}).cast(lance.dataset(str(tmp_path)).schema)
    lance.write_dataset(again, str(tmp_path), mode="append")
    reads: list[Callable[[], object]] = [
        lambda: table.get([1]),
        lambda: table.get([3, 1, 2]),
        lambda: table.scan(filter="id = 1").to_table(),
    ]
    for read in reads:
        with pytest.raises(CorruptionError, match=r"more than one row of the key 1 .*[Dd]elete the key"):
            read()
    assert table.get([2, 3]).to_pylist() == [{"id": 2, "n": 2}]
    assert sorted(row["n"] for row in table.scan().to_table().to_pylist()) == [1, 2, 5]
    (finding,) = table.maintenance.verify().errors
    assert "3 rows have 2 keys" in finding.message
    # What the error says to do.
    with table.writer() as writer:
        writer.delete([1])
    table.maintenance.merge()
    with table.writer() as writer:
        writer.upsert([{"id": 1, "n": 6}])
    table.maintenance.merge()
    assert table.get([1, 2]).to_pylist() == [{"id": 1, "n": 6}, {"id": 2, "n": 2}]
    assert table.maintenance.verify().errors == ()


def test_a_look_up_of_a_missing_key_makes_few_calls(tmp_path: Path) -> None:
    """They are what it takes its time for: it finds what it asks in memory."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
    table = weir.create(tmp_path, schema, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert([{"id": 2 * number, "n": 1} for number in range(1_000)])
    table.maintenance.merge()
    with table.writer() as writer:
        writer.upsert([{"id": 2 * number, "n": 2} for number in range(100)])
    for _ in range(40):
        assert not table.get([77], consistency="bounded(60000)").num_rows
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        table.get([77], consistency="bounded(60000)")
    finally:
        sys.setprofile(None)
    assert calls < 150
