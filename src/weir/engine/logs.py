"""Structured log events, delivered through the standard library's ``logging``.

An event has a dotted name and fields (shard, generation, position, ...). Applications choose what to
do with them by configuring ``logging``: each event is a record of the logger named after the module,
its text is ``event key=value ...`` and the fields are attributes of the record under ``event_fields``.
"""

from __future__ import annotations

import logging

__all__ = ["EventLogger", "get_logger"]


class EventLogger:
    """Logs the events of one module.

    Parameters
    ----------
    logger : logging.Logger
        What they are passed on to.
    """

    __slots__ = ("_logger",)

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def info(self, event: str, /, **fields: object) -> None:
        """Log something that happens where all is well."""
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        """Log something that needs attention."""
        self._log(logging.WARNING, event, fields)

    def _log(self, level: int, event: str, fields: dict[str, object]) -> None:
        if not self._logger.isEnabledFor(level):
            return
        text = " ".join([event, *(f"{key}={value}" for key, value in fields.items())])
        # The record names the line that logs the event, two calls up.
        self._logger.log(level, text, extra={"event_fields": {"event": event, **fields}}, stacklevel=3)


def get_logger(name: str) -> EventLogger:
    """Return the logger of a module.

    Examples
    --------
    >>> get_logger("weir.example").info("shard.flushed", generation=3)
    """
    return EventLogger(logging.getLogger(name))
