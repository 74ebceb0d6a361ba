"""The command that shows what Weir does."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from weir.cli.options import AsJson, NoFsync
from weir.demo.embedded import run_embedded_demo
from weir.demo.options import DemoOptions

__all__ = ["demo"]


def demo(
    directory: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where the table is built, to be kept. Default: a temporary directory.",
            show_default=False,
        ),
    ] = None,
    flights: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Only the first N flights. Default: all 336,776.", show_default=False
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides when the writer is killed.")] = 2013,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the temporary directory.")] = False,
    embedded: Annotated[
        bool, typer.Option("--embedded", help="Without Spark: a writer process, and merges on threads.")
    ] = False,
    json: AsJson = False,
    no_fsync: NoFsync = False,
) -> None:
    """Stream a year of real flights into a table, kill the writer, and check every row."""
    options = DemoOptions(directory=directory, flights=flights, seed=seed, keep=keep, fsync=not no_fsync)
    report = run_embedded_demo(options, to_standard_error=json)
    if json:
        print(dumps(report.to_dict()))
    if not report.passed:
        raise typer.Exit(1)
