"""The command that runs the demo."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weir.cli.options import AsJson, NoFsync
from weir.errors import MissingDependencyError

if TYPE_CHECKING:
    from weir.demo.options import DemoOptions
    from weir.demo.report import DemoReport

__all__ = ["demo"]


def demo(
    directory: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where to build the table, which is then kept. Default: a temporary directory.",
            show_default=False,
        ),
    ] = None,
    flights: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Only the first N flights. Default: all 336,776.", show_default=False
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides when the writing process is killed.")] = 2013,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the temporary directory.")] = False,
    embedded: Annotated[
        bool, typer.Option("--embedded", help="Without Spark: a writer process, and merges on threads.")
    ] = False,
    json: AsJson = False,
    no_fsync: NoFsync = False,
) -> None:
    """Stream a year of real flights into a table on Spark, kill the driver, and check every row."""
    from weir.demo.embedded import run_embedded_demo
    from weir.demo.options import DemoOptions

    options = DemoOptions(directory=directory, flights=flights, seed=seed, keep=keep, fsync=not no_fsync)
    run = run_embedded_demo if embedded else _run_spark_demo
    report = run(options, to_standard_error=json)
    if json:
        print(dumps(report.to_dict()))
    if not report.passed:
        raise typer.Exit(1)


def _run_spark_demo(options: DemoOptions, *, to_standard_error: bool) -> DemoReport:
    from weir.demo.source import flights_archive

    flights_archive()
    try:
        # Here, since the extra may not be installed.
        from weir.spark.java import check_java

        check_java()
    except MissingDependencyError as error:
        raise MissingDependencyError(
            error.message,
            where=error.where,
            hint=f"{error.hint}. Without Spark there is a smaller demo: weir demo --embedded",
        ) from error
    from weir.demo.on_spark import run_spark_demo

    return run_spark_demo(options, to_standard_error=to_standard_error)
