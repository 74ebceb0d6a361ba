"""Literals of filters are values of the columns that they are compared with: the same in every call."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weir
from weir.errors import FilterError
from weir.lsm.filters import check_filter, matching_rows
from weir.lsm.fitted_filter import fitted_filter

BERLIN = ZoneInfo("Europe/Berlin")
DAYS = [date(2025, 12, 31), date(2026, 1, 1), date(2026, 1, 2), None, date(1900, 2, 28), date(2999, 1, 1)]
TIMES = [None if day is None else datetime(day.year, day.month, day.day, 0, 0, 1) for day in DAYS]
PRICES = [
    None if text is None else Decimal(text) for text in ("2.50", "2.55", "-1.00", None, "0.01", "9999.99")
]
CLOCKS = [time(0, 0, 1), time(1), time(23, 59, 59), None, time(12, 30), time(0)]
BYTES = [b"a", b"", b"it's", None, "\u00e9".encode(), b"zz"]
NUMBERS = [1, 2, -(2**31), None, 2**31 - 1, 0]
ROWS = pa.table(
    {
        "day": pa.array(DAYS, pa.date32()),
        "day64": pa.array(DAYS, pa.date64()),
        "time": pa.array(TIMES, pa.timestamp("s")),
        "utc": pa.array(
            [None if one is None else one.replace(tzinfo=UTC) for one in TIMES], pa.timestamp("us", "UTC")
        ),
        "berlin": pa.array(
            [None if one is None else one.replace(tzinfo=BERLIN) for one in TIMES],
            pa.timestamp("ms", "Europe/Berlin"),
        ),
        "price": pa.array(PRICES, pa.decimal128(6, 2)),
        "n": pa.array(NUMBERS, pa.int32()),
        "big": pa.array([None if one is None else one * 2**32 for one in NUMBERS], pa.int64()),
        "clock": pa.array(CLOCKS, pa.time64("us")),
        "clock_ns": pa.array(CLOCKS, pa.time64("ns")),
        "clock_s": pa.array(CLOCKS, pa.time32("s")),
        "clock_ms": pa.array(CLOCKS, pa.time32("ms")),
        "raw": pa.array(BYTES, pa.binary()),
        "raw_large": pa.array(BYTES, pa.large_binary()),
        "s": pa.array(["2026-01-01", "x", "", None, "2", "it's"]),
        "inner": pa.array(
            [None if one is None else {"day": one} for one in DAYS], pa.struct([("day", pa.date32())])
        ),
    }
)
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
}
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>", "!=": "!="}


def matching(text: str) -> list[int]:
    check_filter(ROWS.schema, text)
    return [int(one) for one in matching_rows(ROWS, text)]


def expected(column: str, holds: Callable[[Any], bool]) -> list[int]:
    values = ROWS.column(column).to_pylist()
    return [at for at, value in enumerate(values) if value is not None and holds(value)]


def literals_by_column() -> dict[str, st.SearchStrategy[tuple[str, Any]]]:
    """Return literals of each column, and the values they are."""
    days = st.sampled_from([day for day in DAYS if day] + [date(2026, 1, 3), date(9999, 12, 31)])
    times = st.builds(
        lambda day, us: datetime(day.year, day.month, day.day) + timedelta(microseconds=us),
        days.filter(lambda day: day.year < 9999),
        st.sampled_from([0, 1, 10**6, 10**6 + 1, 3_600_000_000]),
    )
    numbers = st.one_of(
        st.decimals(-3, 3, places=1),
        st.decimals(-3, 3, places=4),
        st.sampled_from(
            [Decimal(one) for one in ("1e9", "-99999.5", "5000000000", "2147483647", "-2147483648")]
        ),
    )
    clocks = st.builds(
        lambda clock, us: clock.replace(microsecond=us),
        st.sampled_from([clock for clock in CLOCKS if clock] + [time(12, 29, 59)]),
        st.sampled_from([0, 500_000, 1]),
    )
    texts = st.sampled_from([one.decode() for one in BYTES if one is not None] + ["b", "it"])
    east = times.map(
        lambda one: (f"'{one.isoformat()}+05:30'", one.replace(tzinfo=UTC) - timedelta(hours=5.5))
    )
    any_number = numbers.map(lambda one: (f"{one:f}", one)) | numbers.map(lambda one: (f"'{one:f}'", one))
    of_clock = clocks.map(lambda clock: (f"'{clock}'", clock))
    of_bytes = texts.map(lambda text: ("'{}'".format(text.replace("'", "''")), text.encode()))
    return {
        "day": days.map(lambda day: (f"'{day}'", day)),
        "time": times.map(lambda one: (f"'{one.isoformat(' ')}'", one)),
        "utc": times.map(lambda one: (f"'{one.isoformat()}'", one.replace(tzinfo=UTC))) | east,
        "berlin": times.map(lambda one: (f"'{one.isoformat()}'", one.replace(tzinfo=BERLIN))) | east,
        **dict.fromkeys(("price", "n", "big"), any_number),
        **dict.fromkeys(("clock", "clock_ns", "clock_s", "clock_ms"), of_clock),
        **dict.fromkeys(("raw", "raw_large"), of_bytes),
    }


LITERALS = literals_by_column()


def literals(columns: Sequence[str] = tuple(LITERALS)) -> st.SearchStrategy[tuple[str, str, Any]]:
    """Return one of the columns, a literal, and the value it is."""
    return st.sampled_from(columns).flatmap(lambda column: LITERALS[column].map(lambda one: (column, *one)))


@given(literals(), st.sampled_from(sorted(OPERATORS)), st.booleans())
def test_comparisons_mean_what_they_say(one: tuple[str, str, Any], sign: str, negated: bool) -> None:
    column, literal, value = one
    rows = expected(column, lambda held: OPERATORS[sign](held, value) is not negated)
    wrapped = "NOT {}" if negated else "{}"
    assert matching(wrapped.format(f"{column} {sign} {literal}")) == rows
    assert matching(wrapped.format(f"{literal} {MIRRORED[sign]} `{column}`")) == rows
    assert matching(f"s = 'no' OR ({wrapped.format(f'{column} {sign} {literal}')})") == rows


@given(literals(), st.data(), st.booleans())
def test_ranges_and_lists_mean_what_they_say(
    one: tuple[str, str, Any], data: st.DataObject, negated: bool
) -> None:
    column, literal, value = one
    _, other_literal, other = data.draw(literals([column]))
    word = "NOT " if negated else ""
    assert matching(f"{column} {word}BETWEEN {literal} AND {other_literal}") == expected(
        column, lambda held: (value <= held <= other) is not negated
    )
    assert matching(f"{column} {word}IN ({literal}, {other_literal})") == expected(
        column, lambda held: (held in (value, other)) is not negated
    )


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_nanoseconds_are_not_dropped(zone: str | None) -> None:
    at = 1_767_225_600 * 10**9
    rows = pa.table({"t": pa.array([at, at + 1, at + 999, at + 1000]).cast(pa.timestamp("ns", zone))})
    first, last = "'2026-01-01 00:00:00.000000001'", "'2026-01-01 00:00:00.000000999'"
    for text, expected in {
        f"t = {first}": [1],
        f"t < {last}": [0, 1],
        f"t BETWEEN {first} AND {last}": [1, 2],
        f"t NOT IN ({first}, '2026-01-01')": [2, 3],
    }.items():
        assert matching_rows(rows, text).tolist() == expected, text


def test_a_time_of_microseconds_is_so_in_every_source(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("t", pa.timestamp("ns"))])
    table = weir.create(tmp_path / "t", schema, primary_key="id", maintenance="off")
    with table.writer() as writer:
        writer.upsert([{"id": 1, "t": datetime(2026, 1, 1)}])
        for step in (writer.flush, table.maintenance.merge, None):
            # To Lance, whose meaning a filter has, a typed literal has no nanoseconds.
            found = weir.open(table.uri).scan(filter="t = timestamp '2026-01-01 00:00:00.000000001'")
            assert found.count() == found.to_table().num_rows == 1
            if step is not None:
                step()


@given(literals(), st.booleans())
def test_null_in_a_list_leaves_the_rows_that_equal_another(one: tuple[str, str, Any], first: bool) -> None:
    column, literal, value = one
    listed = f"NULL, {literal}" if first else f"{literal}, null"
    rows = expected(column, lambda held: held == value)
    assert matching(f"{column} IN ({listed})") == rows
    assert matching(f"({column} IN ({listed})) IS NOT TRUE") == [
        at for at in range(len(ROWS)) if at not in rows
    ]
    # Whether the others are none of what is listed cannot be known.
    assert matching(f"{column} NOT IN ({listed})") == []
    assert matching(f"{column} IN (NULL)") == []


def test_what_is_no_comparison_with_a_column_stays() -> None:
    for text in (
        "s = '2026-01-01'",
        "s >= '2' AND s <> 'day >= ''2026-01-01'''",
        "day >= date '2026-01-01' -- day >= '2026-01-01'",
        "cast(day AS string) >= '2026'",
        "n + 1 > 2",
        "n = 2",
        "n IN (1, 2)",
        "n BETWEEN 1 AND 2",
        "day IS NULL",
        "day >= '2026-01-01",
        "",
    ):
        assert fitted_filter(text, ROWS.schema) == text
    assert fitted_filter("price = 2.5 + 1", ROWS.schema) == "price = 2.5 + 1"
    assert matching("inner.day = '2026-01-01'") == matching("`inner`.`day` = '2026-01-01'") == [1]
    assert matching("day64 >= '2026-01-02'") == [2, 5]
    assert matching("big = -9223372036854775808") == [2]
    assert matching("big > -9223372036854775808.5") == [0, 1, 2, 4, 5]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("day >= 'soon'", "'soon' is not a date.*column day.*'2026-01-31'"),
        ("day >= 20454", "20454 is not a date"),
        ("day >= '2026-02-30'", "not a date"),
        ("time >= '2026-01-01T00:00:00Z'", "has a time zone, but the column has none"),
        ("time >= 'noon'", "'noon' is not a time"),
        ("berlin >= '2026-03-29 02:30:00'", "not a time"),
        ("clock > '25:00'", "'25:00' is not a time of day.*'12:00:00'"),
        ("clock_s IN ('12:30', 5)", "5 is not a time of day"),
        ("price > 'much'", "'much' is not a number"),
        ("n IN (1, 'two')", "'two' is not a number"),
        ("n = 'nan'", "not a number"),
    ],
)
def test_a_literal_that_is_no_value_of_the_type_is_named(text: str, said: str) -> None:
    with pytest.raises(FilterError, match=said):
        check_filter(ROWS.schema, text)


def test_every_call_takes_them(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("day", pa.date32()),
            ("price", pa.decimal128(6, 2)),
            ("at", pa.timestamp("us", "UTC")),
            ("note", pa.string()),
            ("v", pa.list_(pa.float32(), 2)),
        ]
    )
    table = weir.create(tmp_path / "t", schema, primary_key="id", shard_by=weir.bucket("id", 2), fsync=False)

    def rows(*ids: int) -> list[dict[str, Any]]:
        return [
            {
                "id": one,
                "day": date(2026, 1, 1) + timedelta(days=one),
                "price": Decimal(one),
                "at": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=one),
                "note": "word",
                "v": [one, 0.0],
            }
            for one in ids
        ]

    with table.writer(flush_on_close=False) as writer:
        writer.upsert(rows(*range(30)))
        writer.flush()
        table.maintenance.merge()
        table.indexes.create("day", "BTREE")
        table.indexes.create("at", "BTREE")
        table.indexes.create("note", "INVERTED")
        writer.upsert(rows(*range(30, 60)))
        writer.flush()
        writer.upsert(rows(*range(60, 90)))
    for text, wanted in (
        ("day BETWEEN '2026-01-21' AND '2026-03-12' AND price > 24.5", range(25, 71)),
        ("price IN ('7.00', 37, 67.0, 0.005)", (7, 37, 67)),
        ("at >= '2026-03-01' AND at < '2026-03-02T12:00:00+02:00'", (59, 60)),
    ):
        ids = sorted(wanted)
        assert sorted(table.scan(["id"], filter=text).to_table()["id"].to_pylist()) == ids
        assert table.scan(filter=text).count() == len(ids)
        assert sorted(row["id"] for row in table.sql(f"SELECT id FROM t WHERE {text}").to_pylist()) == ids
        found = table.search([0.0, 0.0], k=90, filter=text, columns=["id"]).to_table()
        assert sorted(found["id"].to_pylist()) == ids
        found = table.search_text("word", k=90, filter=text, columns=["id"]).to_table()
        assert sorted(found["id"].to_pylist()) == ids
    assert table.update("day >= '2026-03-30'", {"note": "'late'"}).rows == 2
    assert table.delete(where="day < '2026-01-11' OR price = 70.00").rows == 11
    left = {row["id"]: row["note"] for row in table.scan(["id", "note"]).to_pylist()}
    assert left == {one: "late" if one > 87 else "word" for one in range(10, 90) if one != 70}
    with pytest.raises(FilterError, match="not a date"):
        table.delete(where="day < 'soon'")


def test_rows_that_are_only_added_are_deleted_so_too(tmp_path: Path) -> None:
    rows = [{"day": date(2026, 1, one), "n": one} for one in range(1, 11)]
    table = weir.create(tmp_path / "t", rows, primary_key=None, fsync=False)
    assert table.delete(where="day >= '2026-01-04' AND n <> 5.5").rows == 7
    assert table.scan().count() == 3


def test_shards_and_files_are_left_out_as_with_a_typed_literal(tmp_path: Path) -> None:
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), pa.field("day", pa.date32(), nullable=False)]
    )
    table = weir.create(
        tmp_path / "t", schema, primary_key="id", shard_by=weir.identity("day", immutable=True), fsync=False
    )
    with table.writer() as writer:
        writer.upsert([{"id": one, "day": date(2026, 1, one)} for one in range(1, 6)])
    plans = [table.scan(filter=f"day = {text}").explain() for text in ("date '2026-01-03'", "'2026-01-03'")]
    assert plans[0] == plans[1]
    assert "pruned" in plans[0] or "left out" in plans[0]
