"""The figures of a demo run."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from weir.demo.crash import CrashCheck
from weir.demo.questions import Answer
from weir.demo.verdict import Verdict

__all__ = ["DemoReport", "Latency", "MergeTotals"]


@dataclass(frozen=True, slots=True)
class MergeTotals:
    """All merges together.

    Parameters
    ----------
    merges : int
        Merges that found something to merge.
    generations, rows_upserted, rows_deleted : int
        What they merged.
    """

    merges: int = 0
    generations: int = 0
    rows_upserted: int = 0
    rows_deleted: int = 0

    def with_merge(self, generations: int, rows_upserted: int, rows_deleted: int) -> MergeTotals:
        """Return the totals with one merge more."""
        return MergeTotals(
            self.merges + 1,
            self.generations + generations,
            self.rows_upserted + rows_upserted,
            self.rows_deleted + rows_deleted,
        )


@dataclass(frozen=True, slots=True)
class Latency:
    """How long something took, over and over.

    Parameters
    ----------
    name : str
        What, as programs name it: ``ack_latency`` or ``freshness``.
    text : str
        What, for people.
    p50, p99 : float
        Seconds.
    """

    name: str
    text: str
    p50: float
    p99: float

    @classmethod
    def of(cls, name: str, text: str, seconds: Sequence[float]) -> Latency:
        """Return the percentiles of some measurements.

        Examples
        --------
        >>> Latency.of("ack_latency", "durable in", [0.1, 0.2, 0.3]).describe()
        'durable in 200 ms (p50), 298 ms (p99)'
        """
        if len(seconds) < 2:
            only = seconds[0] if seconds else 0.0
            return cls(name, text, only, only)
        cuts = statistics.quantiles(seconds, n=100, method="inclusive")
        return cls(name, text, cuts[49], cuts[98])

    def describe(self) -> str:
        """Return it for people, in milliseconds."""
        digits = 1 if self.p50 < 0.1 else 0
        p50, p99 = (f"{seconds * 1e3:,.{digits}f} ms" for seconds in (self.p50, self.p99))
        return f"{self.text} {p50} (p50), {p99} (p99)"


@dataclass(frozen=True, slots=True)
class DemoReport:
    """What the demo did.

    Parameters
    ----------
    uri : str
        The table, which may already be gone.
    flights, events : int
        Size of the stream.
    stream_seconds : float
        From the start of the first process that writes until the last event was durable, crash and
        recovery included.
    seconds : float
        All of it, checks included.
    latency : Latency
        How long events took.
    crash : CrashCheck or None
        What the killed process left; None if the stream was over before it could be killed.
    answers : tuple of Answer
        Questions that were asked in mid-stream.
    merged_in_background : MergeTotals
        Merges while the stream ran.
    verdicts : tuple of Verdict
        The comparisons at the end.
    at_starts : tuple of Latency, default ()
        How long those events took that waited for a process to start: they are not in ``latency``.
    parts : mapping of str to float, default empty
        What ``latency`` is made of, in seconds, in the mean.
    """

    uri: str
    flights: int
    events: int
    stream_seconds: float
    seconds: float
    latency: Latency
    crash: CrashCheck | None
    answers: tuple[Answer, ...]
    merged_in_background: MergeTotals
    verdicts: tuple[Verdict, ...]
    at_starts: tuple[Latency, ...] = ()
    parts: Mapping[str, float] = field(default_factory=dict)

    @property
    def events_per_second(self) -> float:
        """Durable events in each second of the stream."""
        return self.events / self.stream_seconds if self.stream_seconds > 0 else 0.0

    @property
    def passed(self) -> bool:
        """Whether nothing was lost, every answer was right and every row is as it should be."""
        return (
            (self.crash is None or self.crash.passed)
            and all(answer.right for answer in self.answers)
            and all(verdict.identical for verdict in self.verdicts)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values that JSON can hold."""
        crash, merged = self.crash, self.merged_in_background
        parts = {name: round(seconds * 1e3, 3) for name, seconds in self.parts.items()}
        return {
            "passed": self.passed,
            "uri": self.uri,
            "flights": self.flights,
            "events": self.events,
            "stream_seconds": round(self.stream_seconds, 3),
            "seconds": round(self.seconds, 3),
            "events_per_second": round(self.events_per_second, 1),
            **{
                f"{one.name}_ms": {"p50": round(one.p50 * 1e3, 3), "p99": round(one.p99 * 1e3, 3)}
                for one in (self.latency, *self.at_starts)
            },
            **({f"{self.latency.name}_parts_ms": parts} if parts else {}),
            "crash": None
            if crash is None
            else {
                "acknowledged_events": crash.acknowledged_events,
                "acknowledged_rows": crash.acknowledged_rows,
                "lost": crash.lost,
                "undeleted": crash.undeleted,
                "durable_but_not_acknowledged": crash.ahead,
            },
            "answers": [
                {
                    "question": answer.question,
                    "answer": answer.answer,
                    "right": answer.right,
                    "ms": round(answer.seconds * 1e3, 3),
                }
                for answer in self.answers
            ],
            "merged_in_background": {
                "merges": merged.merges,
                "generations": merged.generations,
                "rows_upserted": merged.rows_upserted,
                "rows_deleted": merged.rows_deleted,
            },
            "verdicts": [
                {
                    "what": verdict.what,
                    "identical": verdict.identical,
                    "rows": verdict.rows,
                    "expected_rows": verdict.expected_rows,
                    "columns": verdict.columns,
                    "differences": [str(one) for one in verdict.differences[:100]],
                }
                for verdict in self.verdicts
            ],
        }
