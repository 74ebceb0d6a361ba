"""Commands on Spark pipelines: check, run and query the state of one described in a file."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weir.cli.options import AsJson
from weir.cli.options import output_for as _output
from weir.cli.progress import live_line
from weir.engine.stop_signals import handle_stop_signals

if TYPE_CHECKING:
    from weir.spark.pipeline import MetricsSample, PipelineFile

__all__ = ["check", "help_if_alone", "run", "status"]

File = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="The pipeline, as a TOML file.", show_default=False),
]


def help_if_alone(context: typer.Context) -> None:
    """Check a pipeline that a file describes, run it on Spark, ask how it is."""
    if context.invoked_subcommand is None:
        print(context.get_help())


def check(
    file: File,
    no_spark: Annotated[
        bool,
        typer.Option("--no-spark", help="Check only the file and the table, without starting Spark."),
    ] = False,
    json: AsJson = False,
) -> None:
    """Check a pipeline, and write nothing: its file, its table, and on Spark its source and transform."""
    described = _read(file)
    if no_spark:
        found = described.pipeline.check()
    else:
        from weir.spark.pipeline.own_session import own_session

        with own_session(described.session, described.pipeline.name) as spark:
            found = described.pipeline.check(spark)
    _output(json).pipeline_checked(found)


def run(
    file: File,
    log: Annotated[
        bool,
        typer.Option(
            "--log", help="Write log events to standard error, including the metrics, not only warnings."
        ),
    ] = False,
    metrics_port: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT",
            help="Serve the newest sample of the metrics to Prometheus, at /metrics. Without a host, only on "
            "this machine. Needs the extra weir-lance[service].",
            show_default=False,
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Run a pipeline until its stream ends or it receives SIGINT or SIGTERM.

    After a signal, the running micro-batch is finished, the services are stopped, and the exit code is 0. A
    second signal ends everything at once, as does one that arrives while Spark is starting.
    """
    from weir.spark.pipeline.own_session import own_session
    from weir.spark.pipeline.prometheus import PrometheusSamples, parse_address

    described = _read(file)
    if log:
        _log_to_standard_error()
    answer = _output(json)
    prometheus = PrometheusSamples(described.pipeline.name)
    address = None if metrics_port is None else parse_address(metrics_port)
    with (
        nullcontext() if address is None else prometheus.served(*address),
        # While Spark starts, and when the pipeline has ended, there is nothing to finish; and the exception
        # that Python makes of SIGINT may get lost where Spark starts Java.
        handle_stop_signals(_end_at_once),
        own_session(described.session, described.pipeline.name) as spark,
        live_line("starting") as show,
    ):

        def on_sample(sample: MetricsSample) -> None:
            prometheus.note(sample)
            show(_line(sample))
            answer.pipeline_sampled(sample)

        summary = described.pipeline.run(spark, on_sample=on_sample, on_second_signal=_end_at_once)
    answer.pipeline_ended(summary)


def status(file: File, json: AsJson = False) -> None:
    """Print the progress of a pipeline, what is waiting and what is in quarantine, without starting Spark."""
    from weir.spark.pipeline import pipeline_state

    _output(json).pipeline_status(pipeline_state(_read(file).pipeline))


def _read(file: Path) -> PipelineFile:
    from weir.spark.pipeline import read_pipeline_file

    described = read_pipeline_file(file)
    # Where a source is a function, its module may be beside the file.
    sys.path.insert(0, str(described.directory.resolve()))
    return described


def _end_at_once(number: int) -> None:
    # Java ends with the program that has started it.
    os._exit(128 + number)


def _log_to_standard_error() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("weir")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


def _line(sample: MetricsSample) -> str:
    parts = [f"{sample.total_rows:,} rows", f"{sample.rows_per_second:,.0f} rows/s"]
    if sample.freshness_p50 is not None and sample.freshness_p99 is not None:
        parts.append(f"fresh in {sample.freshness_p50:.1f} s (p50), {sample.freshness_p99:.1f} s (p99)")
    parts.append(f"{sample.unmerged_generations:,} generations unmerged")
    if sample.total_bad_records:
        parts.append(f"{sample.total_bad_records:,} bad records")
    failing = [name for name, state in sample.services.items() if state.failures_in_a_row]
    if failing:
        parts.append(f"failing: {', '.join(failing)}")
    return "  ".join(parts)
