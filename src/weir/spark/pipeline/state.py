"""The state of a pipeline, found without Spark from its table and files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from weir.errors import TableNotFoundError
from weir.spark.pipeline.bad_records import quarantine_of
from weir.spark.pipeline.checkpoint import CheckpointState, read_checkpoint
from weir.spark.pipeline.destination import find_destination
from weir.spark.pipeline.pipeline import Pipeline
from weir.spark.pipeline.target import find_table

__all__ = ["PipelineState", "pipeline_state"]

_TAIL_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class PipelineState:
    """The state of a pipeline.

    Parameters
    ----------
    name : str
        The pipeline.
    uri : str
        Its table, or event store.
    exists : bool
        Whether it exists.
    checkpoint : CheckpointState, optional
        The progress of the stream; None if the checkpoint is not on a local disk.
    base_rows, unmerged_rows, unflushed_rows : int
        Rows of the base table, and rows that wait for a merge and for a flush.
    lag_seconds : float
        Age of the oldest row that is not in the base table.
    quarantine : str
        The table with bad records; empty if bad records stop the stream.
    bad_records : int
        The number of records in it.
    sample : dict, optional
        The newest sample in the metrics file.
    """

    name: str
    uri: str
    exists: bool
    checkpoint: CheckpointState | None
    base_rows: int = 0
    unmerged_rows: int = 0
    unflushed_rows: int = 0
    lag_seconds: float = 0.0
    quarantine: str = ""
    bad_records: int = 0
    sample: dict[str, Any] | None = None


def pipeline_state(pipeline: Pipeline) -> PipelineState:
    """Return the state of a pipeline. Nothing is written.

    Raises
    ------
    WeirError
        If the table differs from the pipeline's description.
    """
    target = find_destination(pipeline.table)
    directory = _local(pipeline.checkpoint)
    status = None if target is None else target.table.status()
    quarantine, bad = "", 0
    if pipeline.on_bad_record == "quarantine":
        beside = quarantine_of(pipeline.table, pipeline.quarantine.uri)
        quarantine = beside.uri
        try:
            found = find_table(beside)
        except TableNotFoundError:
            found = None
        bad = 0 if found is None else found.scan().count()
    return PipelineState(
        name=pipeline.name,
        uri=pipeline.table.uri if target is None else target.uri,
        exists=target is not None,
        checkpoint=None if directory is None else read_checkpoint(directory),
        base_rows=0 if status is None else status.base_rows,
        unmerged_rows=0 if status is None else status.unmerged_rows,
        unflushed_rows=0 if status is None else status.unflushed_rows,
        lag_seconds=0.0 if status is None else status.lag_seconds,
        quarantine=quarantine,
        bad_records=bad,
        sample=_newest_sample(pipeline.metrics.file),
    )


def _local(location: str) -> Path | None:
    parts = urlsplit(location)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if parts.scheme else Path(location)


def _newest_sample(file: str | None) -> dict[str, Any] | None:
    if file is None:
        return None
    try:
        with Path(file).open("rb") as stream:
            stream.seek(max(stream.seek(0, 2) - _TAIL_BYTES, 0))
            lines = stream.read().splitlines()
        sample: dict[str, Any] = json.loads(lines[-1])
    except (OSError, ValueError, IndexError):
        return None
    return sample
