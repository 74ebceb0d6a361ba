"""Indexes, and the work done on them, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from rich.console import Console

from weir.cli.output.fitted_table import Column, print_fitted
from weir.cli.output.phrases import counted, short_id
from weir.cli.printable_text import printable
from weir.indexing.definition import IndexDefinition
from weir.maintenance.catch_up import CatchUpReport
from weir.maintenance.index_status import IndexReport

__all__ = ["print_caught_up", "print_definitions", "print_indexes"]

_SHARDS_NAMED = 2


def print_indexes(console: Console, indexes: Sequence[IndexReport]) -> None:
    """Print a table of indexes, and how far they are behind."""
    print_fitted(
        console,
        [
            Column("index", [printable(one.name) for one in indexes]),
            Column("kind", [one.kind for one in indexes], 6),
            Column("column", [printable(one.column) for one in indexes], 3),
            Column("maintained", ["yes" if one.is_maintained else "no" for one in indexes], 2),
            Column("segments", [str(one.segments) for one in indexes], 1, is_number=True),
            Column("rows", [f"{one.rows:,}" for one in indexes], 4, is_number=True),
            Column("unindexed", [f"{one.unindexed_rows:,}" for one in indexes], 5, is_number=True),
            Column("behind", [_behind(one.behind) for one in indexes]),
        ],
    )


def print_definitions(console: Console, definitions: Sequence[IndexDefinition]) -> None:
    """Print the indexes that were built, one per line."""
    for one in definitions:
        parameters = ", ".join(f"{name}={value}" for name, value in one.parameters.items())
        console.print(
            f"built {one.name}: {one.kind} on {one.column}{f' ({parameters})' if parameters else ''}",
            soft_wrap=True,
        )
    if not definitions:
        console.print("the table has every index that the policy says")


def print_caught_up(console: Console, report: CatchUpReport) -> None:
    """Print what was done for each index."""
    for one in report.indexes:
        done = (
            one.action
            if one.action == "nothing to do"
            else f"{one.action}, {counted(one.fragments, 'fragment')} more"
        )
        console.print(f"{one.name}: {done}; {counted(one.segments, 'segment')}", soft_wrap=True)
    if not report.indexes:
        console.print("no index is maintained")
    console.print(f"the base table has version {report.version}")


def _behind(behind: Mapping[UUID, int]) -> str:
    if len(behind) > _SHARDS_NAMED:
        return f"{counted(sum(behind.values()), 'generation')} of {counted(len(behind), 'shard')}"
    parts = [f"{short_id(shard)}: {counted(count, 'generation')}" for shard, count in behind.items()]
    return ", ".join(parts) or "none"
