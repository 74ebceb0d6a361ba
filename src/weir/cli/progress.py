"""Progress bars and live lines: on standard error, and only in a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["live_line", "progress_bar"]


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[float | None, str], None]]:
    """Show a progress bar during a long operation.

    Parameters
    ----------
    what : str
        The name of the operation.

    Yields
    ------
    callable
        Takes the completed fraction from 0 to 1, or None if unknown, and a short status text.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        SpinnerColumn,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    console = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[detail]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=None, detail="")

        def update(fraction: float | None, detail: str) -> None:
            total = None if fraction is None else 1.0
            progress.update(task, total=total, completed=fraction or 0.0, detail=detail)

        yield update


@contextmanager
def live_line(text: str) -> Iterator[Callable[[str], None]]:
    """Show a status line during an operation without a known end.

    Parameters
    ----------
    text : str
        What it says at first.

    Yields
    ------
    callable
        Takes the new text of the line.
    """
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(text, total=None)
        yield lambda newer: progress.update(task, description=newer)
