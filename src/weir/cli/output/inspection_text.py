"""Stored objects and their problems, as text."""

from __future__ import annotations

from rich.console import Console

from weir.cli.facts_text import print_facts
from weir.cli.output.interface import note
from weir.cli.output.phrases import counted
from weir.cli.output.rows_text import print_rows
from weir.maintenance.inspect import Description
from weir.maintenance.verify import VerifyReport

__all__ = ["print_description", "print_findings"]

_MOST_ROWS = 100
"""Rows of an object that are printed for people."""


def print_description(console: Console, description: Description) -> None:
    """Print what an object says, one fact per line, lists of objects as tables."""
    console.print(f"{description.kind} {description.where}", soft_wrap=True)
    print_facts(console, description.facts)
    if description.rows is not None:
        shown = description.rows.slice(0, _MOST_ROWS)
        print_rows(console, iter(shown.to_batches()), shown.schema)
        if shown.num_rows < description.rows.num_rows:
            note(f"these are the first {_MOST_ROWS} rows; --json gives all {description.rows.num_rows:,}")


def print_findings(console: Console, report: VerifyReport) -> None:
    """Print one line for each finding, and a sum."""
    for finding in report.findings:
        console.print(str(finding), soft_wrap=True)
    errors = len(report.errors)
    warnings = len(report.findings) - errors
    result = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
    console.print(
        f"{counted(report.shards, 'shard')}, {counted(report.generations, 'generation')}, "
        f"{report.entries:,} log entries, base table version {report.base_version}: {result}"
    )
