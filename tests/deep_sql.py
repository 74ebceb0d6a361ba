"""Hands SQL of every kind of nesting to a table, in a process that may die of it.

``python -m tests.deep_sql SEED TEXTS STACK_BYTES`` prints each text before it is used, and at last "done".
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

import weir
from weir.errors import InputError

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("l", pa.list_(pa.int64())),
        ("t", pa.timestamp("us")),
    ]
)

CHAINS: list[tuple[str, str, str]] = [
    # What comes first, what is repeated, what comes last.
    ("id", "+1", " = 1"),
    ("id", " % 3 * 2", " = 1"),
    ("id", "::bigint", " = 1"),
    ("s", "||'a'", " = 'b'"),
    ("id", " IS NULL", ""),
    ("id = 1", " IS NOT TRUE", ""),
    ("id", " IS DISTINCT FROM 1", ""),
    ("b", " = true", ""),
    ("s", " LIKE 'a'", ""),
    ("id BETWEEN 1 AND 2", " BETWEEN true AND false", ""),
    ("l", "[1]", " = 1"),
    ("id", ".a", " = 1"),
    ("t", " AT TIME ZONE 'UTC'", " IS NULL"),
    ("t > ", "interval ", "'1 day'"),
    ("", "NOT ", "b"),
    ("id = ", "- ", "1"),
    ("id = ", "~", "1"),
    ("id = 0", " OR id = 1", ""),
    ("id > 0", " AND id < 9", ""),
    ("id = 0", " OR id = 1 AND NOT s = 'x'", ""),
    ("s = E'\\'' AND id", "+1", " = 1"),
    ("s = '\\' AND id", "+1", " = 1"),
    ("s = $$'$$ AND id", "+1", " = 1"),
    ("/* /* ' */ ' */ id", "+1", " = 1"),
    ("-- it's\n id", "+1", " = 1"),
    ('"s\'" = 1 OR id', "+1", " = 1"),
    ("id IN (1, 2, 'it''s') OR id", "-1", " = 1"),
]
PAIRS: list[tuple[str, str, str]] = [
    ("(", "id = 1", ")"),
    ("abs(", "id", ")"),
    ("(id + ", "1", ")"),
    ("CAST(", "id", " AS BIGINT)"),
    ("CASE WHEN b THEN ", "b", " ELSE b END"),
    ("coalesce(id, ", "1", ")"),
    ("[", "1", "]"),
    ("id IN (", "1", ")"),
    ("NOT (", "b", ")"),
    ("id IN (SELECT ", "1", ")"),
]
QUERIES: list[tuple[str, str, str]] = [
    ("SELECT * FROM (", "SELECT * FROM t", ") AS x"),
    ("SELECT id FROM t UNION ALL ", "SELECT id FROM t", ""),
    ("SELECT id FROM t EXCEPT ", "SELECT id FROM t", ""),
    ("WITH a AS (", "SELECT id FROM t", ") SELECT * FROM a"),
    ("SELECT (", "SELECT 1", ")"),
]


def one(pick: random.Random, count: int) -> str:
    """Return a condition with so much of one kind of nesting, and some of another within."""
    if pick.random() < 0.6:
        first, repeated, last = pick.choice(CHAINS)
        return first + repeated * count + last
    before, inner, after = pick.choice(PAIRS)
    if pick.random() < 0.3:
        inner = one(pick, count // 2)
        count //= 2
    return before * count + inner + after * count


def texts(seed: int, number: int) -> list[str]:
    """Return conditions on both sides of every limit."""
    pick = random.Random(seed)
    sizes = [30, 49, 100, 195, 250, 700, 1_500, 40_000]
    return [one(pick, pick.choice(sizes)) for _ in range(number)]


def main() -> None:
    seed, number, stack = map(int, sys.argv[1:])
    with TemporaryDirectory() as folder:
        table = weir.create(Path(folder) / "t", SCHEMA, primary_key="id")
        with table.writer(flush_on_close=False) as writer:
            writer.upsert([{"id": 1, "s": "a", "b": True, "l": [1], "t": None}])
        work = partial(_all, table, seed, number)
        if stack:
            threading.stack_size(stack)
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        else:
            work()


def _all(table: weir.Table, seed: int, number: int) -> None:
    pick = random.Random(seed)
    uses: list[Callable[[str], object]] = [
        lambda text: table.scan(filter=text).count(),
        lambda text: table.scan(filter=text).explain(),
        lambda text: table.sql(f"SELECT id FROM t WHERE {text}").to_table(),
        _shard_by,
    ]
    for text in texts(seed, number):
        _use(pick.choice(uses), text)
    for before, inner, after in QUERIES:
        for count in (4, 15, 60):
            _use(lambda text: table.sql(text).to_table(), before * count + inner + after * count)
        _use(lambda text: table.sql(text).to_table(), before * 5_000 + inner + after * 5_000)
    print("done", flush=True)


def _shard_by(text: str) -> object:
    rule = weir.expression(text.replace("id", "col0"), ["id"], result_type="int64")
    with TemporaryDirectory() as folder:
        return weir.create(Path(folder) / "s", SCHEMA, primary_key="id", shard_by=rule)


def _use(use: Callable[[str], object], text: str) -> None:
    print(len(text), repr(text[:300]), flush=True)
    try:
        use(text)
    except InputError as error:
        print("  refused:", str(error)[:60], flush=True)


if __name__ == "__main__":
    main()
