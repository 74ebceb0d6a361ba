"""The report of a garbage collection, as text."""

from __future__ import annotations

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table as TextTable

from weir.cli.output.phrases import counted, short_id
from weir.maintenance.garbage.report import GarbageReport

__all__ = ["print_garbage"]


def print_garbage(console: Console, report: GarbageReport) -> None:
    """Print how much was deleted and how much waits; then all that is garbage or old, and why."""
    deleted = f"{counted(report.deleted_objects, 'object')} ({decimal(report.deleted_bytes)})"
    waiting = f"{report.waiting_objects:,} ({decimal(report.waiting_bytes)})"
    if report.dry_run:
        console.print(
            f"{deleted} would be deleted, {waiting} would wait for the horizon; nothing was written"
        )
    else:
        console.print(f"{deleted} deleted, {waiting} marked, to be deleted after the horizon")
    if report.former_versions:
        former = counted(report.former_versions, "former version")
        console.print(f"{former} of the base table kept; --version-retention removes old ones")
    if not report.items and not report.kept:
        return
    shown = TextTable(box=None, pad_edge=False, header_style="bold")
    for name in ("", "what", "shard", "why"):
        shown.add_column(name)
    for name in ("objects", "size"):
        shown.add_column(name, justify="right")
    for item in report.items:
        size = decimal(item.nbytes) if item.nbytes else ""
        state = "delete" if item.deleted else "wait"
        shown.add_row(state, item.name, short_id(item.shard_id), item.reason, f"{item.objects:,}", size)
    for kept in report.kept:
        shown.add_row("keep", kept.name, short_id(kept.shard_id), kept.reason, "", "")
    console.print(shown)
