from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from weir.sharding.predicate import ANYTHING, NEVER, AllOf, AnyOf, Place, Predicate, Where, read_filter
from weir.sharding.sql import session
from weir.sharding.value_set import NOT_NULL, ONLY_NULL, ValueSet

SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("Name", pa.string()),
        ("ts", pa.timestamp("us")),
        ("utc", pa.timestamp("us", "UTC")),
        ("berlin", pa.timestamp("us", "Europe/Berlin")),
        ("d", pa.date32()),
        ("price", pa.decimal128(10, 2)),
        ("f", pa.float32()),
        ("b", pa.bool_()),
        ("raw", pa.binary()),
    ]
)
YEAR_2024 = 1_704_067_200_000_000
DAY = 86_400_000_000


def only(column: str, *values: int | bytes | float | Decimal, null: bool = False) -> Where:
    return Where(Place(column), ValueSet.of(values, null=null))


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("id = 5", only("id", 5)),
        ("5 = id", only("id", 5)),
        ("id IN (1, 2, 3)", only("id", 1, 2, 3)),
        ("id = 1 OR id = 2", only("id", 1, 2)),
        ("id < 5", Where(Place("id"), ValueSet(upper=4))),
        ("5 < id", Where(Place("id"), ValueSet(lower=6))),
        ("id <= 5", Where(Place("id"), ValueSet(upper=5))),
        ("NOT id > 5", Where(Place("id"), ValueSet(upper=5))),
        ("id <> 5", Where(Place("id"), ValueSet(excluded=frozenset([5])))),
        ("id > 1.5", Where(Place("id"), ValueSet(lower=2))),
        ("id < 99999999999", Where(Place("id"), ValueSet(upper=99999999998))),
        ("id IS NULL", Where(Place("id"), ONLY_NULL)),
        ("id IS NOT NULL", Where(Place("id"), NOT_NULL)),
        ("id IS NOT DISTINCT FROM 5", only("id", 5)),
        ("id = 1 OR Name = 'a'", AnyOf((only("id", 1), only("Name", b"a")))),
        ("CAST(id AS BIGINT) = 5", only("id", 5)),
        ("`Name` = 'é'", only("Name", "é".encode())),
        ("Name > 'a'", Where(Place("Name"), ValueSet(lower=b"a", excluded=frozenset([b"a"])))),
        ("Name LIKE 'ab%'", Where(Place("Name"), ValueSet(lower=b"ab", upper=b"ac"))),
        ("starts_with(Name, 'ab')", Where(Place("Name"), ValueSet(lower=b"ab", upper=b"ac"))),
        ("raw = X'01ff'", only("raw", b"\x01\xff")),
        ("price = 1.5", only("price", Decimal("1.50"))),
        ("f = 1.5", only("f", 1.5)),
        ("f < 1.5", Where(Place("f"), ValueSet(upper=1.5))),
        ("b", only("b", 1)),
        ("NOT b", only("b", 0)),
        ("b IS NOT TRUE", only("b", 0, null=True)),
        ("b IS NOT FALSE", only("b", 1, null=True)),
        ("ts >= '2024-01-01'", Where(Place("ts"), ValueSet(lower=YEAR_2024))),
        ("utc >= '2024-01-01T02:00:00+02:00'", Where(Place("utc"), ValueSet(lower=YEAR_2024))),
        ("d = DATE '2024-01-01'", only("d", 19_723)),
        ("d > TIMESTAMP '2024-01-01 05:00:00'", Where(Place("d"), ValueSet(lower=19_724))),
        ("d = TIMESTAMP '2024-01-01 05:00:00'", Where(Place("d"), ValueSet.of([]))),
        (
            "CAST(ts AS DATE) = DATE '2024-01-01'",
            Where(Place("ts"), ValueSet(lower=YEAR_2024, upper=YEAR_2024 + DAY - 1)),
        ),
        ("date_part('month', ts) = 3", Where(Place("ts", "month"), ValueSet.of([3]))),
        ("hour_of(ts) = 3", None),
        ("true", ANYTHING),
        ("false", NEVER),
        ("id = 1 AND id = 2", NEVER),
        ("id = NULL", NEVER),
    ],
)
def test_conditions_that_are_understood(condition: str, expected: Predicate | None) -> None:
    if expected is None:
        with pytest.raises(ValueError, match="Invalid function"):
            read_filter(condition, SCHEMA)
    else:
        assert read_filter(condition, SCHEMA) == expected


@pytest.mark.parametrize(
    "condition",
    [
        "id + 1 = 5",
        "abs(id) = 5",
        "id % 2 = 0",
        "ts = d",
        "upper(Name) = 'A'",
        "Name ILIKE 'a%'",
        "Name LIKE '%a'",
        r"Name LIKE 'a\%'",
        "Name NOT LIKE 'a%'",
        "coalesce(id, 0) = 0",
        "CASE WHEN id = 3 THEN true ELSE false END",
        "id IS DISTINCT FROM 3",
        "id IN (SELECT 1)",
        "random() > 0.5",
        "ts > now()",
        "ts > now() - INTERVAL '1 hour' OR id = 5",
        "date_part('dow', ts) = 3",
        "date_part('month', berlin) = 3",
        "id = 5 OR abs(id) = 5",
        "id IN (" + ", ".join(map(str, range(2000))) + ")",
    ],
)
def test_conditions_that_say_nothing(condition: str) -> None:
    predicate = read_filter(condition, SCHEMA)
    assert predicate == ANYTHING or predicate == Where(Place("Name"), NOT_NULL)


@pytest.mark.parametrize(
    "condition", ["f > 'NaN'", "f = CAST('NaN' AS FLOAT)", "CAST(ts AS TIMESTAMP(0)) > '2024-01-01'"]
)
def test_conditions_that_say_no_more_than_not_null(condition: str) -> None:
    (place,) = [place for place in ("f", "ts") if place in condition.split()[0]]
    assert read_filter(condition, SCHEMA) == Where(Place(place), NOT_NULL)


def test_parts_that_are_understood_stand_beside_others() -> None:
    assert read_filter("id = 5 AND ts > now() AND abs(id) = 5", SCHEMA) == only("id", 5)
    both = read_filter("id > 5 AND id < 9 AND upper(Name) = 'A'", SCHEMA)
    assert isinstance(both, AllOf)
    assert both.parts == (
        Where(Place("id"), ValueSet(lower=6)),
        Where(Place("id"), ValueSet(upper=8)),
    )


def test_float32_literals_are_read_both_ways() -> None:
    rounded = 0.10000000149011612
    assert read_filter("f = 0.1", SCHEMA) == only("f", 0.1, rounded)
    assert read_filter("f > 0.1", SCHEMA) == Where(Place("f"), ValueSet(lower=0.1))
    assert read_filter("f < 0.1", SCHEMA) == Where(Place("f"), ValueSet(upper=rounded))


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        ("id =", "Expected: an expression"),
        ("", "Expected: an expression"),
        ("nope = 3", "No field named nope"),
        ("NAME = 'a'", "No field named"),
        ("\"Name\" = 'a'", "double quotes"),
        ('Name = "a"', "double quotes"),
        ("ts = timestamp '2024-01-01 00:00:00.000000001'", "microseconds"),
        ("id = 3; DROP TABLE t", "Expected: end of expression"),
        ("ts = 0", "Cannot infer common argument type"),
    ],
)
def test_filters_that_are_not_understood_say_why(condition: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_filter(condition, SCHEMA)


def test_a_schema_datafusion_cannot_take_is_told() -> None:
    doubled = pa.schema([("id", pa.int32()), ("id", pa.int32())])
    with pytest.raises(ValueError, match=r"cannot take the columns|[Aa]mbiguous|duplicate"):
        read_filter("id = 5", doubled)


def test_columns_of_any_type_may_stand_beside() -> None:
    types = [
        pa.uuid(),
        pa.list_(pa.float32(), 4),
        pa.struct([("a", pa.int8())]),
        pa.map_(pa.int8(), pa.int8()),
    ]
    schema = pa.schema([("id", pa.int32()), *((f"c{at}", kind) for at, kind in enumerate(types))])
    assert read_filter("id = 5", schema) == only("id", 5)


def test_deep_filters_do_not_break_the_process() -> None:
    condition = "(" * 5_000 + "id = 5" + ")" * 5_000
    with pytest.raises((ValueError, RecursionError)):
        read_filter(condition, SCHEMA)


PLAIN_ROWS = pa.record_batch(
    {"n": [None, -1, 0, 1, 2, 3, 2**62, 0], "name": ["a", None, "", "a", "b", "ba", "'", None]}
)
_NUMBERS = st.sampled_from(["-1", "0", "1", "2", "3", str(2**62)])
_TEXTS = st.sampled_from(["''", "'a'", "'b'", "'ba'", "''''"])
_OPERATORS = st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">="])


def _plain(column: str, values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    negation = st.sampled_from(["", "NOT "])
    return st.one_of(
        st.builds(f"{column} {{}} {{}}".format, _OPERATORS, values),
        st.builds(f"{column} {{}}BETWEEN {{}} AND {{}}".format, negation, values, values),
        st.builds(
            lambda sign, some: f"{column} {sign}IN ({', '.join(some)})",
            negation,
            st.lists(values, min_size=1, max_size=5),
        ),
    )


_PLAIN = st.recursive(
    _plain("n", _NUMBERS) | _plain("`name`", _TEXTS),
    lambda part: st.builds("({} {} {})".format, part, st.sampled_from(["AND", "OR"]), part),
    max_leaves=6,
)


def _holds(predicate: Predicate, row: dict[str, int | str | None]) -> bool:
    if isinstance(predicate, Where):
        value = row[predicate.place.column]
        known = value.encode() if isinstance(value, str) else value
        return predicate.values.null if known is None else predicate.values.holds(known)
    if isinstance(predicate, AllOf):
        return all(_holds(part, row) for part in predicate.parts)
    return not isinstance(predicate, AnyOf) or any(_holds(part, row) for part in predicate.parts)


@given(_PLAIN)
@example("n NOT BETWEEN 2 AND 0")
@example("n = 1 AND n = 2")
@example("n IN (1, 2) OR n IN (2, 3) OR n > 2")
@example("n NOT IN (1) OR n NOT IN (2)")
def test_comparisons_with_literals_are_read_exactly(condition: str) -> None:
    frame = session().read_batch(PLAIN_ROWS)
    expected = frame.filter(frame.parse_sql_expr(condition)).to_pylist()
    predicate = read_filter(condition, PLAIN_ROWS.schema)
    found = [row for row in PLAIN_ROWS.to_pylist() if _holds(predicate, row)]
    if "NOT IN" in condition:
        assert all(row in found for row in expected)
    else:
        assert found == expected
