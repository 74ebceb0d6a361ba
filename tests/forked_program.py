"""Runs of a program that share nothing but its import: each is a process forked from one that did no more.

To import Weir takes longer than what most commands do, or most processes that a test has killed; and a
page of the documentation has dozens of commands. Whoever starts the program meets what it would be without
this: a process of its own, with the arguments, directory, environment and standard streams that it was
given. It ends as the program ends, and is killed with it; no other signal reaches the program.

As a program, this module needs nothing but the standard library: it asks the process that forks.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from typing import NoReturn

__all__ = ["forked_program", "forked_python", "weir_python"]

_STREAMS = (0, 1, 2)


@contextmanager
def forked_program(
    entry: str, imports: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Iterator[list[str]]:
    """Make a program that can be run until the end of a ``with`` block.

    Parameters
    ----------
    entry : str
        What it runs, as ``module:function``. The function returns the exit code.
    imports : sequence of str
        Modules that it would import when it runs, and functions that it would call and that keep what they
        return, as ``module:function``. Default: none.
    environment : mapping of str to str, optional
        Of the process that forks, besides what it has from this one: what counts when a process begins, as
        libraries to be preloaded.

    Yields
    ------
    list of str
        How to run it: what stands before its arguments in a command.
    """
    path = filter(None, [os.environ.get("PYTHONPATH"), *sys.path])
    with subprocess.Popen(
        [sys.executable, "-c", f"from tests.forked_program import serve; serve({entry!r}, {list(imports)})"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path), **(environment or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        name = server.stdout.readline().strip()
        assert name, f"{entry} cannot be imported"
        yield [sys.executable, "-I", "-S", __file__, name]
        server.stdin.close()


@contextmanager
def forked_python() -> Iterator[list[str]]:
    """Make a Python that has imported Weir already: what it yields stands for ``python -c`` in a command.

    And what every module of tests imports: functions of them are run in it (:mod:`tests.crashes`).
    """
    with forked_program(
        "tests.forked_program:run_code", ["weir.table.table", "weir.events", "pytest"]
    ) as command:
        yield command


@cache
def weir_python() -> list[str]:
    """Return what stands for ``python -c`` in a command, as of :func:`forked_python`, until we end."""
    open_until_the_end = ExitStack()
    atexit.register(open_until_the_end.close)
    return open_until_the_end.enter_context(forked_python())


def run_code() -> int:
    """Run the code that is the first argument, with the failpoints that the environment names."""
    from weir.engine import failpoint

    for pair in filter(None, os.environ.get("WEIR_FAILPOINTS", "").split(",")):
        name, _, action = pair.partition("=")
        failpoint.arm(name, action)
    code = sys.argv[1]
    sys.argv = ["-c", *sys.argv[2:]]
    exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
    return 0


def serve(entry: str, imports: Sequence[str]) -> None:
    """Print where to ask, and run the program for everyone who does, until standard input ends."""
    # Lance warns of its threads, and here it has none: nothing of it has been called.
    warnings.filterwarnings("ignore", "lance is not fork-safe", UserWarning)
    module, function = entry.split(":")
    main = getattr(importlib.import_module(module), function)
    for name in imports:
        module, _, function = name.partition(":")
        imported = importlib.import_module(module)
        if function:
            getattr(imported, function)()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("")  # to a name of the system's choice, which is no file
        listener.listen()
        print(listener.getsockname()[1:].decode(), flush=True)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who answer
        while True:
            readable, _, _ = select.select([listener, sys.stdin], [], [])
            if listener not in readable:
                return
            asked, _ = listener.accept()
            with asked:
                if not os.fork():
                    listener.close()
                    _answer(asked, main)


def _answer(asked: socket.socket, main: Callable[[], int]) -> NoReturn:
    """Run the program in a process of its own, tell how it ended, and end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, streams, _, _ = socket.recv_fds(asked, 1, len(_STREAMS))
    with asked.makefile("rb") as sent:
        request = json.loads(sent.readline())
    process = os.fork()
    if not process:
        asked.close()
        for stream, number in zip(streams, _STREAMS, strict=True):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(request["directory"])
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.argv = request["arguments"]
        sys.exit(main())
    for stream in streams:
        os.close(stream)
    ended = os.pidfd_open(process)
    either: list[int | socket.socket] = [ended, asked]
    if ended not in select.select(either, [], [])[0]:
        os.kill(process, signal.SIGKILL)  # as whoever has asked
    _, status = os.waitpid(process, 0)
    with suppress(BrokenPipeError):
        asked.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)  # nothing is left to do, and libraries take their time at the end of Python


def _ask(name: str, arguments: list[str]) -> int:
    """Have the program run on the streams of this process; return its exit code."""
    request = {"arguments": arguments, "directory": os.getcwd(), "environment": dict(os.environ)}
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(f"\0{name}")
        socket.send_fds(server, [b"\n"], _STREAMS)
        server.sendall(json.dumps(request).encode() + b"\n")
        code = int(server.recv(16))
    if code < 0:
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(_ask(sys.argv[1], sys.argv[1:]))
