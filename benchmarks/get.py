"""Point lookups: one key of a table with a base and unmerged generations."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.mem_wal import LsmPointLookupPlanner

import weir
from benchmarks.context import Context, Result
from benchmarks.harness import Case, Contender, Sense, Target, measure
from benchmarks.layered_table import LayeredTable, build

__all__ = ["run"]

_CALLS = 100
_CHECKED_KEYS = 25
_FACTOR = 5.0

_WEIR = "weir, strong"
_WEIR_BOUNDED = "weir, bounded(1000)"
_LIBRARY = "pylance"
_BARE = "Lance's take of a row by its place"
"""What is left when nothing is looked up: about as long as any lookup in the base table takes at least."""

_IN_BASE = "key in the base table"

_Lookup = Callable[[int], pa.Table]


def run(context: Context) -> Result:
    """Measure lookups of keys in the base table, in generations, of missing keys, and of all of them."""
    context.say("get: writing the table")
    layered = build(context.directory, context.scale)
    table = weir.open(layered.uri)
    planner = LsmPointLookupPlanner(layered.dataset(), layered.snapshots(), ["id"])
    lookups: dict[str, _Lookup] = {
        _WEIR: lambda key: table.get([key]),
        _WEIR_BOUNDED: lambda key: table.get([key], consistency="bounded(1000)"),
        _LIBRARY: lambda key: planner.plan_lookup(pa.array([key], pa.int64())).to_table(),
    }
    cases = []
    base = layered.dataset()
    places = {key: at for at, key in enumerate(base.to_table(columns=["id"]).column("id").to_pylist())}
    for name, keys in _key_sets(layered).items():
        context.say(f"get: {name}")
        asked = dict(lookups)
        if name == _IN_BASE:
            asked[_BARE] = lambda key: base.take([places[key]])
        for who, lookup in asked.items():
            for key in keys[:_CHECKED_KEYS]:
                layered.check_row(who, key, lookup(key))
        cases.append(
            Case(
                "get",
                name,
                measure(
                    [_contender(who, lookup, keys) for who, lookup in asked.items()],
                    rounds=context.scale.rounds,
                    calls=_CALLS,
                    warm_up=5,
                ),
                (Target(_WEIR, Sense.FASTER, _FACTOR, (_LIBRARY,)),),
                rows_per_call=0,
            )
        )
    scale = context.scale
    return Result(
        "get",
        f"get of one key, all columns: {scale.base_rows:,} base rows with BTREE, "
        f"{scale.generations} unmerged generations of {scale.generation_rows:,}",
        (
            f"{_WEIR}: every lookup first makes sure that it sees every acknowledged write (base version, "
            "shards, WAL tail)",
            f"{_WEIR_BOUNDED}: it does so once a second",
            f"{_LIBRARY}: plan_lookup and to_table of an LsmPointLookupPlanner that was made once, outside "
            "the timing, for a fixed snapshot: it looks for nothing new",
            "both: the same files, warm; random keys in the same order; answers checked before timing",
        ),
        cases,
    )


def _key_sets(layered: LayeredTable) -> dict[str, list[int]]:
    generator = np.random.default_rng(1)

    def some(keys: npt.NDArray[np.int64]) -> list[int]:
        return [int(key) for key in generator.choice(keys, 1_000)]

    base, fresh, missing = layered.base_keys, layered.generation_keys, layered.missing_keys
    mixed = [some(base), some(fresh), some(missing)]
    return {
        _IN_BASE: some(base),
        "key in a generation": some(fresh),
        "missing key": some(missing),
        "a third of each": [key for three in zip(*mixed, strict=True) for key in three],
    }


def _contender(name: str, lookup: _Lookup, keys: list[int]) -> Contender:
    @contextmanager
    def session() -> Iterator[Callable[[], object]]:
        turn = itertools.cycle(keys)
        yield lambda: lookup(next(turn))

    return Contender(name, session)
