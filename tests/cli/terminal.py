"""The program in a pseudo-terminal, as a person sees it."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

__all__ = ["Terminal"]

_PATIENCE_SECONDS = 150.0
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]|\x07|\r")
_HALF_AN_ESCAPE = re.compile(r"\x1b(\[[0-9;?]*)?\Z")


class Terminal:
    """``weir`` with some arguments, in a terminal that is so many characters wide."""

    def __init__(self, columns: int, home: Path, *arguments: object) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        environment = {**os.environ, "HOME": str(home), "TERM": "xterm", "INPUTRC": "/dev/null"}
        environment.pop("COLUMNS", None)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "weir.cli.main", *map(str, arguments)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
        )
        os.close(slave)
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held_back = ""
        self._said = ""
        self._seen = 0

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def until(self, wanted: str) -> str:
        """Wait until it says something, and return what it has said since the last time."""
        give_up = time.monotonic() + _PATIENCE_SECONDS
        while (found := self._said.find(wanted, self._seen)) < 0:
            assert self._read(give_up), f"{wanted!r} was not said: {self._said[self._seen :]!r}"
        said = self._said[self._seen : found + len(wanted)]
        self._seen = found + len(wanted)
        return said

    def rest(self) -> tuple[int, str]:
        """Wait for the end; return the exit code and what it has said since the last time."""
        give_up = time.monotonic() + _PATIENCE_SECONDS
        while self._read(give_up):
            pass
        code = self._process.wait(timeout=_PATIENCE_SECONDS)
        os.close(self._master)
        return code, self._said[self._seen :]

    def _read(self, give_up: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(give_up - time.monotonic(), 0))
        if not ready:
            return False
        try:
            data = os.read(self._master, 65_536)
        except OSError:
            # The other side is closed.
            return False
        text = self._held_back + self._decoder.decode(data)
        # What is read may end in the middle of a character or of an escape sequence.
        cut = _HALF_AN_ESCAPE.search(text)
        end = len(text) if cut is None else cut.start()
        self._held_back = text[end:]
        self._said += _ESCAPE.sub("", text[:end])
        return bool(data)
