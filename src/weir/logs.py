"""Structured log events, delivered through the standard library's ``logging``.

An event has a dotted name and fields (shard, generation, position, ...). Applications choose what to
do with them by configuring ``logging``: each event is a record of the logger named after the module,
its text is ``event key=value ...`` and the fields are attributes of the record under ``event_fields``.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

import structlog

__all__ = ["get_logger"]


def _render(
    logger: object, method: str, event: MutableMapping[str, Any]
) -> tuple[tuple[str], dict[str, dict[str, dict[str, Any]]]]:
    name = str(event.pop("event"))
    fields = dict(event)
    text = " ".join([name, *(f"{key}={value}" for key, value in fields.items())])
    return (text,), {"extra": {"event_fields": {"event": name, **fields}}}


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Return the logger of a module.

    Examples
    --------
    >>> get_logger("weir.example").info("shard.flushed", generation=3)
    """
    logger: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[structlog.stdlib.filter_by_level, _render],
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    return logger
