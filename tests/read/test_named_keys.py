"""Filters that name keys are answered by look-ups, with what a scan of every source would find."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import weir

_KEYS: dict[str, tuple[pa.DataType, list[Any], list[str]]] = {
    "int": (pa.int32(), list(range(40)), [str(n) for n in range(45)]),
    "text": (pa.string(), [f"it's {n}" for n in range(40)], [f"'it''s {n}'" for n in range(45)]),
    "date": (
        pa.date32(),
        [date(2026, 1, 1) + timedelta(n) for n in range(40)],
        [f"'{date(2026, 1, 1) + timedelta(n)}'" for n in range(45)],
    ),
    "instant": (
        pa.timestamp("us", "UTC"),
        [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=n) for n in range(40)],
        [f"'2026-01-01 00:00:{n:02}Z'" for n in range(45)],
    ),
    "decimal": (pa.decimal128(8, 2), [Decimal(n) / 4 for n in range(40)], [str(n / 4) for n in range(45)]),
}


def _looked_up(scan: weir.Scan) -> bool:
    return "  look-up of " in scan.explain()


def _rows(scan: weir.Scan) -> list[dict[str, Any]]:
    return sorted(scan.to_pylist(), key=str)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("kind", _KEYS)
def test_the_same_rows_as_by_reading_everything(tmp_path: Path, kind: str) -> None:
    key_type, keys, texts = _KEYS[kind]
    schema = pa.schema([pa.field("k", key_type, nullable=False), ("n", pa.int64())])
    table = weir.create(
        tmp_path / "t", schema, primary_key="k", shard_by=weir.bucket("k", 3), fsync=False, maintenance="off"
    )

    def write(chosen: list[Any], n: int) -> None:
        with table.writer() as writer:
            writer.upsert(pa.table({"k": pa.array(chosen, key_type), "n": [n] * len(chosen)}, schema))

    write(keys[:30], 1)
    table.maintenance.merge()
    write(keys[20:], 2)
    with table.writer(flush_on_close=False) as writer:
        writer.delete(pa.table({"k": pa.array(keys[::7], key_type)}))
        writer.upsert(pa.table({"k": pa.array(keys[5:9], key_type), "n": [3] * 4}, schema))
    filters = [
        f"k = {texts[5]}",
        f"{texts[20]} = k",
        f"k IN ({', '.join(texts[3:12])}) AND n > 1",
        f"k IN ({texts[1]}, {texts[44]}) AND k <> {texts[1]}",
        f"k IN ({texts[1]}, {texts[2]}) AND k IN ({texts[2]}, {texts[3]})",
        f"k BETWEEN {texts[1]} AND {texts[9]} AND k IN ({', '.join(texts)})",
        f"k = {texts[6]} AND n IS NULL",
        f"(k = {texts[8]} OR k = {texts[9]}) AND NOT n = 2",
    ]
    for condition in filters:
        asked = table.scan(filter=condition)
        everything = table.scan(filter=f"({condition}) OR (n <> n)")
        assert _looked_up(asked), asked.explain()
        assert not _looked_up(everything)
        assert _rows(asked) == _rows(everything), condition
        assert asked.count() == everything.count()
        narrow = table.scan(["n"], filter=f"({condition}) OR (n <> n)")
        assert _rows(table.scan(["n"], filter=condition)) == _rows(narrow)
        assert len(table.scan(filter=condition, limit=1).to_pylist()) == min(1, everything.count())
    assert _rows(table.scan(filter=filters[2])), "nothing was compared"


def test_what_names_no_keys_or_too_many_is_read(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    table.upsert([{"id": key, "n": key} for key in range(1000)])
    for condition in (
        "id > 3",
        "id = 3 OR n = 4",
        "n = 3",
        "id <> 3",
        f"id IN ({', '.join(map(str, range(600)))})",
    ):
        assert not _looked_up(table.scan(filter=condition)), condition
    assert table.scan(filter="id = 3 AND n = 4").to_pylist() == []
    assert table.scan(filter="id = 3 AND id = 4").count() == 0


def test_keys_of_several_columns(tmp_path: Path) -> None:
    schema = pa.schema(
        [pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.string(), nullable=False)]
    )
    table = weir.create(tmp_path / "t", schema, primary_key=["a", "b"], fsync=False)
    table.upsert([{"a": a, "b": b} for a in range(10) for b in "xyz"])
    found = table.scan(filter="a IN (3, 4, 99) AND b IN ('x', 'z', 'q')")
    assert "look-up of 9 keys" in found.explain()
    assert _rows(found) == [{"a": a, "b": b} for a in (3, 4) for b in "xz"]
    assert not _looked_up(table.scan(filter="a = 3"))


def test_a_state_of_before_and_expired_rows(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("at", pa.timestamp("us"))])
    table = weir.create(
        tmp_path / "t",
        schema,
        primary_key="id",
        fsync=False,
        expire_after=timedelta(hours=1),
        expire_by="at",
        maintenance="off",
    )
    now = datetime.now(UTC).replace(tzinfo=None)
    table.upsert([{"id": 1, "at": now}, {"id": 2, "at": now - timedelta(hours=2)}])
    token = table.snapshot()
    table.delete([1])
    assert table.scan(filter="id IN (1, 2)").to_pylist() == []
    before = table.scan(filter="id IN (1, 2)", at=token)
    assert _looked_up(before)
    assert [row["id"] for row in before.to_pylist()] == [1]
