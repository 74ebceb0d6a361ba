"""Telling people and programs what was measured: text, JSON, Markdown and a plot."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import ticker
from rich.console import Console
from rich.table import Table

from benchmarks.context import Result, Scale
from benchmarks.environment import Environment
from benchmarks.harness import Case, judge
from benchmarks.page import figures_as_markdown, milliseconds

__all__ = ["print_environment", "print_result", "write_json", "write_markdown", "write_plot"]

_OWN_COLOUR, _PEER_COLOUR, _TARGET_COLOUR, _GRID_COLOUR = "#1b6ca8", "#7a838c", "#c8102e", "#e3e6e8"


def print_environment(console: Console, environment: Environment, scale: Scale) -> None:
    """Say what the run runs on."""
    console.print(environment.describe(), highlight=False)
    if scale.quick:
        console.print("A trial at a small size: its ratios say nothing about the targets.", style="yellow")


def print_result(console: Console, result: Result) -> None:
    """Print the figures of one subject, and its targets."""
    console.print(f"\n[bold]{result.title}[/]", highlight=False)
    for condition in result.conditions:
        console.print(f"  - {condition}", highlight=False)
    with_rows = any(case.rows_per_call for case in result.cases)
    figures = Table("work", "contender", *(("rows/s",) if with_rows else ()), "p50 ms", "p95 ms", "calls")
    for column in figures.columns[2:]:
        column.justify = "right"
    targets = Table("work", "target", "p50 ratio", "by round", "")
    for case in result.cases:
        for at, one in enumerate(case.measurements):
            figures.add_row(
                "" if at else case.name,
                one.contender,
                *((f"{case.rows_per_call / one.mean:,.0f}",) if with_rows else ()),
                milliseconds(one.median),
                milliseconds(one.quantile(0.95)),
                str(len(one.seconds)),
                end_section=at == len(case.measurements) - 1,
            )
        for target in case.targets:
            verdict = judge(case, target)
            targets.add_row(
                case.name,
                f"{target.contender}: {target.describe()} {verdict.reference}",
                f"{verdict.ratio:.2f}",
                f"{verdict.lowest:.2f} to {verdict.highest:.2f}",
                "[green]met[/]" if verdict.met else "[red]missed[/]",
            )
    console.print(figures)
    console.print(targets)


def write_json(path: Path, environment: Environment, scale: Scale, results: Sequence[Result]) -> None:
    """Write every figure for programs. Times are in seconds."""
    document = {
        "environment": asdict(environment),
        "scale": asdict(scale),
        "results": [_result_fields(result) for result in results],
    }
    path.write_text(json.dumps(document, indent=2) + "\n")


def write_markdown(path: Path, environment: Environment, results: Sequence[Result]) -> None:
    """Write the conditions, medians and targets for the documentation."""
    path.write_text("\n".join(figures_as_markdown(environment, result) for result in results))


def write_plot(path: Path, results: Sequence[Result]) -> None:
    """Draw the medians, one panel per subject; a bar beside Weir's dot shows what the target asks.

    Without a measured case there is nothing to draw, and no file.
    """
    mpl.use("Agg")
    from matplotlib import pyplot

    # Some subjects tell in words what they found.
    results = [result for result in results if result.cases]
    if not results:
        return
    heights = [sum(len(case.measurements) + 1 for case in result.cases) for result in results]
    figure, axes = pyplot.subplots(
        len(results),
        figsize=(10, 0.2 * sum(heights) + 1.1 * len(results)),
        height_ratios=heights,
        squeeze=False,
        layout="constrained",
    )
    for panel, result in zip(axes[:, 0], results, strict=True):
        _draw(panel, result)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def _draw(panel: Any, result: Result) -> None:
    at = 0
    ticks: list[int] = []
    labels: list[str] = []
    for case in result.cases:
        limits = {target.contender: judge(case, target).limit for target in case.targets}
        for one in case.measurements:
            colour = _OWN_COLOUR if one.contender.startswith("weir") else _PEER_COLOUR
            rounds = [statistics.median(block) * 1e3 for block in one.blocks]
            panel.plot([min(rounds), max(rounds)], [at, at], color=colour, linewidth=1)
            panel.plot(one.median * 1e3, at, "o", color=colour, markersize=5)
            limit = limits.get(one.contender, 0.0) * 1e3
            if limit:
                panel.plot([limit, limit], [at - 0.48, at + 0.48], color=_TARGET_COLOUR, linewidth=2)
            panel.annotate(
                milliseconds(one.median),
                (max(*rounds, limit), at),
                (5, 0),
                textcoords="offset points",
                va="center",
                fontsize=7,
            )
            ticks.append(at)
            labels.append(f"{case.name} · {one.contender}")
            at += 1
        at += 1
    panel.set_yticks(ticks, labels, fontsize=7)
    panel.set_ylim(at - 1.2, -0.8)
    panel.set_xscale("log")
    panel.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    panel.xaxis.set_major_formatter("{x:g}")
    panel.xaxis.set_minor_formatter(ticker.NullFormatter())
    panel.margins(x=0.08)
    panel.grid(axis="x", color=_GRID_COLOUR, linewidth=0.5)
    panel.set_axisbelow(True)
    panel.set_xlabel(
        "milliseconds, logarithmic: median of all calls, line from the lowest to the highest median of a "
        "round; red: what the target asks of Weir",
        fontsize=7,
    )
    panel.set_title(result.title, fontsize=9, loc="left")
    panel.tick_params(axis="x", labelsize=7)
    panel.spines[["top", "right"]].set_visible(False)


def _result_fields(result: Result) -> dict[str, Any]:
    return {
        "subject": result.subject,
        "title": result.title,
        "conditions": list(result.conditions),
        "cases": [_case_fields(case) for case in result.cases],
    }


def _case_fields(case: Case) -> dict[str, Any]:
    return {
        "name": case.name,
        "rows_per_call": case.rows_per_call,
        "measurements": [
            {
                "contender": one.contender,
                "calls": len(one.seconds),
                "median": one.median,
                "mean": one.mean,
                "p95": one.quantile(0.95),
                "minimum": one.seconds[0],
                "round_medians": [statistics.median(block) for block in one.blocks],
            }
            for one in case.measurements
        ],
        "targets": [
            {
                "contender": target.contender,
                "target": target.describe(),
                "reference": verdict.reference,
                "ratio": verdict.ratio,
                "lowest_round": verdict.lowest,
                "highest_round": verdict.highest,
                "met": verdict.met,
            }
            for target in case.targets
            for verdict in (judge(case, target),)
        ],
    }
