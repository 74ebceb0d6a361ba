"""Line input with history and completion, in a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["line_editor"]

_KEPT_LINES = 1000

ReadLine = Callable[[str], str]
"""Takes a prompt and returns a line; raises EOFError where the input ends."""


@contextmanager
def line_editor(history: str, complete: Callable[[str], list[str]]) -> Iterator[ReadLine]:
    """Give lines of standard input; in a terminal they can be edited and called back.

    Parameters
    ----------
    history : str
        Name of the file in the home directory that keeps the last thousand lines.
    complete : callable
        Returns the words that the beginning of one may become.
    """
    if not sys.stdin.isatty():
        yield lambda prompt: input()
        return
    try:
        import readline
    except ImportError:
        yield input
        return
    path = Path.home() / history
    with suppress(OSError):
        readline.read_history_file(path)
    found: list[str] = []

    def nth(text: str, state: int) -> str | None:
        if state == 0:
            found[:] = complete(text)
        return found[state] if state < len(found) else None

    before = readline.get_completer()
    readline.set_completer(nth)
    readline.set_completer_delims(" \t\n,()[]=<>!;.")
    readline.parse_and_bind("tab: complete")
    try:
        yield input
    finally:
        readline.set_completer(before)
        readline.set_history_length(_KEPT_LINES)
        with suppress(OSError):
            readline.write_history_file(path)
