"""Filters that DataFusion evaluates on rows in memory, against Lance, whose meaning they have."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

from weir.errors import FilterError
from weir.lsm.filters import _evaluate, check_filter, matching_rows
from weir.lsm.plain_filter import plain_matches
from weir.sharding.sql import session

INTS = [None, -(1 << 63), -1, 0, 1, 5, 1838645363404207105, (1 << 63) - 1]
TEXTS = [None, "", "a", "A", "b'c", 'say "x"', "ä", "true", "5", " a"]
ROWS = 60


def table(random: Random) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([random.choice(INTS) for _ in range(ROWS)], pa.int64()),
            "n-1": pa.array([random.choice(INTS) for _ in range(ROWS)], pa.int64()),
            "name": pa.array([random.choice(TEXTS) for _ in range(ROWS)], pa.string()),
            "ok": pa.array([random.choice([None, True, False]) for _ in range(ROWS)], pa.bool_()),
        }
    )


def condition(random: Random, depth: int) -> str:
    choice = random.random()
    if depth and choice < 0.5:
        joined = random.choice([" AND ", " OR "]).join(condition(random, depth - 1) for _ in range(2))
        return f"({joined})" if random.random() < 0.7 else f"NOT ({joined})"
    sign = random.choice(["=", "!=", "<>", "<", "<=", ">", ">="])
    if choice < 0.7:
        # The least of all numbers cannot be written.
        number = random.choice([one for one in INTS if one is not None and one > -(1 << 63)])
        return random.choice([f"`n-1` {sign} {number}", f"{number} {sign} id", f"id {sign} {number}"])
    if choice < 0.85:
        if choice < 0.73:
            listed = ", ".join(random.sample(["'a'", "'ä'", "''", "'5'", "'A'"], random.choice([1, 3, 5])))
            return f"name {random.choice(['', 'NOT '])}IN ({listed})"
        if choice < 0.76:
            return f"id {random.choice(['', 'NOT '])}BETWEEN -1 AND 5"
        text = random.choice([one for one in TEXTS if one is not None and '"' not in one]).replace("'", "''")
        return f"name {sign} '{text}'"
    return random.choice(["ok", "NOT ok", "ok = true", "id IS NULL", "name IS NOT NULL", "ok IS NULL"])


def test_plain_filters_match_what_lance_matches() -> None:
    random = Random(18)
    rows = table(random)
    plain = 0
    for text in [*(condition(random, 3) for _ in range(150)), "id NOT IN (1) OR id NOT IN (5)"]:
        wanted = _evaluate(rows, text).tolist()
        assert matching_rows(rows, text).tolist() == wanted, text
        found = plain_matches(rows, text)
        plain += found is not None
        assert found is None or found.tolist() == wanted, text
    assert plain > 140


@pytest.mark.parametrize("word", ["AND", "OR"])
def test_long_chains_are_plain_too(word: str) -> None:
    rows = table(Random(2))
    text = f" {word} ".join(["id != 7"] * 300)
    found = plain_matches(rows, text)
    assert found is not None
    assert found.tolist() == _evaluate(rows, text).tolist()


@pytest.mark.parametrize(
    "text",
    [
        *('name = "a"', "abs(id) > 1", "id > 1.5", "id = '5'", "id + 1 > 2", "name LIKE 'a%'", "id = `n-1`"),
        *("NOT " * 900 + "ok", "(ok OR (ok AND " * 100 + "ok" + "))" * 100),
        *("id > 9223372036854775808", "name > 5", "ok = 1", "id = id", "id IN (1, 2.5)", "id > NULL"),
    ],
)
def test_others_are_left_to_lance(text: str) -> None:
    assert plain_matches(table(Random(1)), text) is None


def test_rows_that_were_filtered_are_not_kept() -> None:
    tables = session().catalog().schema("public").names()
    for text in ("id > 1", "id IS NULL", "abs(id) > 1"):
        plain_matches(table(Random(1)), text)
    assert session().catalog().schema("public").names() == tables


def test_no_rows_match_nothing() -> None:
    assert matching_rows(table(Random(1)).slice(0, 0), "id > 1").tolist() == []


def test_a_filter_that_differs_in_a_long_number_alone_is_not_checked_again() -> None:
    schema = table(Random(1)).schema
    for number in (1838645363404207105, 1838645363404207106):
        check_filter(schema, f"id > {number} AND name = '{number}'")
    with pytest.raises(FilterError, match="1838645363404207105"):
        check_filter(schema, "nothing > 1838645363404207105")
