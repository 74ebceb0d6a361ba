"""Arguments and options shared by several commands, and their conversion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

import weir
from weir.cli.text_values import parse_storage_options

if TYPE_CHECKING:
    from weir.cli.output import Output

__all__ = [
    "AsJson",
    "AtToken",
    "Consistent",
    "NoFsync",
    "StorageOptions",
    "Uri",
    "open_table",
    "output_for",
]

Uri = Annotated[
    str,
    typer.Argument(
        metavar="URI",
        help="The table: a directory, or a location such as s3://bucket/table.",
        show_default=False,
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print JSON: an object for a result, a line for each row.")
]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="NAME=VALUE",
        help="An option of the object store, named as in Lance. May be repeated.",
        show_default=False,
    ),
]
NoFsync = Annotated[
    bool,
    typer.Option(
        "--no-fsync",
        help="On local disk, do not wait until writes are on disk: faster, and safe if a process dies, but "
        "not if the power fails.",
    ),
]
Consistent = Annotated[
    str,
    typer.Option(
        metavar="strong|snapshot|bounded(MS)",
        help="What the read sees: every acknowledged write; only the base table and the published shard "
        "snapshots; or a state at most MS milliseconds old.",
    ),
]
AtToken = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="TOKEN|TAG|TIME",
        help="Read the table as it was: at a token or a tag of 'weir snapshot', or at a time with its zone, "
        "such as 2026-01-31T12:00Z.",
        show_default=False,
    ),
]


def open_table(uri: str, storage_option: list[str] | None, no_fsync: bool) -> weir.Table:
    """Open the table that the options name."""
    options = parse_storage_options(storage_option or ())
    return weir.open(uri, storage_options=options, fsync=not no_fsync)


def output_for(as_json: bool) -> Output:
    """Return how results are shown."""
    # Only what shows the result is imported: a program that reads JSON does not wait for tables and colours.
    if as_json:
        from weir.cli.output.json_output import JsonOutput

        return JsonOutput()
    from weir.cli.output.text_output import TextOutput

    return TextOutput()
