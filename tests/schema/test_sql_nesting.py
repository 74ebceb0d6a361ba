"""SQL that is nested too deep is refused before a library recurses over it, and what is not works."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from tests.deep_sql import texts

import weir
from weir.errors import FilterError, InputError, QueryError, ShardingError
from weir.schema.sql_nesting import MAX_CHARACTERS, MAX_DEPTH, nesting

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
FLAGS = SCHEMA.append(pa.field("gone", pa.bool_())).append(pa.field("left", pa.bool_()))
SOME_FLAGS = [
    {"id": 1, "name": "a", "gone": True, "left": False},
    {"id": 2, "name": "a", "gone": False, "left": False},
    {"id": 3, "name": "b", "gone": True, "left": True},
]
TOO_DEEP = {
    "sum": "id" + "+1" * 1_500 + " = 1",
    "cast": "CAST(" * 60 + "id" + " AS BIGINT)" * 60 + " = 1",
    "doubled": "id BETWEEN 1 AND 2" + " BETWEEN true AND false" * 30,
    "escaped": "name = E'\\'' AND id" + "+1" * 1_500 + " = 1",
    "hidden": "name = $$'$$ AND id" + "+1" * 1_500 + " = 1",
    "comment": "/* /* ' */ ' */ id" + "+1" * 1_500 + " = 1",
    "long": "id = 1" + " " * MAX_CHARACTERS,
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> weir.Table:
    table = weir.create(tmp_path_factory.mktemp("deep") / "t", SCHEMA, primary_key="id")
    with table.writer() as writer:
        writer.upsert([{"id": number, "name": f"n{number}"} for number in range(3_000)])
    table.maintenance.merge()
    with table.writer(flush_on_close=False) as writer:
        writer.upsert([{"id": 5, "name": "new"}])
    return table


@pytest.mark.parametrize("text", TOO_DEEP.values(), ids=TOO_DEEP)
def test_what_would_end_the_process_or_never_end_is_refused(
    table: weir.Table, text: str, tmp_path: Path
) -> None:
    place = tmp_path / "t"
    began = time.monotonic()
    with pytest.raises(FilterError, match="are the most"):
        table.scan(filter=text)
    with pytest.raises(QueryError, match="are the most"):
        table.sql(f"SELECT id FROM t WHERE {text}")
    with pytest.raises(ShardingError, match="are the most"):
        weir.create(
            place, SCHEMA, primary_key="id", shard_by=weir.expression(text, ["id"], result_type="bool")
        )
    assert not place.exists()
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("listed", [20_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_what_is_asked_for_in_practice_goes_through(table: weir.Table, listed: int) -> None:
    ors = " OR ".join(f"id = {number}" for number in range(1_000))
    assert table.scan(filter=ors).count() == 1_000
    pairs = " OR ".join(f"(id = {number} AND name = 'n{number}')" for number in range(300))
    assert table.scan(filter=pairs).count() == 299
    values = ", ".join(map(str, range(listed)))
    assert table.scan(filter=f"id IN ({values})").count() == 3_000
    names = ", ".join(f"'n{number}'" for number in range(5_000))
    assert table.scan(filter=f"name IN ({names}) AND id < 10").count() == 9
    few = ", ".join(map(str, range(5_000)))
    counted = table.sql(f"SELECT count(*) AS n FROM t WHERE id IN ({few})").to_table()
    assert counted["n"].to_pylist() == [3_000]
    total = " + ".join(["id"] * 150)
    assert table.scan(filter=f"{total} = 150").to_table()["id"].to_pylist() == [1]
    with_parentheses = "(" * 30 + "id = 1" + ")" * 30
    assert table.scan(filter=with_parentheses).count() == 1


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("seed", "stack"), [(1, 0), (2, 128 * 1024)], ids=["main thread", "small stack"])
def test_no_text_ends_the_process(seed: int, stack: int) -> None:
    command = [sys.executable, "-m", "tests.deep_sql", str(seed), "12", str(stack)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert ran.returncode == 0, ran.stdout[-500:] + ran.stderr[-2_000:]
    assert ran.stdout.endswith("done\n"), ran.stdout[-500:] + ran.stderr[-2_000:]


def test_the_limits_are_between_what_is_tried() -> None:
    tried = [text for seed in (1, 2) for text in texts(seed, 12)]
    depths = [nesting(text).depth for text in tried]
    assert any(MAX_DEPTH / 2 < depth <= MAX_DEPTH for depth in depths)
    assert any(depth > MAX_DEPTH for depth in depths)


def test_a_query_that_is_no_text(table: weir.Table) -> None:
    for query in (None, 3, b"SELECT 1"):
        with pytest.raises(InputError):
            table.sql(query)  # type: ignore[arg-type]


_PARTS = [
    *("7", "80", "1.5", "2e5", ".5", "-3", "id", "n2", "NVL2(", "CASE", "END", "(", ")", "[", "]", ",", "+"),
    *(
        "'a1'",
        "'",
        "\\1",
        "E'\\12'",
        '"5',
        "`6`",
        "--1\n",
        "/*2",
        "*/",
        "$",
        "$1$",
        "AND",
        "BETWEEN",
        " ",
        "٣٤",
    ),
]


def test_numbers_make_no_difference() -> None:
    random = Random(4)
    for _ in range(2_000):
        text = "".join(
            random.choice(_PARTS) + random.choice(["", " "]) for _ in range(random.randrange(1, 14))
        )
        # Of a long one nothing is remembered.
        assert nesting(text) == nesting(text + " " * 4_000), text


MISREAD = {
    "and": "gone IS NOT DISTINCT FROM true AND name = 'a'",
    "or": "id > 9 OR gone is distinct from left OR name = 'a'",
    "case": "CASE WHEN gone IS DISTINCT FROM left AND left THEN true ELSE false END",
}
"""What the parser reads as ``gone IS NOT DISTINCT FROM (true AND name = 'a')``, and so on."""


@pytest.mark.parametrize("text", MISREAD.values(), ids=MISREAD)
def test_what_the_parser_would_misread_is_refused(tmp_path: Path, text: str) -> None:
    table = weir.create(tmp_path / "t", FLAGS, primary_key="id")
    with table.writer() as writer:
        with pytest.raises(FilterError, match="IS DISTINCT FROM"):
            writer.delete(where=text)
        with pytest.raises(FilterError, match="IS DISTINCT FROM"):
            writer.upsert(SOME_FLAGS, condition=text)
    with pytest.raises(FilterError, match=r"\(a IS NOT DISTINCT FROM b\) AND c"):
        table.scan(filter=text)
    with pytest.raises(QueryError, match="IS DISTINCT FROM"):
        table.sql(f"SELECT id FROM t WHERE {text}")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("(gone IS NOT DISTINCT FROM true) AND name = 'a'", [1]),
        ("name = 'a' AND gone IS NOT DISTINCT FROM left", [2]),
        ("left AND (name = 'a' OR gone IS DISTINCT FROM (left AND false))", [3]),
        ("gone IS NOT DISTINCT FROM id BETWEEN 1 AND 2", [1]),
        ("(gone IS DISTINCT FROM left) IS TRUE AND name = 'a'", [1]),
    ],
)
def test_what_it_reads_as_it_is_written_goes_through(tmp_path: Path, text: str, found: list[int]) -> None:
    table = weir.create(tmp_path / "t", FLAGS, primary_key="id")
    table.upsert(SOME_FLAGS)
    assert table.scan(filter=text).to_table().column("id").to_pylist() == found
    assert table.sql(f"SELECT id FROM t WHERE {text}").to_table().column("id").to_pylist() == found
