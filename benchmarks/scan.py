"""Scans of two columns over a table with a base and unmerged generations."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import numpy as np
import pyarrow as pa
from lance.mem_wal import LsmScanner

import weir
from benchmarks.context import Context, Result
from benchmarks.harness import Case, Contender, Sense, Target, measure
from benchmarks.layered_table import LayeredTable, build
from weir.engine.context import default_context

__all__ = ["run"]

_COLUMNS = ["id", "label"]
_WARM_CALLS = 5
_FACTOR = 3.0
_RANGE_IDS = 50
_RANGE_CALLS = 40

_WEIR = "weir"
_BASE_ONLY = "base-only Lance scan"
_LIBRARY = "pylance LsmScanner"

_Read = Callable[[], pa.Table]


def run(context: Context) -> Result:
    """Measure the scan again and again, and as the first thing after opening the table."""
    context.say("scan: writing the table")
    layered = build(context.directory, context.scale)
    target = Target(_WEIR, Sense.WITHIN, _FACTOR, (_BASE_ONLY,))
    context.say("scan: repeated scan")
    again = measure(_warm(layered), rounds=context.scale.rounds, calls=_WARM_CALLS)
    context.say("scan: first scan")
    first = measure(_cold(layered), rounds=context.scale.rounds, calls=1, warm_up=0)
    context.say("scan: ranges of keys")
    ranges = measure(_ranges(layered), rounds=context.scale.rounds, calls=_RANGE_CALLS)
    rows = layered.live_rows
    scale = context.scale
    return Result(
        "scan",
        f"scan of two columns: {scale.base_rows:,} base rows, {scale.generations} unmerged generations of "
        f"{scale.generation_rows:,}, {rows:,} live rows",
        (
            f"{_WEIR}: strong; {_BASE_ONLY}: to_table of the base table alone, which misses what the "
            f"generations hold; {_LIBRARY}: from_snapshots and to_table",
            "repeated: handles stay open, caches are warm",
            "first: a new handle, opening it included, and for Weir an empty process cache; the operating "
            "system's page cache is warm for all",
            f"range: of {_RANGE_IDS} ids, another each time; handles stay open",
            f"columns {' and '.join(_COLUMNS)}; answers checked before timing",
        ),
        (
            Case("scan", "repeated scan", again, (target,), rows_per_call=rows),
            Case("scan", "first scan", first, (target,), rows_per_call=rows),
            Case("scan", f"range of {_RANGE_IDS} ids", ranges, ()),
        ),
    )


def _warm(layered: LayeredTable) -> list[Contender]:
    table = weir.open(layered.uri)
    dataset = layered.dataset()
    snapshots = layered.snapshots()

    def ours() -> pa.Table:
        return table.scan(columns=_COLUMNS).to_table()

    def base_only() -> pa.Table:
        return dataset.to_table(columns=_COLUMNS)

    def theirs() -> pa.Table:
        return LsmScanner.from_snapshots(dataset, snapshots).project(_COLUMNS).to_table()

    layered.check_rows(_WEIR, ours())
    layered.check_rows(_LIBRARY, theirs())
    reads: dict[str, _Read] = {_WEIR: ours, _BASE_ONLY: base_only, _LIBRARY: theirs}
    return [Contender(name, partial(_remembering, read)) for name, read in reads.items()]


def _cold(layered: LayeredTable) -> list[Contender]:
    snapshots = layered.snapshots()

    def ours() -> pa.Table:
        return weir.open(layered.uri).scan(columns=_COLUMNS).to_table()

    def base_only() -> pa.Table:
        return layered.dataset().to_table(columns=_COLUMNS)

    def theirs() -> pa.Table:
        return LsmScanner.from_snapshots(layered.dataset(), snapshots).project(_COLUMNS).to_table()

    reads: dict[str, _Read] = {_WEIR: ours, _BASE_ONLY: base_only, _LIBRARY: theirs}
    return [Contender(name, partial(_forgetting, read)) for name, read in reads.items()]


def _ranges(layered: LayeredTable) -> list[Contender]:
    table = weir.open(layered.uri)
    dataset = layered.dataset()
    snapshots = layered.snapshots()
    generator = np.random.default_rng(1)
    last = len(layered.source_of) - _RANGE_IDS

    def ours(condition: str) -> pa.Table:
        return table.scan(columns=_COLUMNS, filter=condition).to_table()

    def base_only(condition: str) -> pa.Table:
        return dataset.to_table(columns=_COLUMNS, filter=condition)

    def theirs(condition: str) -> pa.Table:
        scanner = LsmScanner.from_snapshots(dataset, snapshots).filter(condition)
        return scanner.project(_COLUMNS).to_table()

    def contender(name: str, read: Callable[[str], pa.Table]) -> Contender:
        def next_range() -> pa.Table:
            first = int(generator.integers(last))
            return read(f"id BETWEEN {first} AND {first + _RANGE_IDS - 1}")

        return Contender(name, partial(_remembering, next_range))

    for first in generator.integers(last, size=20).tolist():
        condition = f"id BETWEEN {first} AND {first + _RANGE_IDS - 1}"
        layered.check_range(_WEIR, first, _RANGE_IDS, ours(condition))
        layered.check_range(_LIBRARY, first, _RANGE_IDS, theirs(condition))
    return [contender(_WEIR, ours), contender(_BASE_ONLY, base_only), contender(_LIBRARY, theirs)]


def _remembering(read: _Read) -> nullcontext[_Read]:
    return nullcontext(read)


def _forgetting(read: _Read) -> nullcontext[_Read]:
    default_context().cache.clear()
    return nullcontext(read)
