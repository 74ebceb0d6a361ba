"""The writer process as its parent sees it: started, listened to, killed."""

from __future__ import annotations

import queue
import signal
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from types import TracebackType

from weir.demo.writer import Acknowledgement, WriterTask
from weir.errors import WriterError

__all__ = ["Heard", "WriterProcess"]


@dataclass(frozen=True, slots=True)
class Heard:
    """An acknowledgement as it arrived.

    Parameters
    ----------
    acknowledgement : Acknowledgement
        What the writer said.
    at : float
        When, in seconds of the monotonic clock.
    """

    acknowledgement: Acknowledgement
    at: float


class WriterProcess:
    """A running writer. Use it as a context manager, so that it never outlives its parent's interest.

    Parameters
    ----------
    task : WriterTask
        What it is to do.
    kill_after : int, optional
        Send SIGKILL as soon as this batch, or a later one, is acknowledged. The writer has other
        batches on their way then, so it dies while it is writing.
    """

    def __init__(self, task: WriterTask, kill_after: int | None = None) -> None:
        self._kill_after = kill_after
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            task.command(), stdout=subprocess.PIPE, stderr=self._complaints, text=True
        )
        self._heard: queue.SimpleQueue[Heard | None] = queue.SimpleQueue()
        self._listener = threading.Thread(target=self._listen, name="weir-demo-listener", daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def next(self, seconds: float) -> Heard | None:
        """Return the next acknowledgement, None if there was none for so long.

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
            If it failed by itself; with what it said.
        """
        code = self._process.wait()
        if code == -signal.SIGKILL and self._kill_after is not None:
            return True
        if code != 0:
            self._complaints.seek(0)
            said = self._complaints.read().decode(errors="replace").strip().splitlines()
            raise WriterError(
                f"the writer process ended with code {code}: {said[-1] if said else 'it said nothing'}",
                where=f"process {self.pid}",
            )
        return False

    def __enter__(self) -> WriterProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._listener.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._complaints.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith("\n"):
                # The writer died in the middle of a line: nothing was acknowledged by it.
                break
            acknowledgement = Acknowledgement.from_line(line)
            self._heard.put(Heard(acknowledgement, time.monotonic()))
            if self._kill_after is not None and acknowledgement.batch >= self._kill_after:
                self._process.kill()
        self._heard.put(None)
