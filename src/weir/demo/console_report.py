"""The console report of both demos: answers, the crash, and the verdict."""

from __future__ import annotations

from weir.demo.crash import CrashCheck
from weir.demo.display import Display
from weir.demo.questions import Answer
from weir.demo.report import DemoReport

__all__ = ["tell_answer", "tell_conclusion", "tell_crash"]

_WRONG = "bold red"


def tell_answer(answer: Answer, display: Display) -> None:
    """Say how a question was answered, and whether that is right."""
    display.say(
        f"? {answer.question}: {answer.answer}  "
        f"[{answer.seconds * 1e3:.0f} ms, {'right' if answer.right else 'WRONG'}]",
        style=None if answer.right else _WRONG,
    )


def tell_crash(check: CrashCheck, display: Display) -> None:
    """Say what a killed process has left."""
    display.say(
        f"after the crash: {check.acknowledged_events:,} events were acknowledged, "
        f"{check.acknowledged_rows:,} rows must be there, {check.lost:,} are lost, "
        f"{check.undeleted:,} deleted ones are back; {check.ahead:,} rows are newer than acknowledged",
        style=None if check.passed else _WRONG,
    )


def tell_conclusion(report: DemoReport, display: Display) -> None:
    """Say what the demo has done, and the verdict."""
    merged, latency = report.merged_in_background, report.latency
    right = sum(answer.right for answer in report.answers)
    display.say(
        f"{report.events:,} events durable in {report.stream_seconds:.1f} s "
        f"({report.events_per_second:,.0f} rows/s, start and crash included), "
        f"{latency.describe()}; "
        f"{merged.generations} generations in {merged.merges} merges meanwhile; "
        f"{right} of {len(report.answers)} answers right"
    )
    if report.parts:
        parts = ", ".join(f"{name} {seconds * 1e3:,.0f}" for name, seconds in report.parts.items())
        display.say(f"that is in the mean, in ms: {parts}")
    for start in report.at_starts:
        display.say(f"not among them: events that waited {start.describe()}")
    if report.crash is None:
        display.say("the stream was over before it could be killed", style="yellow")
    for verdict in report.verdicts:
        display.say(verdict.describe(), style=None if verdict.identical else _WRONG)
    if report.passed:
        display.say(f"VERDICT: identical, row for row ({report.seconds:.1f} s in all)", style="bold green")
    else:
        display.say(f"VERDICT: DIFFERENT ({report.seconds:.1f} s in all)", style=_WRONG)
