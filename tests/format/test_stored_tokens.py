"""Pins and consumers as they are stored: they come back, and damage to them is loud."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest

from weir.errors import CorruptionError, InputError, OptionError
from weir.format import checked_json, feed_consumer, snapshot_pin
from weir.format.feed_consumer import FeedConsumer
from weir.format.snapshot_pin import SnapshotPin
from weir.format.snapshot_token import ShardCut, SnapshotToken

TOKEN = SnapshotToken("table", 3, (ShardCut(UUID(int=7), 2, 1, 4, 9),), "0f" * 16)
NOW = datetime(2026, 3, 4, 5, 6, 7, 890123, tzinfo=UTC)
PIN = SnapshotPin(TOKEN, NOW, NOW + timedelta(hours=1))
CONSUMER = FeedConsumer(
    "billing", TOKEN.unpinned(), True, timedelta(days=2, microseconds=5), 1000, NOW, NOW, "ab" * 16
)


def test_a_pin_comes_back() -> None:
    assert snapshot_pin.decode(snapshot_pin.encode(PIN), where="here") == PIN
    elsewhere = replace(PIN, created_at=NOW.astimezone(timezone(timedelta(hours=5))))
    assert snapshot_pin.decode(snapshot_pin.encode(elsewhere), where="here") == PIN


def test_a_consumer_comes_back() -> None:
    assert feed_consumer.decode(feed_consumer.encode(CONSUMER), where="here") == CONSUMER


@pytest.mark.parametrize("kind", ["pin", "consumer"])
def test_every_changed_byte_is_noticed(kind: str) -> None:
    data = snapshot_pin.encode(PIN) if kind == "pin" else feed_consumer.encode(CONSUMER)
    decode: Any = snapshot_pin.decode if kind == "pin" else feed_consumer.decode
    whole = decode(data, where="here")
    for at in range(len(data)):
        damaged = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        try:
            # White space between the members says nothing.
            assert decode(damaged, where="here") == whole
            assert data[at : at + 1].isspace()
        except CorruptionError as error:
            assert error.where == "here"


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ({"expires_at": "tomorrow"}, "expires_at"),
        ({"expires_at": "2026-01-01T00:00:00"}, "expires_at"),
        ({"token": str(TOKEN.unpinned())}, "token"),
        ({"token": "w1.AAAA"}, "token"),
        ({"token": 5}, "token"),
        ({"created_at": None}, "created_at"),
    ],
)
def test_a_pin_that_was_never_written(members: dict[str, Any], named: str) -> None:
    good = checked_json.decode(snapshot_pin.encode(PIN), where="here")
    with pytest.raises(CorruptionError, match=f"the pin has no valid {named}"):
        snapshot_pin.decode(checked_json.encode({**good, **members}), where="here")


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ({"max_wal_entries": -1}, "max_wal_entries"),
        ({"max_wal_entries": True}, "max_wal_entries"),
        ({"max_age_seconds": "7"}, "max_age_seconds"),
        ({"max_age_seconds": 1e300}, "max_age_seconds"),
        ({"before": 1}, "before"),
        ({"name": None}, "name"),
    ],
)
def test_a_consumer_that_was_never_written(members: dict[str, Any], named: str) -> None:
    good = checked_json.decode(feed_consumer.encode(CONSUMER), where="here")
    with pytest.raises(CorruptionError, match=f"the consumer has no valid {named}"):
        feed_consumer.decode(checked_json.encode({**good, **members}), where="here")


def test_members_of_a_later_version_are_passed_over() -> None:
    members = checked_json.decode(snapshot_pin.encode(PIN), where="here")
    assert snapshot_pin.decode(checked_json.encode({**members, "later": [1]}), where="here") == PIN


def test_a_pin_needs_an_id() -> None:
    with pytest.raises(InputError):
        SnapshotPin(TOKEN.unpinned(), NOW, NOW)


@pytest.mark.parametrize("name", ["", "a/b", "../a", ".hidden", "a b", "x" * 101, "é", None, 3])
def test_names_that_no_consumer_can_have(name: Any) -> None:
    with pytest.raises(OptionError, match="is not the name of a consumer"):
        feed_consumer.consumer_path(name)
