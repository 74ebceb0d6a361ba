"""Calling a function in another process, which the library may abort.

Over some damaged files Lance does not raise an error, and does not panic as other code of its language does:
it aborts the process, with everybody who is in it. So what reads files that nothing has proved to be whole
runs in a process of its own. It is started when it is first needed, and used again; it ends when nobody has
needed it for a while, or when who started it does.
"""

from __future__ import annotations

import atexit
import os
import pickle
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any, TypeVar

from weir.engine.context import default_context
from weir.errors import CorruptionError, StorageError

__all__ = ["isolated", "serve"]

Argument = TypeVar("Argument")
Result = TypeVar("Result")

_IDLE_SECONDS = 30.0
_LENGTH = struct.Struct("<Q")
_TAKEN = b"\x01"
_KEPT = 2
# What ends a process that has come upon something that cannot be; others are sent from outside.
_OWN_FAULTS = frozenset((signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE))
# What the library logs, and how to have a backtrace.
_NO_REASON = ("[", "note:", "stack backtrace:", "panic in a function that cannot unwind")
_PANIC = re.compile(r"panicked at [^\n]*\n([^\n]*)")


def isolated(function: Callable[[Argument], Result], argument: Argument, *, what: str, where: str) -> Result:
    """Return what ``function(argument)`` returns, or raise what it raises, from another process.

    Parameters
    ----------
    function : callable
        A function of a module. It, its argument, and what comes of it can be pickled.
    argument
        What to pass.
    what : str
        What is being read, for people.
    where : str
        Its location.

    Raises
    ------
    CorruptionError
        The process has aborted.
    StorageError
        Somebody has ended it.
    """
    if not sys.executable:
        return function(argument)  # embedded in a program that is no Python
    task = pickle.dumps((function, argument))
    while True:
        process = _take()
        try:
            taken, answer = process.call(task)
        except BaseException:
            process.end()
            raise
        if answer is not None:
            _give_back(process)
            break
        status, said = process.end()
        # One that had been idle for too long has not seen the task.
        if taken or not process.has_served:
            raise _ended(status, said, what, where)
    succeeded, result = pickle.loads(answer)
    if not succeeded:
        raise result
    return result  # type: ignore[no-any-return]


def _ended(status: int, said: str, what: str, where: str) -> CorruptionError | StorageError:
    if -status in _OWN_FAULTS:
        return CorruptionError(
            f"{what} cannot be read: the library ends the process that tries ({said or f'signal {-status}'})",
            where=where,
            hint="Its files are damaged; restore them from a backup",
        )
    return StorageError(
        f"the process that read {what} has ended with status {status} ({said or 'it said nothing'})",
        where=where,
        hint="Try again; if memory was short, with more memory",
    )


class _Process:
    """A process that calls functions, one after the other."""

    def __init__(self) -> None:
        self.has_served = False
        self.owner = os.getpid()
        # What a process says that aborts; a file holds any amount of it.
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._said_before = 0
        start = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import serve; serve()"
        self._popen = subprocess.Popen(
            [*_python(), start],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env={**os.environ, "RUST_BACKTRACE": "0"},
        )

    def call(self, task: bytes) -> tuple[bool, bytes | None]:
        """Return whether the process has seen the task, and its answer; None if it has ended instead."""
        self._said_before = os.fstat(self._said.fileno()).st_size
        stdin, stdout = self._popen.stdin, self._popen.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            _send(stdin, task)
        except BrokenPipeError:
            return False, None
        taken = stdout.read(len(_TAKEN)) == _TAKEN
        answer = _receive(stdout) if taken else None
        self.has_served = self.has_served or answer is not None
        return taken, answer

    def end(self) -> tuple[int, str]:
        """End the process, if it has not; return its status and the reason it gave."""
        for pipe in (self._popen.stdin, self._popen.stdout):
            assert pipe is not None
            with suppress(OSError):
                pipe.close()
        if self.owner != os.getpid():
            return 0, ""
        with suppress(subprocess.TimeoutExpired):
            # One that aborts may still be busy saying why.
            self._popen.wait(1.0)
        self._popen.kill()
        status = self._popen.wait()
        size = os.fstat(self._said.fileno()).st_size
        # Not by reading on: the process shares the place where the file is read and written.
        text = os.pread(self._said.fileno(), size - self._said_before, self._said_before)
        self._said.close()
        return status, _reason(text.decode(errors="replace"))


def _reason(said: str) -> str:
    """Return the line that says why, of all that a process wrote to standard error."""
    lines = _PANIC.findall(said) or said.splitlines()
    told = (line.strip() for line in reversed(lines))
    return next((line for line in told if line and not line.startswith(_NO_REASON)), "")


def _python() -> list[str]:
    """Return what stands before the code in a command that runs it."""
    return [sys.executable, "-c"]


_idle: list[_Process] = []
_lock = threading.Lock()


def _take() -> _Process:
    with _lock:
        while _idle:
            process = _idle.pop()
            # One that a process was forked with is for the other.
            if process.owner == os.getpid():
                return process
    return _Process()


def _give_back(process: _Process) -> None:
    with _lock:
        if len(_idle) < _KEPT:
            _idle.append(process)
            return
    process.end()


@atexit.register
def _end_all() -> None:
    with _lock:
        ended = [process for process in _idle if process.owner == os.getpid()]
        _idle.clear()
    for process in ended:
        process.end()


def _send(pipe: IO[bytes], data: bytes) -> None:
    pipe.write(_LENGTH.pack(len(data)) + data)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes | None:
    """Return what was sent; None if the pipe ends before."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    data = pipe.read(length)
    return data if len(data) == length else None


def serve() -> None:
    """Call what stdin asks for and answer on stdout, until nobody asks any more."""
    # Whoever has started this process decides what an interruption ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    # What the library prints is no answer.
    os.dup2(2, 1)
    while select.select([0], [], [], _IDLE_SECONDS)[0]:
        task = _receive(sys.stdin.buffer)
        if task is None:
            return
        answers.write(_TAKEN)
        answers.flush()
        _send(answers, _answer(task))
        # The next task may be about the same files after they have changed.
        default_context().cache.clear()


def _answer(task: bytes) -> bytes:
    try:
        function, argument = pickle.loads(task)
        return pickle.dumps((True, function(argument)))
    except BaseException as error:
        failure: Any = error
        try:
            data = pickle.dumps((False, failure))
            pickle.loads(data)
            return data
        except BaseException:
            # One of the library's, whose class cannot be found again.
            return pickle.dumps((False, RuntimeError(repr(error))))
