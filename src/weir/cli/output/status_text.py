"""The state of a table as text: problems first, then the table, then its shards."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from rich.console import Console
from rich.text import Text

from weir.cli.output.fitted_table import Column, print_fitted
from weir.cli.output.index_text import print_indexes
from weir.cli.output.phrases import counted, elapsed, print_pairs, short_id
from weir.cli.printable_text import printable
from weir.maintenance.status import OLD_UNFLUSHED_SECONDS, ShardReport, TableStatus

__all__ = ["print_status"]

_SHARDS_SHOWN = 10
_PROBLEMS_SHOWN = 5
_WIDEST_VALUES = 24


def print_status(console: Console, status: TableStatus, *, all_shards: bool = False) -> None:
    """Print what is wrong, the table as a whole, and a table of its shards.

    Parameters
    ----------
    console : Console
        Where to.
    status : TableStatus
        The state.
    all_shards : bool, default False
        Whether every shard is shown; otherwise ten, those with problems first.
    """
    console.print(status.uri, soft_wrap=True)
    troubled = _troubled(status)
    _print_problems(console, [*_twins(status), *status.warnings, *_damaged(status)], all_shards)
    print_pairs(
        console,
        {
            "base table": f"version {status.base_version}, {counted(status.base_rows, 'row')}",
            "primary key": ", ".join(status.primary_key),
            "sharded by": status.sharded_by,
            "waiting": f"{counted(status.unmerged_rows, 'row')} for a merge, "
            f"{status.unflushed_rows:,} for a flush",
            "lag": elapsed(status.lag_seconds),
            "shards": _summary(status),
            "upkeep": status.upkeep,
            "note": status.library_note,
        },
    )
    # Those with problems first, then those that are furthest behind.
    shards = sorted(status.shards, key=lambda one: (one.shard_id not in troubled, -one.lag_seconds))
    shown = shards if all_shards else shards[:_SHARDS_SHOWN]
    if shown:
        console.print()
        left_out = _print_shards(console, shown)
        _print_rest(console, shards[len(shown) :], left_out, troubled)
    else:
        console.print("no shard has been written yet")
    if status.indexes:
        console.print()
        print_indexes(console, status.indexes)


def _twins(status: TableStatus) -> list[str]:
    return [
        f"shards {', '.join(map(short_id, shards))} hold rows of the same values: weir repair joins them"
        for shards in status.twins
    ]


def _damaged(status: TableStatus) -> list[str]:
    return [
        f"the lease of shard {short_id(one.shard_id)} is damaged: nobody can tell who writes it"
        for one in status.shards
        if one.lease == "damaged"
    ]


def _troubled(status: TableStatus) -> set[UUID]:
    """Return the shards that somebody should look at."""
    twins = {shard for shards in status.twins for shard in shards}
    return twins | {
        one.shard_id
        for one in status.shards
        if one.lease == "damaged" or one.unflushed_seconds > OLD_UNFLUSHED_SECONDS
    }


def _print_problems(console: Console, problems: Sequence[str], all_of_them: bool) -> None:
    shown = problems if all_of_them else problems[:_PROBLEMS_SHOWN]
    for problem in shown:
        console.print(Text.assemble(("warning", "yellow"), ": ", printable(problem)), soft_wrap=True)
    if len(problems) > len(shown):
        console.print(f"and {counted(len(problems) - len(shown), 'warning')} more; --shards shows them")


def _summary(status: TableStatus) -> str:
    """Return how many shards there are, and how many leases of which state."""
    if not status.shards:
        return ""
    leases = [one.lease for one in status.shards if one.lease != "none"]
    states = ", ".join(f"{leases.count(state):,} {state}" for state in sorted(set(leases)))
    return f"{len(status.shards):,}{f' ({states})' if states else ''}"


def _print_shards(console: Console, shards: Sequence[ShardReport]) -> list[str]:
    def numbers(name: str, values: Sequence[int], weight: int) -> Column:
        return Column(name, [f"{value:,}" for value in values], weight, is_number=True)

    return print_fitted(
        console,
        [
            Column("shard", [short_id(one.shard_id) for one in shards]),
            Column("rows with", [_values(one) for one in shards], 9),
            Column("state", [one.state for one in shards], 3),
            Column("lease", [one.lease for one in shards]),
            numbers("epoch", [one.epoch for one in shards], 2),
            numbers("WAL", [one.wal_position for one in shards], 4),
            numbers("generation", [one.current_generation for one in shards], 1),
            numbers("merged", [one.merged_generation for one in shards], 1),
            numbers("unmerged", [one.unmerged_generations for one in shards], 5),
            numbers("rows", [one.unmerged_rows for one in shards], 8),
            numbers("unflushed", [one.unflushed_rows for one in shards], 7),
            Column("lag", [elapsed(one.lag_seconds) for one in shards], is_number=True),
        ],
    )


def _values(shard: ShardReport) -> str:
    text = printable(", ".join(f"{name}={value}" for name, value in shard.values.items()))
    return text if len(text) <= _WIDEST_VALUES else f"{text[: _WIDEST_VALUES - 1]}…"


def _print_rest(
    console: Console, rest: Sequence[ShardReport], left_out: Sequence[str], troubled: set[UUID]
) -> None:
    if rest:
        bad = sum(one.shard_id in troubled for one in rest)
        how = f", {bad:,} of them with problems" if bad else ", none of them with problems"
        console.print(f"and {counted(len(rest), 'more shard', 'more shards')}{how}; --shards shows them")
    if left_out:
        console.print(f"not shown: {', '.join(left_out)} (a wider terminal or --json shows them)")
