"""Indexes, and what was done for them, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from rich.console import Console
from rich.table import Table as TextTable
from rich.text import Text

from weir.cli.output.phrases import counted, short_id
from weir.indexing.definition import IndexDefinition
from weir.maintenance.catch_up import CatchUpReport
from weir.maintenance.index_status import IndexReport

__all__ = ["print_caught_up", "print_definitions", "print_indexes"]


def print_indexes(console: Console, indexes: Sequence[IndexReport]) -> None:
    """Print a table of indexes, and how far they are behind."""
    shown = TextTable(box=None, pad_edge=False, header_style="bold")
    for name in ("index", "kind", "column", "maintained"):
        shown.add_column(name)
    for name in ("segments", "rows", "unindexed"):
        shown.add_column(name, justify="right")
    shown.add_column("behind")
    for index in indexes:
        shown.add_row(
            Text(index.name),
            index.kind,
            Text(index.column),
            "yes" if index.is_maintained else "no",
            str(index.segments),
            f"{index.rows:,}",
            f"{index.unindexed_rows:,}",
            _behind(index.behind),
        )
    console.print(shown)


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
    parts = [f"{short_id(shard)}: {counted(count, 'generation')}" for shard, count in behind.items()]
    return ", ".join(parts) or "none"
