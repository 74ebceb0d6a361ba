"""A named consumer of the change feed: its position, and how far it may fall behind.

One JSON object per consumer, ``_weir/consumers/{name}.json``, replaced by compare-and-swap. While it is
within its limits, garbage collection keeps what the consumer has not read. Weir's own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from weir.errors import OptionError
from weir.format import checked_json
from weir.format.buffers import Bytes
from weir.format.json_members import JsonMembers, instant_text
from weir.format.snapshot_token import SnapshotToken

__all__ = ["CONSUMERS", "FeedConsumer", "consumer_path", "decode", "encode"]

CONSUMERS = "_weir/consumers"
"""Directory of the consumers, relative to the table root."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)


@dataclass(frozen=True, slots=True)
class FeedConsumer:
    """The stored state of a consumer.

    Parameters
    ----------
    name : str
        Its name.
    token : SnapshotToken
        Up to where it has acknowledged the changes.
    before : bool
        Whether it also reads the rows before the changes, which need more of the past.
    max_age : timedelta
        How long it may go without an acknowledgement.
    max_wal_entries : int
        How many log entries, in all shards, may be kept for it alone.
    created_at, updated_at : datetime
        When it was made, and when it last acknowledged something, in UTC.
    write_id : str
        Random, new in every version: shows a consumer whose answer was lost that what is stored is its own
        (invariant I4), and that no two versions have equal bytes.
    """

    name: str
    token: SnapshotToken
    before: bool
    max_age: timedelta
    max_wal_entries: int
    created_at: datetime
    updated_at: datetime
    write_id: str


def consumer_path(name: str) -> str:
    """Return the path of a consumer.

    Raises
    ------
    OptionError
        If the name is not one.

    Examples
    --------
    >>> consumer_path("billing")
    '_weir/consumers/billing.json'
    """
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise OptionError(
            f"{name!r:.60} is not the name of a consumer",
            where="consumer",
            hint="Use 1 to 100 letters, digits, '.', '-' and '_', beginning with a letter or digit",
        )
    return f"{CONSUMERS}/{name}.json"


def encode(consumer: FeedConsumer) -> bytes:
    """Return the bytes of a consumer."""
    return checked_json.encode(
        {
            "name": consumer.name,
            "token": str(consumer.token),
            "before": consumer.before,
            "max_age_seconds": consumer.max_age.total_seconds(),
            "max_wal_entries": consumer.max_wal_entries,
            "created_at": instant_text(consumer.created_at),
            "updated_at": instant_text(consumer.updated_at),
            "write_id": consumer.write_id,
        }
    )


def decode(data: Bytes, *, where: str) -> FeedConsumer:
    """Return the consumer stored as ``data``. Members that only a later version of Weir knows are ignored.

    Raises
    ------
    CorruptionError
        If the bytes are damaged (invariant I11).
    """
    members = JsonMembers("consumer", checked_json.decode(data, where=where), where)
    name = members.text("name")
    if _NAME.fullmatch(name) is None:
        # It becomes part of a path.
        raise members.invalid("name")
    return FeedConsumer(
        name=name,
        token=members.token("token"),
        before=members.flag("before"),
        max_age=members.duration("max_age_seconds"),
        max_wal_entries=members.count("max_wal_entries"),
        created_at=members.instant("created_at"),
        updated_at=members.instant("updated_at"),
        write_id=members.text("write_id"),
    )
