"""The record that a streaming query writes to a table: ``_weir/streams/{id}.json``.

Made with the query's first batch, and replaced after each one. If a query's checkpoint says that it has
written batches and the table has no record of it, they went to another table. If the record has fewer of
them, a backup was put in the place of the table since. Weir's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from weir.format import checked_json
from weir.format.buffers import Bytes
from weir.format.json_members import JsonMembers, instant_text
from weir.format.layout import check_name

__all__ = ["STREAMS", "StreamRecord", "decode", "encode", "stream_path"]

STREAMS = "_weir/streams"
"""Directory of the records, relative to the table root."""


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """A streaming query that writes to the table.

    Parameters
    ----------
    query_id : str
        The query, as its checkpoint names it.
    begun_at : datetime
        When it wrote its first batch, in UTC.
    batches : int
        How many of its batches are in the table: they are numbered from 0, without a gap.
    """

    query_id: str
    begun_at: datetime
    batches: int


def stream_path(query_id: str) -> str:
    """Return the path of the record of a query.

    Examples
    --------
    >>> stream_path("8f1e7f60-93a0-4c3b-9b56-0f1f6a3f2a11")
    '_weir/streams/8f1e7f60-93a0-4c3b-9b56-0f1f6a3f2a11.json'
    """
    return f"{STREAMS}/{check_name(query_id)}.json"


def encode(record: StreamRecord) -> bytes:
    """Return the bytes of a record."""
    return checked_json.encode(
        {
            "query_id": record.query_id,
            "begun_at": instant_text(record.begun_at),
            "batches": record.batches,
        }
    )


def decode(data: Bytes, *, where: str) -> StreamRecord:
    """Return the record stored as ``data``.

    Raises
    ------
    CorruptionError
        If the bytes are damaged (invariant I11).
    """
    members = JsonMembers("record of a stream", checked_json.decode(data, where=where), where)
    return StreamRecord(members.text("query_id"), members.instant("begun_at"), members.count("batches"))
