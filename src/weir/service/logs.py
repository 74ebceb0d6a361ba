"""The service's logs: one JSON object per line, without keys, documents, paths or texts of errors.

The reader of a service's standard error may be slow, or not read at all. Requests never wait for it: lines
that cannot be written are counted and dropped.
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import queue
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from weir.errors import OptionError

__all__ = ["AUDIT", "JsonLines", "logging_as_json"]

AUDIT = "weir.service.audit"
"""The audit logger: who created, changed or deleted what."""

_MOST_WAITING = 10_000
_PLACE = re.compile(r"(?<![\w.])(?:\w+:/)?/[^\s\]\[\"',;)]+")
_MOST_STEPS = 30
_TEXTS_OF_PYTHON = frozenset(
    {
        "OrderedDict mutated during iteration",
        "Set changed size during iteration",
        "can't start new thread",
        "cannot schedule new futures after interpreter shutdown",
        "cannot schedule new futures after shutdown",
        "deque mutated during iteration",
        "dict mutated during update",
        "dictionary changed size during iteration",
        "dictionary keys changed during iteration",
    }
)
"""Texts of errors that have no value of anybody, and say what the place alone does not."""
_LEFT_OUT = frozenset({"where", "uri", "path", "exception", "columns"})


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON: time, level, event and fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        fields: dict[str, Any] = dict(getattr(record, "event_fields", {}))
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            # The text of an event repeats its fields, places among them.
            "event": fields.pop("event", None) or _plain(record.msg),
        }
        line.update((name, _plain(value)) for name, value in fields.items() if name not in _LEFT_OUT)
        if record.exc_info and record.exc_info[1] is not None:
            line.update(_raised(record.exc_info[1]))
        return json.dumps(line)


def _raised(error: BaseException) -> dict[str, object]:
    """Return what an error is and how it came about: modules, functions and lines, no path and no value."""
    told: dict[str, object] = {"error": type(error).__name__}
    if str(error) in _TEXTS_OF_PYTHON:
        told["message"] = str(error)
    steps = [
        (frame.f_globals.get("__name__", ""), frame.f_code.co_name, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    if steps:
        module, _, number = steps[-1]
        told["raised_at"] = f"{module}:{number}"
        told["trace"] = [f"{module}.{function}:{number}" for module, function, number in steps[-_MOST_STEPS:]]
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None and cause is not error:
        # What they were caused by in turn stands in the module that raised them.
        causes = _raised(cause)
        told["cause"] = {name: causes[name] for name in ("error", "message", "raised_at") if name in causes}
    return told


def _plain(value: object) -> object:
    if isinstance(value, int | float | bool | None):
        return value
    # Texts of errors say where something is.
    return _PLACE.sub("(place)", str(value))


class _Patient(logging.handlers.QueueHandler):
    """Passes records to a writing thread; drops records beyond its capacity.

    A signal handler may log in the middle of this, and a ``queue.Queue`` would deadlock.
    """

    queue: queue.SimpleQueue[Any]
    dropped = 0

    def enqueue(self, record: logging.LogRecord) -> None:
        """Put a record into the queue, if there is room."""
        if self.queue.qsize() < _MOST_WAITING:
            self.queue.put(record)
        else:
            self.dropped += 1

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Return the record unchanged: it stays in this process."""
        return record


@contextmanager
def logging_as_json(audit_log: str, stream: TextIO | None = None) -> Iterator[None]:
    """Write the log events of Weir and its libraries as lines of JSON, as long as a service runs.

    Parameters
    ----------
    audit_log : str
        A file to append the audit log to; empty for standard error.
    stream : file, optional
        The output. Default: standard error.

    Raises
    ------
    OptionError
        If the file cannot be written.
    """
    lines: queue.SimpleQueue[Any] = queue.SimpleQueue()
    writer = logging.StreamHandler(stream or sys.stderr)
    writer.setFormatter(JsonLines())
    listener = logging.handlers.QueueListener(lines, writer)
    root, audit = logging.getLogger("weir"), logging.getLogger(AUDIT)
    handler = _Patient(lines)
    before = (root.level, root.propagate, audit.propagate)
    # What others log, such as the server, would be written as it is, tracebacks and all, if nobody took it.
    kept: list[tuple[logging.Logger, logging.Handler]] = [(root, handler), (logging.getLogger(), handler)]
    if audit_log:
        try:
            Path(audit_log).parent.mkdir(parents=True, exist_ok=True)
            file = logging.FileHandler(audit_log, encoding="utf-8")
        except OSError as error:
            raise OptionError("the audit log cannot be written", where="audit_log") from error
        file.setFormatter(JsonLines())
        kept.append((audit, file))
        audit.propagate = False
    for logger, one in kept:
        logger.addHandler(one)
    root.setLevel(logging.INFO)
    root.propagate = False
    logging.captureWarnings(True)
    listener.start()
    try:
        yield
    finally:
        for logger, one in kept:
            logger.removeHandler(one)
            one.close()
        logging.captureWarnings(False)
        root.level, root.propagate, audit.propagate = before
        lines.put(None)
        thread = listener._thread
        if thread is not None:
            # Whoever reads the lines may have stopped: the process ends all the same.
            thread.join(2.0)
