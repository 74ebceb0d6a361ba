"""The figures of a run as Markdown, and their places in the page of benchmarks.

Each subject has a place in ``docs/benchmarks.md``, which a run with ``--page`` fills. What stands there is as
it was measured; what is said about it stands around.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from benchmarks.context import Result
from benchmarks.environment import Environment
from benchmarks.harness import Case, Measurement, Verdict, judge

__all__ = ["figures_as_markdown", "milliseconds", "page_with_figures", "places"]

_PLACE = re.compile(
    r"(?P<start><!-- measured: (?P<subject>[\w-]+) -->\n)(?P<figures>.*?)(?P<end><!-- /measured -->)",
    re.DOTALL,
)
_WIDTH = 120


def places(page: str) -> list[str]:
    """Return the subjects that have a place in a page, in its order."""
    return [found["subject"] for found in _PLACE.finditer(page)]


def page_with_figures(page: str, environment: Environment, result: Result) -> str:
    """Return a page with the figures of a subject in its place.

    Raises
    ------
    LookupError
        The subject has no place in the page.
    """
    figures = figures_as_markdown(environment, result)
    for place in _PLACE.finditer(page):
        if place["subject"] == result.subject:
            return page[: place.start("figures")] + figures + page[place.end("figures") :]
    raise LookupError(f"no place for {result.subject}: add `<!-- measured: {result.subject} -->`")


def figures_as_markdown(environment: Environment, result: Result) -> str:
    """Return what was measured of one subject: its conditions, a table, and what the run ran on."""
    lines = [f"**{result.title[:1].upper()}{result.title[1:]}**", ""]
    for condition in result.conditions:
        lines += textwrap.wrap(f"- {condition}", _WIDTH, subsequent_indent="  ", break_long_words=False)
    if result.cases:
        lines += ["", *_table(result.cases)]
    lines += ["", *textwrap.wrap(f"Run on: {environment.summary()}.", _WIDTH, break_long_words=False), ""]
    return "\n".join(lines)


def _table(cases: Sequence[Case]) -> list[str]:
    with_rows = any(case.rows_per_call for case in cases)
    figures = ["median, ms", "p95", *(["rows/s"] if with_rows else []), "compared", "by round"]
    lines = [
        _row(["work", "contender", *figures, "target"]),
        _row(["---", "---", *["--:"] * len(figures), "---"]),
    ]
    for case in cases:
        verdicts = {target.contender: judge(case, target) for target in case.targets}
        for at, one in enumerate(case.measurements):
            rows = f"{case.rows_per_call / one.mean:,.0f}" if case.rows_per_call else ""
            lines.append(
                _row(
                    [
                        "" if at else case.name,
                        *_measured(one),
                        *([rows] if with_rows else []),
                        *_judged(verdicts.get(one.contender)),
                    ]
                )
            )
    return lines


def _measured(one: Measurement) -> list[str]:
    return [one.contender, milliseconds(one.median), milliseconds(one.quantile(0.95))]


def _judged(verdict: Verdict | None) -> list[str]:
    if verdict is None:
        return ["", "", ""]
    missed = "" if verdict.met else ": **missed**"
    return [
        f"{verdict.ratio:.2f}",
        f"{verdict.lowest:.2f} to {verdict.highest:.2f}",
        f"{verdict.target.describe()} {verdict.reference}{missed}",
    ]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def milliseconds(seconds: float) -> str:
    """Return a time as text: its first three digits, or all before the point.

    Examples
    --------
    >>> milliseconds(0.0004567), milliseconds(0.0123), milliseconds(4.462)
    ('0.457', '12.3', '4,462')
    """
    value = seconds * 1e3
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3g}"
