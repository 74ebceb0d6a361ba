"""The result of checking or running a pipeline, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from weir.cli.output.phrases import counted, elapsed, print_pairs

if TYPE_CHECKING:
    from weir.spark.pipeline import PipelineCheck, PipelineState, PipelineSummary

__all__ = ["print_pipeline_check", "print_pipeline_status", "print_pipeline_summary"]


def print_pipeline_check(console: Console, found: PipelineCheck) -> None:
    """Print the target, and the columns if Spark was asked for them."""
    console.print(f"{found.uri}: the {found.what} {'exists' if found.exists else 'will be created'}")
    print_pairs(console, {"source": _columns(found.source_columns), "rows": _columns(found.columns)})


def print_pipeline_status(console: Console, state: PipelineState) -> None:
    """Print how far the stream is, what waits, and what is in quarantine."""
    console.print(
        f"{state.name}: {state.uri if state.exists else 'has not made its table yet'}", soft_wrap=True
    )
    sample = state.sample
    print_pairs(
        console,
        {
            "stream": "" if state.checkpoint is None else state.checkpoint.describe(),
            "base table": counted(state.base_rows, "row"),
            "waiting": f"{counted(state.unmerged_rows, 'row')} for a merge, "
            f"{state.unflushed_rows:,} for a flush",
            "lag": elapsed(state.lag_seconds),
            "quarantine": ""
            if not state.quarantine
            else f"{counted(state.bad_records, 'record')} in {state.quarantine}",
            "last sample": ""
            if sample is None
            else f"{sample.get('at')}: {counted(sample.get('total_rows', 0), 'row')} since the start, "
            f"{sample.get('rows_per_second', 0):,.0f} rows/s",
        },
    )


def print_pipeline_summary(console: Console, summary: PipelineSummary) -> None:
    """Print a line for the stream, and one for each service."""
    console.print(
        f"{counted(summary.rows, 'row')} in {counted(summary.batches, 'micro-batch', 'micro-batches')} "
        f"in {summary.seconds:.1f} s"
    )
    if summary.bad_records:
        console.print(f"{counted(summary.bad_records, 'bad record')} in {summary.quarantine}", soft_wrap=True)
    for name, state in summary.services.items():
        failed = f", {counted(state.failures, 'failure')}" if state.failures else ""
        last = f" (last: {state.last_error})" if state.last_error else ""
        left = ", broken off" if name in summary.unfinished else ""
        console.print(f"{name}: {counted(state.runs, 'run')}{failed}{last}{left}", soft_wrap=True)


def _columns(columns: dict[str, str]) -> str:
    return ", ".join(f"{name}: {kind}" for name, kind in columns.items())
