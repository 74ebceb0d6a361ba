"""What reads cost with 64 unmerged generations, compared with one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa

import weir
from benchmarks.context import Context, Result
from benchmarks.harness import Case, Contender, Sense, Target, measure
from benchmarks.searched_table import SearchedTable, SearchScale, build

__all__ = ["run"]

_FEW, _MANY = 1, 64
_CALLS = 100
_GROWTH = 1.5
_COLUMNS = ["id", "category", "at", "text"]

_Read = Callable[[weir.Table, Any], pa.Table]


def run(context: Context) -> Result:
    """Measure lookups and searches of the same base table below one generation and below many."""
    context.say("growth: writing the tables")
    scale = SearchScale.of(context.scale)
    sizes = {count: replace(scale, generations=count) for count in (_FEW, _MANY)}
    tables = {count: build(context.directory, size) for count, size in sizes.items()}
    opened = {count: weir.open(table.uri) for count, table in tables.items()}
    cases = []
    for name, read, asked in _reads(tables[_MANY]):
        context.say(f"growth: {name}")
        contenders = [_contender(_label(count), table, read, asked) for count, table in opened.items()]
        cases.append(
            Case(
                "growth",
                name,
                measure(contenders, rounds=context.scale.rounds, calls=_CALLS, warm_up=40),
                (Target(_label(_MANY), Sense.WITHIN, _GROWTH, (_label(_FEW),)),),
            )
        )
    return Result(
        "growth",
        f"{_MANY} unmerged generations of {scale.generation_rows:,} compared with {_FEW}: "
        f"{scale.base_rows:,} base rows of 128 dimensions, {scale.unflushed_rows:,} unflushed rows",
        ("all strong; the same keys and queries; get: all columns", f"search: columns {', '.join(_COLUMNS)}"),
        cases,
    )


def _reads(searched: SearchedTable) -> list[tuple[str, _Read, Sequence[Any]]]:
    keys = searched.keys(1_000)
    return [
        ("get of a key in the base table", lambda table, key: table.get([key]), keys["base"]),
        ("get of a missing key", lambda table, key: table.get([key]), keys["missing"]),
        (
            "search by vector",
            lambda table, query: table.search(query, 10, columns=_COLUMNS, nprobes=20, refine=30).to_table(),
            list(searched.queries(200)),
        ),
        (
            "search by text",
            lambda table, query: table.search_text(query, 10, column="text", columns=_COLUMNS).to_table(),
            searched.texts(200),
        ),
    ]


def _label(count: int) -> str:
    return f"weir, {count} generation{'s' if count > 1 else ''}"


def _contender(name: str, table: weir.Table, read: _Read, asked: Sequence[Any]) -> Contender:
    turn = itertools.cycle(asked)

    @contextmanager
    def session() -> Iterator[Callable[[], object]]:
        yield lambda: read(table, next(turn))

    return Contender(name, session)
