"""A micro-batch as Spark reports it: what came in, when it was over, and when its rows had arrived.

A Spark Connect server writes its reports as another library does than a classic session: they have no sum
of the rows of all sources, and of what was observed they have values and schema apart.
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
"""Name under which a pipeline observes the rows of its source."""

UNFIT = "weir_unfit"
"""Name under which a pipeline with a quarantine observes the rows that do not fit its table."""

QUANTILES = tuple((number + 0.5) / 100 for number in range(100))
"""Of the instants of arrival of a micro-batch: each stands for a hundredth of its rows."""

PARTS = ("trigger", "listing", "planning", "commit", "checkpoint")
"""What the time from the arrival of a row until it is visible is made of.

``trigger``: until a micro-batch begins that takes it. ``listing``: the source says what there is.
``planning``: of the query. ``commit``: its tasks read, transform and check rows, and the sink commits
them. ``checkpoint``: Spark notes what the micro-batch takes, and that it is over.
"""

_STAGES = {
    "listing": ("latestOffset", "getBatch"),
    "planning": ("queryPlanning",),
    "commit": ("addBatch",),
    "checkpoint": ("walCommit", "commitOffsets"),
}


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One micro-batch that is over: its rows are durable, and a strong reader sees them.

    Parameters
    ----------
    number : int
        Which of the query. It says nothing of how much was taken in: the first after a crash may take what
        two were meant to.
    rows : int
        Rows of the source.
    began, ended : float
        When, in seconds since 1970. At the end the sink has committed and Spark has noted so.
    arrivals : tuple of float
        When its rows had arrived, in seconds since 1970, ascending: so many that each stands for the same
        number of rows.
    behind : mapping of str to float
        What the source says about what it has not handed out yet, as Spark names it.
    ends : tuple
        For each source, up to where it has been read, as the source says it: of files ``{"logOffset": 9}``.
    bad_records : int
        Records that could not be read, and rows that do not fit the table, where these are left out.
    stages : mapping of str to float
        Seconds of all :data:`PARTS` but the first, as Spark has measured them.
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
        """For each of the arrivals, the seconds until the end of the micro-batch."""
        return tuple(max(self.ended - arrival, 0.0) for arrival in self.arrivals)

    @property
    def parts(self) -> dict[str, float]:
        """What the wait of its rows is made of, by :data:`PARTS`, in seconds."""
        waited = [max(self.began - arrival, 0.0) for arrival in self.arrivals]
        return {"trigger": statistics.fmean(waited) if waited else 0.0, **self.stages}

    @classmethod
    def of(cls, progress: Mapping[str, Any]) -> MicroBatch:
        """Read what Spark reports, as its JSON has it, of a classic session or of Spark Connect.

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
    """Return what the wait of the rows of some micro-batches is made of, each counting by its rows.

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
    """Return an offset as the value it is: some reports have its JSON as text."""
    if not isinstance(said, str):
        return said
    try:
        return json.loads(said)
    except ValueError:
        return said


def _observed(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row that was observed by the names of its columns."""
    if "schema" not in row:
        return row
    names = [column["name"] for column in row["schema"]["fields"]]
    return dict(zip(names, row["values"], strict=True))


def _behind(sources: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return figures of the sources about what waits, such as Kafka's offsets behind the latest."""
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
