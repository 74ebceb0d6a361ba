"""Spark's report on a micro-batch: its rows, when it ended, and when its rows arrived.

Spark Connect serialises reports differently from a classic session: they lack the total rows of all sources,
and have values and schema of observations separately.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

__all__ = ["OBSERVED", "PARTS", "QUANTILES", "UNFIT", "MicroBatch", "mean_parts"]

OBSERVED = "weir_source"
"""Name of the observation of source rows."""

UNFIT = "weir_unfit"
"""Name of the observation of rows that do not fit the table, in a pipeline with a quarantine."""

QUANTILES = tuple((number + 0.5) / 100 for number in range(100))
"""Quantiles of the arrival times of a micro-batch: each stands for a hundredth of its rows."""

PARTS = ("trigger", "listing", "planning", "commit", "checkpoint")
"""The parts of the time from the arrival of a row until it is visible.

``trigger``: until the micro-batch that takes it begins. ``listing``: the source lists new data. ``planning``:
of the query. ``commit``: tasks read, transform and check rows, and the sink commits them. ``checkpoint``:
Spark records what the micro-batch takes, and that it is complete.
"""

_STAGES = {
    "listing": ("latestOffset", "getBatch"),
    "planning": ("queryPlanning",),
    "commit": ("addBatch",),
    "checkpoint": ("walCommit", "commitOffsets"),
}


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A completed micro-batch: its rows are durable, and visible to strong readers.

    Parameters
    ----------
    number : int
        Its number in the query. It does not imply an amount of data: the first one after a crash may take the
        data of two.
    rows : int
        Rows of the source.
    began, ended : float
        In seconds since 1970. At the end the sink has committed and Spark has recorded it.
    arrivals : tuple of float
        Quantiles of the arrival times of its rows, in seconds since 1970, ascending; each stands for the same
        number of rows.
    behind : mapping of str to float
        The backlog that the source reports, with Spark's names.
    ends : tuple
        For each source, the end position in its own format, such as ``{"logOffset": 9}`` for files.
    bad_records : int
        Unreadable records and rows that do not fit the table, if these are quarantined.
    stages : mapping of str to float
        Seconds of all :data:`PARTS` but the first, as measured by Spark.
    """

    number: int
    rows: int
    began: float
    ended: float
    arrivals: tuple[float, ...] = ()
    behind: Mapping[str, float] = field(default_factory=dict)
    ends: tuple[Any, ...] = ()
    bad_records: int = 0
    stages: Mapping[str, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended - self.began

    @property
    def waits(self) -> tuple[float, ...]:
        """For each arrival, the seconds until the end of the micro-batch."""
        return tuple(max(self.ended - arrival, 0.0) for arrival in self.arrivals)

    @property
    def parts(self) -> dict[str, float]:
        """The parts of the wait of its rows, by :data:`PARTS`, in seconds."""
        waited = [max(self.began - arrival, 0.0) for arrival in self.arrivals]
        return {"trigger": statistics.fmean(waited) if waited else 0.0, **self.stages}

    @classmethod
    def of(cls, progress: Mapping[str, Any]) -> MicroBatch:
        """Parse the JSON report of a classic session or of Spark Connect.

        Examples
        --------
        >>> MicroBatch.of({"batchId": 3, "timestamp": "2013-01-01T10:00:00.500Z",
        ...     "durationMs": {"triggerExecution": 250}, "observedMetrics": {},
        ...     "sources": [{"numInputRows": 10, "metrics": {}}]}).ended
        1357034400.75
        """
        began = datetime.fromisoformat(progress["timestamp"]).timestamp()
        durations = progress.get("durationMs", {})
        took = durations.get("triggerExecution", 0) / 1e3
        metrics = progress.get("observedMetrics", {})
        observed = _observed(metrics.get(OBSERVED) or {})
        unfit = _observed(metrics.get(UNFIT) or {})
        sources = progress.get("sources", ())
        rows = int(observed["rows"] if "rows" in observed else sum(one["numInputRows"] for one in sources))
        arrivals = tuple(instant / 1e6 for instant in observed.get("arrivals") or ())
        if rows and not arrivals:
            # Nothing says when rows arrived: Spark saw them when the micro-batch began, at the latest.
            arrivals = (began,)
        return cls(
            number=int(progress["batchId"]),
            rows=rows,
            began=began,
            ended=began + took,
            arrivals=arrivals if rows else (),
            behind=_behind(sources),
            ends=tuple(_offset(one.get("endOffset")) for one in sources),
            bad_records=int(observed.get("unreadable") or 0) + int(unfit.get("rows") or 0),
            stages={
                part: sum(durations.get(stage, 0) for stage in stages) / 1e3
                for part, stages in _STAGES.items()
            },
        )


def mean_parts(batches: Sequence[MicroBatch]) -> dict[str, float]:
    """Return the parts of the wait of the rows of some micro-batches, weighted by their rows.

    Examples
    --------
    >>> slow = MicroBatch(1, 10, 4.0, 6.0, (1.0,), stages={"commit": 2.0})
    >>> fast = MicroBatch(2, 30, 6.0, 7.0, (5.0,), stages={"commit": 1.0})
    >>> mean_parts([slow, fast])
    {'trigger': 1.5, 'commit': 1.25}
    """
    rows = sum(batch.rows for batch in batches)
    of_all = [(batch.rows / rows, batch.parts) for batch in batches if batch.rows]
    names = [name for name in PARTS if any(name in parts for _, parts in of_all)]
    return {name: sum(share * parts.get(name, 0.0) for share, parts in of_all) for name in names}


def _offset(said: Any) -> Any:
    """Return an offset as a value: some reports have its JSON as text."""
    if not isinstance(said, str):
        return said
    try:
        return json.loads(said)
    except ValueError:
        return said


def _observed(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an observed row by column name."""
    if "schema" not in row:
        return row
    names = [column["name"] for column in row["schema"]["fields"]]
    return dict(zip(names, row["values"], strict=True))


def _behind(sources: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the sources' figures on their backlog, such as Kafka's offsets behind the latest."""
    found: dict[str, float] = {}
    for source in sources:
        for name, value in (source.get("metrics") or {}).items():
            try:
                number = float(value)
            except (TypeError, ValueError):
                continue
            if math.isfinite(number):
                found[name] = found.get(name, 0.0) + number
    return found
