"""The writer process: sends batches of events to a table and reports which are durable.

It is started by :mod:`weir.demo.embedded`, and killed by it. It only reports acknowledgements, one
line on standard output for each batch that is durable, in the order of the batches::

    {"batch": 17, "events": 2000, "seconds": 0.0061}

``seconds`` is the time from sending the batch until all of it was durable.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass

import weir
from weir.demo.events import load_events
from weir.write.write_result import WriteResult

__all__ = ["BATCHES_IN_FLIGHT", "Acknowledgement", "WriterTask", "main", "write_events"]

BATCHES_IN_FLIGHT = 4
"""Batches that may be in flight at once: this many may be durable without an acknowledgement."""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """A batch is durable.

    Parameters
    ----------
    batch : int
        Which.
    events : int
        Events in it.
    seconds : float
        From sending it until all of it was durable.
    """

    batch: int
    events: int
    seconds: float

    def to_line(self) -> str:
        """Return the line that reports it."""
        return json.dumps({"batch": self.batch, "events": self.events, "seconds": round(self.seconds, 6)})

    @classmethod
    def from_line(cls, line: str) -> Acknowledgement:
        """Read the line that reports it.

        Examples
        --------
        >>> Acknowledgement.from_line('{"batch": 17, "events": 2000, "seconds": 0.0061}').batch
        17
        """
        return cls(**json.loads(line))


@dataclass(frozen=True, slots=True)
class _Sent:
    batch: int
    events: int
    at: float
    futures: list[Future[WriteResult]]

    def wait(self) -> Acknowledgement:
        for future in self.futures:
            future.result()
        return Acknowledgement(self.batch, self.events, time.monotonic() - self.at)


@dataclass(frozen=True, slots=True)
class WriterTask:
    """What a writer process is to do.

    Parameters
    ----------
    uri : str
        The table.
    flights : int or None
        Only so many flights, from the beginning of the year; None for all.
    batch_rows : int
        Events of a batch.
    memtable_rows : int
        Rows after which the MemTable of a shard is flushed.
    first_batch : int
        Where in the stream to begin.
    fsync : bool
        Whether an acknowledgement means that the disk has the rows.
    """

    uri: str
    flights: int | None
    batch_rows: int
    memtable_rows: int
    first_batch: int = 0
    fsync: bool = True

    def command(self) -> list[str]:
        """Return the command that starts a process with this task."""
        return [sys.executable, "-m", "weir.demo.writer", json.dumps(asdict(self))]


def write_events(task: WriterTask) -> None:
    """Write the stream of events from some batch on, and print an acknowledgement for each batch.

    Events may be written that were written before, by a writer that died before it could say so. That
    changes nothing in the end: each event says what the row is, not how it differs, and they come in the
    same order again.
    """
    table = weir.open(task.uri, fsync=task.fsync, maintenance="off")
    events = load_events(task.flights, task.batch_rows)
    sent: deque[_Sent] = deque()
    with table.writer(max_memtable_rows=task.memtable_rows) as writer:
        for number in range(task.first_batch, events.num_batches):
            batch = events.batch(number)
            at = time.monotonic()
            futures = [_future(writer.upsert(batch.upserts, wait=False))]
            if len(batch.deletes):
                futures.append(_future(writer.delete(batch.deletes, wait=False)))
            sent.append(_Sent(number, batch.num_events, at, futures))
            while len(sent) >= BATCHES_IN_FLIGHT:
                _report(sent.popleft())
        while sent:
            _report(sent.popleft())


def _report(sent: _Sent) -> None:
    print(sent.wait().to_line(), flush=True)


def _future(result: WriteResult | Future[WriteResult]) -> Future[WriteResult]:
    assert isinstance(result, Future)
    return result


def main(arguments: Sequence[str]) -> None:
    """Run the writer process; its one argument is a :class:`WriterTask` as JSON."""
    write_events(WriterTask(**json.loads(arguments[0])))


if __name__ == "__main__":
    main(sys.argv[1:])
    # Threads of Arrow may outlive the end of Python, and would abort a process that has done its work.
    sys.stdout.flush()
    os._exit(0)
