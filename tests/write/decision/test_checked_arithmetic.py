"""Whole numbers and decimals of an update or a condition have no other value than in mathematics."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import weir
from weir.errors import FilterError
from weir.write.decision.row_expression import RowExpression

LAST = 2**63 - 1
SCHEMA = pa.schema(
    [
        ("tiny", pa.int8()),
        ("n", pa.int64()),
        ("u", pa.uint64()),
        ("d", pa.decimal128(38, 0)),
        ("text", pa.string()),
    ]
)
ROWS = pa.table(
    {
        "tiny": [127, 1, None],
        "n": [LAST, 5, None],
        "u": [2**64 - 1, 1, 2],
        "d": [Decimal(10**38 - 1), None, Decimal(1)],
        "text": ["a", None, "b"],
    },
    schema=SCHEMA,
)


def value(text: str) -> list[object]:
    made = RowExpression.of(text, SCHEMA, has_new=False, where="set")
    return list(made.evaluate(ROWS).to_pylist())


@pytest.mark.parametrize(
    "text",
    [
        "n + 1",
        "n - -1",
        "n * 2",
        "-(-n - 1)",
        "tiny + tiny",
        "tiny * cast(2 AS tinyint)",
        "u + u",
        "u - u - (u - u) + (u * u)",
        "d + 1",
        "abs(n) + 1",
        "upper(cast(n + 1 AS text))",
        "CASE WHEN n > 5 THEN n + 1 ELSE n END",
        "CASE tiny WHEN 127 THEN n + 1 ELSE n END",
        "CASE WHEN n > 5 THEN 1 WHEN n + 9223372036854775803 > 0 THEN 2 END",
        "coalesce(nullif(n, 9223372036854775807), n + 1)",
        "n > 5 AND n + 1 > 0",
        "n > 5 OR n + 9223372036854775807 > 0",
    ],
)
def test_what_would_wrap_around_is_refused(text: str) -> None:
    with pytest.raises(FilterError) as raised:
        value(text)
    assert raised.value.where == "set"
    assert text in str(raised.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n - 1", [LAST - 1, 4, None]),
        ("-n", [-LAST, -5, None]),
        ("n + 0", [LAST, 5, None]),
        ("tiny + 1", [128, 2, None]),
        ("u + 1", [2**64, 2, 3]),
        ("u - u", [0, 0, 0]),
        ("d - 1", [10**38 - 2, None, 0]),
        ("n % 5 + 1", [LAST % 5 + 1, 1, None]),
        ("n + 1.0", [float(LAST), 6.0, None]),
        ("CASE WHEN n < 6 THEN n + 1 ELSE n END", [LAST, 6, None]),
        ("CASE tiny WHEN 127 THEN n ELSE n + 1 END", [LAST, 6, None]),
        ("coalesce(n, n + 1)", [LAST, 5, None]),
        ("n < 6 AND n + 1 > 0", [False, True, None]),
        ("n > 5 OR n + 1 > 0", [True, True, None]),
        ("length(text) + 1", [2, None, 2]),
        (" + ".join(["n * 0"] * 90), [0, 0, None]),
    ],
)
def test_what_is_guarded_or_has_room_is_as_before(text: str, expected: list[object]) -> None:
    assert value(text) == expected


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64()), ("text", pa.string())])
    made = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    made.upsert([{"id": key, "v": 40_000 - key, "text": "a"} for key in range(40_000)])
    return made


def test_an_update_changes_all_rows_or_none(table: weir.Table) -> None:
    """The row that has no value is in the last of several parts."""
    before = table.scan().to_table().sort_by("id")
    with pytest.raises(FilterError, match="out of range for its type, int64"):
        table.update("true", {"v": "CASE WHEN v = 1 THEN v + 9223372036854775807 ELSE v + 1 END"})
    with pytest.raises(FilterError, match=r"[Dd]ivide by zero"):
        table.update("true", {"v": "7 / (v - 1)"})
    assert table.scan().to_table().sort_by("id") == before
    # As many as the limit takes are looked at, and no more.
    assert table.update("v > 1", {"v": "v + 1"}, limit=10).rows == 10


def test_a_condition_is_not_true_by_accident(table: weir.Table) -> None:
    with pytest.raises(FilterError, match="out of range"):
        table.upsert([{"id": 1, "v": 0}], condition="v + 9223372036854775807 < new.v")
    assert table.get([1]).column("v").to_pylist() == [39_999]
