"""The state of a table as text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table as TextTable
from rich.text import Text

from weir.cli.output.index_text import print_indexes
from weir.cli.output.phrases import counted, print_pairs
from weir.maintenance.status import ShardReport, TableStatus

__all__ = ["print_status"]


def print_status(console: Console, status: TableStatus) -> None:
    """Print the table as a whole, and a table of its shards."""
    console.print(status.uri)
    print_pairs(
        console,
        {
            "base table": f"version {status.base_version}, {counted(status.base_rows, 'row')}",
            "primary key": ", ".join(status.primary_key),
            "sharded by": status.sharded_by,
            "waiting": f"{counted(status.unmerged_rows, 'row')} for a merge, "
            f"{status.unflushed_rows:,} for a flush",
            "lag": f"{status.lag_seconds:.1f} s",
            "note": status.library_note,
        },
    )
    if status.shards:
        _print_shards(console, status.shards)
    else:
        console.print("no shard has been written yet")
    for warning in status.warnings:
        console.print(f"[yellow]warning[/]: {warning}", highlight=False)
    if status.indexes:
        print_indexes(console, status.indexes)


def _print_shards(console: Console, reports: Sequence[ShardReport]) -> None:
    shards = TextTable(box=None, pad_edge=False, header_style="bold")
    for name in ("shard", "rows with", "state", "lease"):
        shards.add_column(name)
    for name in ("epoch", "WAL", "generation", "merged", "unmerged", "rows", "unflushed", "lag"):
        shards.add_column(name, justify="right")
    for shard in reports:
        shards.add_row(
            str(shard.shard_id)[:8],
            Text(", ".join(f"{name}={value}" for name, value in shard.values.items())),
            shard.state,
            shard.lease,
            str(shard.epoch),
            str(shard.wal_position),
            str(shard.current_generation),
            str(shard.merged_generation),
            str(shard.unmerged_generations),
            f"{shard.unmerged_rows:,}",
            f"{shard.unflushed_rows:,}",
            f"{shard.lag_seconds:.1f} s",
        )
    console.print(shards)
