"""Command line: ``python -m benchmarks [--only NAME] [--quick] [--output DIR]``."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from rich.console import Console

from benchmarks import (
    changes,
    concurrent_puts,
    following,
    get,
    growth,
    indexed,
    ingest,
    recovery,
    scan,
    search,
)
from benchmarks.context import Context, Scale, Subject
from benchmarks.disk import touch_memory
from benchmarks.environment import Environment
from benchmarks.report import print_environment, print_result, write_json, write_markdown, write_plot

__all__ = ["main"]

_SUBJECTS: dict[str, Subject] = {
    "ingest": ingest.run,
    "concurrent": concurrent_puts.run,
    "recovery": recovery.run,
    "get": get.run,
    "scan": scan.run,
    "following": following.run,
    "changes": changes.run,
    "search": search.run,
    "indexed": indexed.run,
    "growth": growth.run,
}


def main() -> None:
    """Run the subjects and write what came out."""
    arguments = _parse()
    console = Console()
    scale = Scale.trial() if arguments.quick else Scale.full()
    results = []
    with tempfile.TemporaryDirectory(prefix="weir-bench-", dir=arguments.directory) as scratch:
        environment = Environment.of(Path(scratch))
        print_environment(console, environment, scale)
        touch_memory(Path(scratch), scale.touched_mebibytes)
        for name in arguments.only or _SUBJECTS:
            with console.status(name) as status:
                result = _SUBJECTS[name](Context(Path(scratch), scale, status.update))
            print_result(console, result)
            results.append(result)
    arguments.output.mkdir(parents=True, exist_ok=True)
    write_json(arguments.output / "results.json", environment, scale, results)
    write_markdown(arguments.output / "results.md", environment, results)
    write_plot(arguments.output / "results.png", results)
    console.print(f"\nWritten to {arguments.output}: results.json, results.md, results.png", highlight=False)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Compare Weir with pylance's own MemWAL writer and readers."
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=sorted(_SUBJECTS),
        help="one subject; may be repeated (default: all)",
    )
    parser.add_argument("--quick", action="store_true", help="a small size: a trial, not a measurement")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("benchmarks/results"),
        metavar="DIR",
        help="where the results go (default: %(default)s)",
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
