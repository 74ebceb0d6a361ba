"""Log events become records of the standard library's logging."""

from __future__ import annotations

import logging

import pytest

from weir.engine.logs import get_logger


def test_an_event_is_a_record_with_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "weir.example")
    log = get_logger("weir.example")
    log.info("shard.flushed", generation=3, share="50%")
    log.warning("shard.lease_lost")
    flushed, lost = caplog.records
    assert flushed.event_fields == {"event": "shard.flushed", "generation": 3, "share": "50%"}  # type: ignore[attr-defined]
    assert (flushed.name, flushed.levelname) == ("weir.example", "INFO")
    assert flushed.getMessage() == "shard.flushed generation=3 share=50%"
    assert lost.getMessage() == "shard.lease_lost"
    assert lost.event_fields == {"event": "shard.lease_lost"}  # type: ignore[attr-defined]
    assert (flushed.filename, flushed.funcName) == (
        "test_logs.py",
        "test_an_event_is_a_record_with_its_fields",
    )


class _Unprintable:
    def __str__(self) -> str:
        raise AssertionError


def test_an_event_that_nobody_asked_for_costs_no_text(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "weir.example")
    get_logger("weir.example").info("shard.flushed", rows=_Unprintable())
    assert caplog.records == []
