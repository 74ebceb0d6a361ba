"""What the tests of the command line share: running it in this process, and leaving no trace."""

from __future__ import annotations

import io
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from weir.cli.main import main


@dataclass(frozen=True)
class Answer:
    """What one run of the program said."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Run = Callable[..., Answer]


@pytest.fixture(autouse=True)
def _interrupts_arrive() -> Iterator[None]:
    """Take SIGINT as in a terminal, also where the tests run in the background.

    A shell has the jobs that it puts there ignore it, and so does whatever they start.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def weir_program(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run ``weir`` with some arguments, in this process, through its real entry."""

    def run(*arguments: object, stdin: bytes = b"") -> Answer:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    return run
