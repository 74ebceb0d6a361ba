"""Leases as bytes, and the checksummed JSON below them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest

from weir.errors import CorruptionError
from weir.format import checked_json, lease
from weir.format.lease import Lease, LeaseOwner

LEASE = Lease(
    shard_id=UUID("11111111-2222-4333-8444-555555555555"),
    epoch=7,
    holder=LeaseOwner(
        host="höst-1",
        process_id=42,
        process_started=123456,
        system="boot pid:[1] time:[2]",
        holder_id="ab" * 16,
    ),
    acquired_at=datetime(2026, 1, 15, 10, 0, 0, 250, tzinfo=UTC),
    renewed_at=datetime(2026, 1, 15, 10, 3, tzinfo=UTC),
    expires_at=datetime(2026, 1, 15, 10, 8, tzinfo=UTC),
    expires_at_uptime=1234.5678,
    ttl=300.0,
    released=False,
    write_id="cd" * 16,
)


def members_of(data: bytes) -> dict[str, Any]:
    members = json.loads(data)
    del members["checksum"]
    return dict(members)


@pytest.mark.parametrize(
    "changed",
    [
        LEASE,
        replace(LEASE, released=True, epoch=2**64 - 1),
        replace(LEASE, holder=replace(LEASE.holder, process_started=None, system=None, host="")),
        replace(LEASE, holder=replace(LEASE.holder, address="http://10.0.0.7:8080")),
    ],
)
def test_what_is_written_is_read(changed: Lease) -> None:
    assert lease.decode(lease.encode(changed), where="x") == changed


def test_instants_are_written_in_utc() -> None:
    elsewhere = LEASE.expires_at.astimezone(timezone(timedelta(hours=5, minutes=45)))
    data = lease.encode(replace(LEASE, expires_at=elsewhere))
    assert data == lease.encode(LEASE)
    assert members_of(data)["expires_at"] == "2026-01-15T10:08:00.000000Z"


def test_people_can_read_it() -> None:
    text = lease.encode(LEASE).decode()
    assert text.splitlines()[1].startswith('  "acquired_at": "2026-01-15')
    assert '"process_id": 42' in text


def test_what_a_later_version_adds_is_passed_over() -> None:
    members = {**members_of(lease.encode(LEASE)), "renewals": 3}
    assert lease.decode(checked_json.encode(members), where="x") == LEASE


def test_every_changed_character_is_noticed() -> None:
    data = lease.encode(LEASE)
    for at in range(len(data)):
        for flipped in (data[at] ^ 1, data[at] ^ 0x20):
            changed = data[:at] + bytes([flipped]) + data[at + 1 :]
            try:
                found = lease.decode(changed, where="here")
            except CorruptionError as error:
                assert error.where == "here"
            else:
                # Other white space, or another spelling of the same text: it says what it said.
                assert found == LEASE


@pytest.mark.parametrize("length", [0, 1, 40, 200])
def test_part_of_it_is_corrupt(length: int) -> None:
    with pytest.raises(CorruptionError, match="here"):
        lease.decode(lease.encode(LEASE)[:length], where="here")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epoch", 0),
        ("epoch", 2**64),
        ("epoch", True),
        ("epoch", "7"),
        ("shard_id", "nobody"),
        ("holder", None),
        ("holder", []),
        ("holder", {"host": "h"}),
        ("acquired_at", "yesterday"),
        ("renewed_at", "2026-01-15T10:00:00"),
        ("expires_at", 5),
        ("expires_at_uptime", None),
        ("ttl", "300"),
        ("released", 0),
        ("write_id", None),
    ],
)
def test_nonsense_with_a_right_checksum_is_corrupt(name: str, value: object) -> None:
    members = {**members_of(lease.encode(LEASE)), name: value}
    with pytest.raises(CorruptionError, match="here"):
        lease.decode(checked_json.encode(members), where="here")


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b"null", b"\xff", b"[" * 100_000, b'{"checksum": 1, "a": NaN}']
)
def test_other_json_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptionError, match="here"):
        checked_json.decode(data, where="here")


def test_the_checksum_is_not_the_callers() -> None:
    with pytest.raises(ValueError, match="checksum"):
        checked_json.encode({"checksum": 1})
