"""Commands that examine what is stored: one object, or all of them together."""

from __future__ import annotations

from typing import Annotated

import typer

from weir.cli.options import AsJson, StorageOptions, Uri
from weir.cli.options import open_table as _open
from weir.cli.options import output_for as _output
from weir.cli.output import note
from weir.cli.progress import progress_bar
from weir.cli.runners import OnSpark, runner_on
from weir.cli.text_values import parse_storage_options

__all__ = ["inspect", "verify"]


def inspect(
    uri: Annotated[
        str,
        typer.Argument(
            metavar="URI",
            help="The table, or any object of it, also a copy of one elsewhere.",
            show_default=False,
        ),
    ],
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="WHAT",
            help="What to print: details, snapshots, marks, pin/ID, tag/NAME, consumer/NAME, "
            "region/NAME/GENERATION, region/NAME/GENERATION/ENTRY, or SHARD, "
            "SHARD/manifest, SHARD/manifest/VERSION, SHARD/wal/POSITION, SHARD/generation/NUMBER, "
            "SHARD/lease, where SHARD is the start of an id; or a path below the table. Default: an "
            "overview.",
            show_default=False,
        ),
    ] = None,
    rows: Annotated[
        bool, typer.Option("--rows", help="Print the rows of a log entry or a generation too.")
    ] = False,
    json: AsJson = False,
    storage_option: StorageOptions = None,
) -> None:
    """Print the content of an object of a table; damaged objects as far as they can be read."""
    from weir.first_index.inspect import inspect_regions
    from weir.maintenance.inspection.target import split_location
    from weir.storage.open import open_store

    root, path = split_location(uri, what)
    store = open_store(root, parse_storage_options(storage_option or ()), fsync=False)
    description = inspect_regions(store, path, rows=rows)
    _output(json).described(description)
    if description.problems:
        for problem in description.problems:
            note(f"error: {' '.join(problem.split())}")
        raise typer.Exit(1)


def verify(
    uri: Uri,
    skip_base_rows: Annotated[
        bool, typer.Option("--skip-base-rows", help="Do not read the rows of the base table.")
    ] = False,
    spark: OnSpark = None,
    json: AsJson = False,
    storage_option: StorageOptions = None,
) -> None:
    """Check every invariant of a table that storage can show; the exit code is 1 if there is an error."""
    table = _open(uri, storage_option, no_fsync=True)
    with runner_on(spark) as runner, progress_bar("verify") as progress:
        report = table.maintenance.verify(
            base_rows=not skip_base_rows,
            runner=runner,
            on_progress=lambda done, total: progress(done / max(total, 1), f"{done} of {total} tasks"),
        )
    _output(json).verified(report)
    if not report.passed:
        raise typer.Exit(1)
