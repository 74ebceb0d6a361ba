"""Unclosed quotes in CSV, which would otherwise make the rest of the file one value.

The reader of CSV asks this stream for bytes. It passes on whole rows; of a row whose last quote is open when
the file ends, or for longer than a value may be, it says so, and goes on with the line after it.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from functools import cache

from weir.cli.input.prefixed import PrefixedStream

__all__ = ["LONGEST_ROW", "OPEN_QUOTE", "ClosedQuotes"]

OPEN_QUOTE = "a quote opens a value and is never closed"

LONGEST_ROW = 1 << 20
"""Bytes of a row with an open quote, from which on it is taken for one that is never closed."""

_BLOCK_BYTES = 1 << 20


class ClosedQuotes(io.BufferedIOBase):
    """The bytes of a CSV file without rows whose quotes are never closed.

    Parameters
    ----------
    stream : PrefixedStream
        The whole file.
    delimiter : str
        Between values.
    on_open_quote : callable
        Told of the line, counted from 1, in which such a quote opens, and the text of the row up to the
        end of that line. Returns what the reader gets in place of it; or raises.
    """

    def __init__(
        self, stream: PrefixedStream, delimiter: str, on_open_quote: Callable[[int, bytes], bytes]
    ) -> None:
        self._stream = stream
        self._whole_rows, self._closed_part = _patterns(delimiter)
        self._on_open_quote = on_open_quote
        self._held = b""
        self._ready = memoryview(b"")
        self._line = 1
        self._is_over = False

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int | None = -1) -> bytes:
        """Return the next ``size`` bytes; fewer only where the file ends."""
        parts = []
        left = -1 if size is None or size < 0 else size
        while left and (part := self.read1(left)):
            parts.append(part)
            left -= len(part) if left > 0 else 0
        return b"".join(parts)

    def read1(self, size: int = -1) -> bytes:
        """Return the next bytes that are there, at most ``size``; none only where the file ends."""
        while not self._ready and not self._is_over:
            self._fill()
        end = len(self._ready) if size < 0 else size
        taken, self._ready = bytes(self._ready[:end]), self._ready[end:]
        return taken

    def _fill(self) -> None:
        arrived = self._stream.read1(_BLOCK_BYTES)
        self._is_over = not arrived
        self._held += arrived
        end = self._end_of_whole_rows()
        while (opened := self._open_quote(end)) is not None and (
            self._is_over or len(self._held) - end > LONGEST_ROW
        ):
            end = self._without_row(end, opened)
        if self._is_over:
            end = len(self._held)
        self._pass_on(end)

    def _end_of_whole_rows(self) -> int:
        """Return where the first row begins that is not there as a whole."""
        if b'"' not in self._held:
            return max(self._held.rfind(b"\n"), self._held.rfind(b"\r")) + 1
        found = self._whole_rows.match(self._held)
        return 0 if found is None else found.end()

    def _open_quote(self, start: int) -> int | None:
        """Return where a quote opens that is not closed, in the row that begins there; None if none does."""
        found = self._closed_part.match(self._held, start)
        end = start if found is None else found.end()
        return end if end < len(self._held) and self._held[end : end + 1] == b'"' else None

    def _without_row(self, start: int, opened: int) -> int:
        """Put something else in the place of a row; return where the next one that is cut begins."""
        line_end = self._held.find(b"\n", opened)
        line_end = len(self._held) if line_end < 0 else line_end + 1
        line = self._line + self._held.count(b"\n", 0, opened)
        instead = self._on_open_quote(line, self._held[start:line_end].rstrip(b"\r\n"))
        self._pass_on(start)
        self._line += self._held.count(b"\n", 0, line_end)
        self._ready = memoryview(bytes(self._ready) + instead)
        self._held = self._held[line_end:]
        return self._end_of_whole_rows()

    def _pass_on(self, end: int) -> None:
        rows, self._held = self._held[:end], self._held[end:]
        self._line += rows.count(b"\n")
        self._ready = memoryview(bytes(self._ready) + rows) if self._ready else memoryview(rows)


@cache
def _patterns(delimiter: str) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Return what matches rows that are there as a whole, and a row up to a quote that is not closed.

    As the reader sees it, a quote opens at the beginning of a value only; anywhere else it is a character.
    """
    between = b"\r\n" + re.escape(delimiter.encode())
    quoted = rb'(?<![^%b])"[^"]*+(?:""[^"]*+)*+"' % between
    row = rb'(?:[^"\r\n]++|%b|(?<=[^%b])")*+' % (quoted, between)
    return re.compile(rb"(?:%b(?:\r\n|\n|\r))*+" % row), re.compile(row)
