"""Commands that keep a table in order: merge and collect garbage."""

from __future__ import annotations

from typing import Annotated

import typer

from weir.cli.options import AsJson, NoFsync, StorageOptions, Uri
from weir.cli.options import open_table as _open
from weir.cli.options import output_for as _output
from weir.cli.progress import progress_bar
from weir.cli.text_values import parse_duration
from weir.services.merge import MergeReport
from weir.table import Table

__all__ = ["collect_garbage", "merge", "merge_with_progress"]


def merge(
    uri: Uri, json: AsJson = False, storage_option: StorageOptions = None, no_fsync: NoFsync = False
) -> None:
    """Merge what has been flushed into the base table."""
    _output(json).merged(merge_with_progress(_open(uri, storage_option, no_fsync)))


def collect_garbage(
    uri: Uri,
    horizon: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="How long something stays after it was marked, so that whoever reads it can finish: "
            "90s, 15m, 2h, 1d.",
        ),
    ] = "15m",
    version_retention: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Also remove versions of the base table that were superseded for longer. Default: all stay.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be deleted and why, and write nothing.")
    ] = False,
    json: AsJson = False,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Delete what nobody needs any more: mark it, and delete what was marked a horizon ago."""
    waits = parse_duration(horizon, "horizon")
    retained = None if version_retention is None else parse_duration(version_retention, "version-retention")
    table = _open(uri, storage_option, no_fsync)
    with progress_bar("collect") as progress:
        report = table.collect_garbage(
            waits,
            dry_run,
            on_progress=lambda done, total: progress(done / total, f"{done} of {total} steps"),
            version_retention=retained,
        )
    _output(json).collected(report)


def merge_with_progress(table: Table) -> MergeReport:
    """Merge what has been flushed, with a progress bar."""
    with progress_bar("merge") as progress:
        return table.merge(
            on_progress=lambda done, total: progress(done / total, f"{done} of {total} shards")
        )
