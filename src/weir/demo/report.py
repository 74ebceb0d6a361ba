"""What the demo did, in figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weir.demo.crash import CrashCheck
from weir.demo.questions import Answer
from weir.demo.verdict import Verdict

__all__ = ["DemoReport", "MergeTotals"]


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


@dataclass(frozen=True, slots=True)
class DemoReport:
    """What the demo did.

    Parameters
    ----------
    uri : str
        The table, which may be gone by now.
    flights, events : int
        Size of the stream.
    stream_seconds : float
        From the start of the first writer until the last event was durable, crash and recovery included.
    seconds : float
        All of it, checks included.
    latency_p50, latency_p99 : float
        Seconds from sending a batch until it was durable.
    crash : CrashCheck or None
        What the killed writer left; None if the stream was over before it could be killed.
    answers : tuple of Answer
        Questions that were asked in mid-stream.
    merged_in_background : MergeTotals
        Merges while the stream ran.
    verdicts : tuple of Verdict
        The comparisons at the end.
    """

    uri: str
    flights: int
    events: int
    stream_seconds: float
    seconds: float
    latency_p50: float
    latency_p99: float
    crash: CrashCheck | None
    answers: tuple[Answer, ...]
    merged_in_background: MergeTotals
    verdicts: tuple[Verdict, ...]

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
        return {
            "passed": self.passed,
            "uri": self.uri,
            "flights": self.flights,
            "events": self.events,
            "stream_seconds": round(self.stream_seconds, 3),
            "seconds": round(self.seconds, 3),
            "events_per_second": round(self.events_per_second, 1),
            "ack_latency_ms": {
                "p50": round(self.latency_p50 * 1e3, 3),
                "p99": round(self.latency_p99 * 1e3, 3),
            },
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
