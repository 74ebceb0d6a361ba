"""Functions run in processes of their own that are killed where a test says, and what they told until then.

Everything that a test kills at a place in the code goes this way, so that a crash is one line in a test:
``kill_at("wal.after_append@2", writes, table.uri)`` runs ``writes(table.uri)`` until its second append. The
function is one of a test module; it and its arguments go there pickled. Histories without real processes are
for the simulation, rounds with kills at any moment for ``tests/faults``.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.forked_program import weir_python

__all__ = ["Acknowledged", "Ended", "Told", "kill_at", "run", "say", "start", "wait_for"]

Told = dict[str, Any]

_ENTRY = "from tests.crashes import run_what_was_sent; run_what_was_sent()"
_PATIENCE = 120.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process has ended, and what it told.

    Parameters
    ----------
    was_killed : bool
        Whether it was killed; otherwise the function returned.
    told : list of dict
        What it told with :func:`say`, in order.
    """

    was_killed: bool
    told: list[Told]


def start(
    function: Callable[..., object], *arguments: object, failpoint: str = ""
) -> subprocess.Popen[bytes]:
    """Run a function in a process of its own, with a failpoint armed as ``name=action``; do not wait."""
    sent = base64.b64encode(pickle.dumps((function, arguments))).decode()
    return subprocess.Popen(
        [*weir_python(), _ENTRY, sent],
        env={**os.environ, "WEIR_FAILPOINTS": failpoint},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def wait_for(process: subprocess.Popen[bytes]) -> Ended:
    """Wait until a process has ended; an error in it is an error here."""
    told, complaints = process.communicate(timeout=_PATIENCE)
    assert process.returncode in (0, -signal.SIGKILL), complaints.decode()
    return Ended(process.returncode != 0, [json.loads(line) for line in told.splitlines()])


def run(function: Callable[..., object], *arguments: object, kill_at: str = "") -> Ended:
    """Run a function in a process of its own that is killed if it gets to a place, ``name`` or ``name@n``."""
    name, _, times = kill_at.partition("@")
    return wait_for(start(function, *arguments, failpoint=f"{name}=kill@{times or 1}" if name else ""))


def kill_at(place: str, function: Callable[..., object], *arguments: object) -> Ended:
    """Run a function in a process of its own that gets to a place and is killed there; as :func:`run`."""
    ended = run(function, *arguments, kill_at=place)
    assert ended.was_killed, f"{place} was never reached"
    return ended


def say(**step: object) -> None:
    """Tell the parent, in a process that it has started: what it has read, it may rely on."""
    os.write(1, json.dumps(step).encode() + b"\n")


def run_what_was_sent() -> None:
    """Be the process: call the function that was sent."""
    function, arguments = pickle.loads(base64.b64decode(sys.argv[1]))
    warnings.simplefilter("error")
    function(*arguments)


@dataclass
class Acknowledged:
    """What must be there: the rows that were acknowledged, and of the write under way either outcome.

    The process tells ``trying=[key, value]`` before and ``acknowledged=[key, value]`` after each write; a
    value of None is a deletion.
    """

    rows: dict[int, str] = field(default_factory=dict)
    _in_doubt: tuple[int, str | None] | None = None

    def follow(self, told: Iterable[Told]) -> None:
        """Take over what a process told until its end."""
        self._in_doubt = None
        for step in told:
            if "trying" in step:
                self._in_doubt = tuple(step["trying"])
            elif "acknowledged" in step:
                self._apply(*step["acknowledged"])
                self._in_doubt = None

    def check(self, found: dict[int, str]) -> None:
        """Compare with what is there; if the write in doubt has landed, it counts from then on."""
        if self._in_doubt is not None and found != self.rows:
            self._apply(*self._in_doubt)
        self._in_doubt = None
        assert found == self.rows

    def _apply(self, key: int, value: str | None) -> None:
        if value is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = value
