"""The progress display of the demo: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

__all__ = ["Display"]

_SECONDS_BETWEEN_LINES = 2.0


class Display:
    """Shows events of the demo as lines, and below them how far the stream has got.

    Parameters
    ----------
    to_standard_error : bool
        Whether to leave standard output to something else.
    """

    def __init__(self, *, to_standard_error: bool) -> None:
        self._console = Console(stderr=to_standard_error, highlight=False, markup=False, emoji=False)
        self._progress = Progress(
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._progress.add_task("starting", total=1.0)
        self._last_line = time.monotonic()

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def say(self, text: str, style: str | None = None) -> None:
        """Print a line that stays."""
        self._console.print(Text(text, style or ""), soft_wrap=True)

    def move(self, fraction: float, text: str) -> None:
        """Show how far the stream has got; without a terminal, every two seconds."""
        self._progress.update(self._task, completed=fraction, description=text)
        now = time.monotonic()
        if not self._console.is_terminal and now - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = now
            self.say(f"{fraction:6.1%}  {text}")
