"""The rows that an ingest skipped, as text."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from weir.cli.ingest import IngestReport
from weir.cli.output.phrases import counted
from weir.cli.printable_text import printable

__all__ = ["print_bad_rows"]


def print_bad_rows(console: Console, report: IngestReport) -> None:
    """Print how many rows were bad and where they are, and the first ten with their reasons."""
    if not report.bad_rows:
        return
    kept = f", to {report.quarantine}" if report.quarantine else ""
    fate = "found" if report.dry_run else "left out"
    console.print(f"{counted(report.bad_rows, 'bad row')} {fate}{kept}", soft_wrap=True)
    file = None
    for one in report.first_bad:
        if one.file != file:
            file = one.file
            console.print(Text(f"  {printable(file)}"), soft_wrap=True)
        # One line each, however long the value that does not fit.
        line = printable(f"    row {one.row}: {one.reason}")
        console.print(Text(line, no_wrap=True, overflow="ellipsis"))
    if report.bad_rows > len(report.first_bad):
        console.print(f"  and {report.bad_rows - len(report.first_bad):,} more")
