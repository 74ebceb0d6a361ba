"""What a check or a run of a pipeline says, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from weir.cli.output.phrases import counted, print_pairs

if TYPE_CHECKING:
    from weir.spark.pipeline import PipelineCheck, PipelineSummary

__all__ = ["print_pipeline_check", "print_pipeline_summary"]


def print_pipeline_check(console: Console, found: PipelineCheck) -> None:
    """Print the table, and the columns if Spark was asked for them."""
    console.print(f"{found.uri}: {'the table exists' if found.exists else 'the table will be created'}")
    print_pairs(console, {"source": _columns(found.source_columns), "rows": _columns(found.columns)})


def print_pipeline_summary(console: Console, summary: PipelineSummary) -> None:
    """Print a line for the stream, and one for each service."""
    console.print(
        f"{counted(summary.rows, 'row')} in {counted(summary.batches, 'micro-batch', 'micro-batches')} "
        f"in {summary.seconds:.1f} s"
    )
    for name, state in summary.services.items():
        failed = f", {counted(state.failures, 'failure')}" if state.failures else ""
        last = f" (last: {state.last_error})" if state.last_error else ""
        left = ", broken off" if name in summary.unfinished else ""
        console.print(f"{name}: {counted(state.runs, 'run')}{failed}{last}{left}", soft_wrap=True)


def _columns(columns: dict[str, str]) -> str:
    return ", ".join(f"{name}: {kind}" for name, kind in columns.items())
