"""Command line: ``python -m benchmarks [--only NAME] [--quick] [--output DIR] [--page FILE]``."""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from benchmarks.context import Context, Result, Scale
from benchmarks.disk import touch_memory
from benchmarks.environment import Environment
from benchmarks.page import page_with_figures
from benchmarks.report import print_environment, print_result, write_json, write_markdown, write_plot
from benchmarks.subjects import DEFAULT, GROUPS, NAMES, subject

__all__ = ["main"]


def main() -> None:
    """Run the subjects and write what came out."""
    arguments = _parse()
    console = Console()
    scale = _scale(arguments)
    results = []
    with tempfile.TemporaryDirectory(prefix="weir-bench-", dir=arguments.directory) as scratch:
        environment = Environment.of(Path(scratch))
        print_environment(console, environment, scale)
        touch_memory(Path(scratch), scale.touched_mebibytes)
        for name in _names(arguments.only):
            with console.status(name) as status:
                result = subject(name)(Context(Path(scratch), scale, status.update))
            print_result(console, result)
            results.append(result)
            if arguments.page is not None:
                _put_into(arguments.page, environment, result)
    arguments.output.mkdir(parents=True, exist_ok=True)
    write_json(arguments.output / "results.json", environment, scale, results)
    write_markdown(arguments.output / "results.md", environment, results)
    write_plot(arguments.output / "results.png", results)
    written = ", ".join(sorted(path.name for path in arguments.output.glob("results.*")))
    console.print(f"\nWritten to {arguments.output}: {written}", highlight=False)


def _put_into(page: Path, environment: Environment, result: Result) -> None:
    text = page.read_text(encoding="utf-8")
    page.write_text(page_with_figures(text, environment, result), encoding="utf-8")


def _scale(arguments: argparse.Namespace) -> Scale:
    scale = Scale.trial() if arguments.quick else Scale.full()
    if arguments.largest_base_rows is not None:
        scale = replace(scale, largest_base_rows=arguments.largest_base_rows)
    if arguments.base_rows is not None:
        scale = replace(scale, spark=replace(scale.spark, base_rows=arguments.base_rows))
    if arguments.events is not None:
        scale = replace(scale, events=arguments.events)
    return scale


def _names(asked: list[str] | None) -> list[str]:
    """Return the subjects to run, in order and once each."""
    names = (name for one in asked or DEFAULT for name in GROUPS.get(one, [one]))
    return list(dict.fromkeys(names))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Compare Weir with pylance's own MemWAL writer and readers."
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=sorted([*NAMES, *GROUPS]),
        help="one subject; may be repeated (default: all but chroma, namespaces, million, cold, "
        "event-growth, and those of Spark; 'spark' and 'service' stand for several)",
    )
    parser.add_argument(
        "--base-rows",
        type=int,
        metavar="N",
        help="rows of the base table that streams write to (default: 1,000,000)",
    )
    parser.add_argument(
        "--events",
        type=int,
        metavar="N",
        help="about how many events event-growth writes into one store (default: 10,000,000)",
    )
    parser.add_argument("--quick", action="store_true", help="a small size: a trial, not a measurement")
    parser.add_argument(
        "--largest-base-rows",
        type=int,
        metavar="N",
        help="the largest base table that merges are measured on, of 1, 5 and 20 million rows "
        "(default: 1 million, with --quick none)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("benchmarks/results"),
        metavar="DIR",
        help="where the results go (default: %(default)s)",
    )
    parser.add_argument(
        "--page",
        type=Path,
        metavar="FILE",
        help="a page with places for the figures, which are filled",
    )
    parser.add_argument(
        "--directory",
        type=Path,
        metavar="DIR",
        help="where the tables are written (default: the temporary directory)",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
