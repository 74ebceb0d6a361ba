"""Runners for the tasks of a service: threads of this process, or Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from weir.cli.progress import progress_bar

if TYPE_CHECKING:
    from weir.engine.runner import Runner

__all__ = ["OnSpark", "runner_on"]

OnSpark = Annotated[
    str | None,
    typer.Option(
        "--spark",
        metavar="MASTER",
        help="Run the tasks on Spark: a master such as local[4], spark://HOST:7077 or yarn, or a Spark "
        "Connect server such as sc://HOST:15002. Needs the extra weir-lance[spark]. Default: threads of this "
        "process.",
        show_default=False,
    ),
]


@contextmanager
def runner_on(spark: str | None) -> Iterator[Runner]:
    """Yield the runner that an option names; a Spark session is started before, and stopped after.

    Parameters
    ----------
    spark : str, optional
        A Spark master, or the location of a Spark Connect server. None: threads of this process.

    Raises
    ------
    WeirError
        If the extra is not installed, or there is no Spark there.
    """
    if spark is None:
        from weir.engine.runner import ThreadRunner

        yield ThreadRunner()
        return
    with progress_bar("spark") as progress:
        progress(None, f"starting on {spark}")
        # Here, since it takes a second to import, and the extra may not be installed.
        from weir.spark import SparkRunner
        from weir.spark.session import start_session

        session = start_session(spark, "weir")
    try:
        yield SparkRunner(session)
    finally:
        session.stop()
