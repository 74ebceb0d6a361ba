"""Lookups and scans of the table that is searched: an indexed base, unmerged generations, unflushed rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
from lance.mem_wal import LsmPointLookupPlanner

import weir
from benchmarks.context import Context, Result
from benchmarks.harness import Case, Contender, Sense, Target, measure
from benchmarks.searched_table import SearchScale, build

__all__ = ["run"]

_CALLS = 100
_SCANS = 5
_KEYS = 1_000
_COLUMNS = ["id", "category"]
_FASTER = 10.0
_MANY = 20.0
_SCAN = 2.0

_WEIR = "weir, strong"
_LIBRARY = "pylance LsmPointLookupPlanner"
_BASE_ONLY = "base-only Lance scan"
_ONE, _THOUSAND = "weir, one key", f"weir, {_KEYS:,} keys"

_Lookup = Callable[[list[int]], pa.Table]


class WrongAnswerError(Exception):
    """A contender's answer is not what was written, so its time means nothing."""


def run(context: Context) -> Result:
    """Measure lookups of one key and of many, and a scan of two columns."""
    context.say("indexed: writing the table")
    scale = SearchScale.of(context.scale)
    searched = build(context.directory, scale)
    table = weir.open(searched.uri)
    rounds = context.scale.rounds
    keys = searched.keys(20 * _KEYS if not context.scale.quick else _KEYS)
    planner = LsmPointLookupPlanner(searched.dataset(), searched.snapshots(), ["id"])

    def ours(wanted: list[int]) -> pa.Table:
        return table.get(wanted)

    def theirs(wanted: list[int]) -> pa.Table:
        return planner.plan_lookup(pa.array(wanted, pa.int64())).to_table()

    cases = []
    for name, where in (("base", "in the base table"), ("fresh", "in a generation"), ("missing", "missing")):
        context.say(f"indexed: a key {where}")
        ones = [[key] for key in keys[name][:_KEYS]]
        _check(ours, ones[:50], name != "missing")
        cases.append(
            Case(
                "indexed",
                f"get of a key, {where}",
                measure(
                    [_contender(_WEIR, ours, ones), _contender(_LIBRARY, theirs, ones)],
                    rounds=rounds,
                    calls=_CALLS,
                    warm_up=20,
                ),
                (Target(_WEIR, Sense.FASTER, _FASTER, (_LIBRARY,)),),
            )
        )
    for name, groups in (("in the base table", ("base",)), ("a third of each kind", tuple(keys))):
        context.say(f"indexed: {_KEYS:,} keys")
        mixed = [key for some in zip(*(keys[one] for one in groups), strict=True) for key in some]
        many = [list(some) for some in zip(*[iter(mixed)] * _KEYS, strict=False)]
        _check(ours, many[:1], name == "in the base table")
        cases.append(
            Case(
                "indexed",
                f"get of {_KEYS:,} keys, {name}",
                measure(
                    [_contender(_ONE, ours, [[key] for key in mixed]), _contender(_THOUSAND, ours, many)],
                    rounds=rounds,
                    calls=_CALLS // 4,
                    warm_up=5,
                ),
                (Target(_THOUSAND, Sense.WITHIN, _MANY, (_ONE,)),),
            )
        )
    context.say("indexed: scan")
    dataset = searched.dataset()
    scans = {
        _WEIR: lambda _: table.scan(columns=_COLUMNS).to_table(),
        _BASE_ONLY: lambda _: dataset.to_table(columns=_COLUMNS),
    }
    cases.append(
        Case(
            "indexed",
            "scan of two columns",
            measure(
                [_contender(name, scan, [[]]) for name, scan in scans.items()],
                rounds=rounds,
                calls=_SCANS,
                warm_up=3,
            ),
            (Target(_WEIR, Sense.WITHIN, _SCAN, (_BASE_ONLY,)),),
        )
    )
    return Result(
        "indexed",
        f"get and scan: {scale.base_rows:,} base rows of 128 dimensions with BTREE, {scale.generations} "
        f"unmerged generations of {scale.generation_rows:,} and {scale.unflushed_rows:,} unflushed rows",
        (
            f"{_WEIR}: every read first makes sure that it sees every acknowledged write",
            f"{_LIBRARY}: made once, outside the timing, for a fixed snapshot without the unflushed rows",
            f"{_BASE_ONLY}: misses what is newer and finds what is replaced",
            f"get: all columns, the vector too; scan: {' and '.join(_COLUMNS)}",
        ),
        cases,
    )


def _check(lookup: _Lookup, wanted: Sequence[list[int]], all_exist: bool) -> None:
    for keys in wanted:
        found = lookup(keys).column("id").to_pylist()
        if (all_exist and found != keys) or (len(keys) == 1 and not all_exist and found):
            raise WrongAnswerError(f"{len(found)} rows found for {len(keys)} keys")


def _contender(name: str, lookup: _Lookup, keys: Sequence[list[int]]) -> Contender:
    turn = itertools.cycle(keys)

    @contextmanager
    def session() -> Iterator[Callable[[], object]]:
        yield lambda: lookup(next(turn))

    return Contender(name, session)
