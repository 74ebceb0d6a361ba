"""A child process: started, read line by line, sent commands, killed."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, TypeVar

from weir.errors import WriterError

__all__ = ["Heard", "ListenedProcess"]

Message = TypeVar("Message")


@dataclass(frozen=True, slots=True)
class Heard(Generic[Message]):
    """A message as it arrived.

    Parameters
    ----------
    message : object
        The output of the process.
    at : float
        When, in seconds of the monotonic clock.
    """

    message: Message
    at: float


class ListenedProcess(Generic[Message]):
    """A running process. Use it as a context manager, so that it never outlives its parent's interest.

    Parameters
    ----------
    command : sequence of str
        What to start. Each line on its standard output is a message.
    read : callable
        Makes a message of a line.
    kill_at : callable, optional
        Send SIGKILL as soon as this is true of a message, which the process does not know.
    whole_group : bool, default False
        Whether to kill the processes that it has started too, such as a Java with its Python.
    """

    def __init__(
        self,
        command: Sequence[str],
        read: Callable[[str], Message],
        kill_at: Callable[[Message], bool] | None = None,
        *,
        whole_group: bool = False,
    ) -> None:
        self._read = read
        self._kill_at = kill_at
        self._whole_group = whole_group
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            start_new_session=whole_group,
        )
        self._heard: queue.SimpleQueue[Heard[Message] | None] = queue.SimpleQueue()
        self._listener = threading.Thread(target=self._listen, name="weir-demo-listener", daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def say(self, line: str) -> None:
        """Write a line to the standard input of the process; one that has ended does not hear it."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def next(self, seconds: float) -> Heard[Message] | None:
        """Return the next message, None if there was none for so long.

        Raises
        ------
        EOFError
            If there will be no more: the process has ended.
        """
        try:
            heard = self._heard.get(timeout=seconds)
        except queue.Empty:
            return None
        if heard is None:
            raise EOFError
        return heard

    def was_killed(self) -> bool:
        """Wait for the end of the process, and return whether it was killed.

        Raises
        ------
        WriterError
            If it failed by itself; with its output.
        """
        code = self._process.wait()
        if code == -signal.SIGKILL and self._kill_at is not None:
            return True
        if code != 0:
            self._complaints.seek(0)
            said = self._complaints.read().decode(errors="replace").strip().splitlines()
            raise WriterError(
                f"the process ended with code {code}: {said[-1] if said else 'it said nothing'}",
                where=f"process {self.pid}",
            )
        return False

    def __enter__(self) -> ListenedProcess[Message]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._kill()
        self._process.wait()
        self._listener.join()
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        self._process.stdout.close()
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._complaints.close()

    def _kill(self) -> None:
        if self._whole_group:
            # It leads its group, which has its number.
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        else:
            self._process.kill()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith("\n"):
                # The process died in the middle of a line, which does not count.
                break
            message = self._read(line)
            self._heard.put(Heard(message, time.monotonic()))
            if self._kill_at is not None and self._kill_at(message):
                self._kill()
        self._heard.put(None)
