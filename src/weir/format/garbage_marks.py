"""What garbage collections have marked, and since when: ``_weir/garbage/marks.json``.

An object is deleted only when it was marked a horizon ago and is garbage still. The marks of all shards
are one JSON object, replaced by compare-and-swap, so that collections that run at once see each other's.
Weir's own; the spec leaves collection to the implementation.

Log entries and shard manifests are collected from the bottom up, so their marks are steps: "everything
up to here has been garbage since then". Generations are marked by the name of their directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from weir.errors import CorruptionError
from weir.format import checked_json, layout
from weir.format.buffers import Bytes

__all__ = ["MARKS", "Marks", "ShardMarks", "Step", "decode", "encode"]

MARKS = "_weir/garbage/marks.json"
"""Path of the marks, relative to the table root."""

_MAX_NUMBER = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Step:
    """Everything up to a number has been garbage since some time.

    Parameters
    ----------
    up_to : int
        The last log position, or the last manifest version, that is meant.
    since : datetime
        In UTC.
    """

    up_to: int
    since: datetime


@dataclass(frozen=True, slots=True)
class ShardMarks:
    """What is marked in one shard.

    Parameters
    ----------
    wal : tuple of Step, default ()
        Log entries, by ascending position and time.
    manifests : tuple of Step, default ()
        Shard manifests, by ascending version and time.
    directories : mapping of str to datetime, default {}
        Directories of generations that no manifest lists any more, by name, and since when.
    """

    wal: tuple[Step, ...] = ()
    manifests: tuple[Step, ...] = ()
    directories: Mapping[str, datetime] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether anything is marked."""
        return bool(self.wal or self.manifests or self.directories)


@dataclass(frozen=True, slots=True)
class Marks:
    """What is marked in a table.

    Parameters
    ----------
    shards : mapping of UUID to ShardMarks, default {}
        Shards in which something is marked.
    write_id : str, default ""
        Random, new in every version: no two versions have equal bytes, and a collection whose answer was
        lost recognises its own.
    """

    shards: Mapping[UUID, ShardMarks] = field(default_factory=dict)
    write_id: str = ""

    def of(self, shard_id: UUID) -> ShardMarks:
        """Return what is marked in a shard."""
        return self.shards.get(shard_id, ShardMarks())


def encode(marks: Marks) -> bytes:
    """Return the bytes of the marks.

    Examples
    --------
    >>> marks = Marks({UUID(int=1): ShardMarks(wal=(Step(7, datetime(2026, 1, 2, tzinfo=UTC)),))}, "ab")
    >>> decode(encode(marks), where="example") == marks
    True
    """
    return checked_json.encode(
        {
            "write_id": marks.write_id,
            "shards": {
                str(shard_id): {
                    "wal": [_step_members(step) for step in one.wal],
                    "manifests": [_step_members(step) for step in one.manifests],
                    "directories": {name: _time_text(since) for name, since in one.directories.items()},
                }
                for shard_id, one in marks.shards.items()
                if one
            },
        }
    )


def decode(data: Bytes, *, where: str) -> Marks:
    """Return the marks stored as ``data``. Members of a later version of Weir are passed over.

    Raises
    ------
    CorruptionError
        If the bytes are not what was written (invariant I11).
    """
    members = checked_json.decode(data, where=where)
    try:
        return Marks(
            {UUID(name): _shard(one) for name, one in members["shards"].items()},
            _text(members["write_id"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise CorruptionError(
            f"these are no marks of a garbage collection: {error!r:.80}",
            where=where,
            hint="Delete the object: what it marks is then marked anew, and kept a horizon longer",
        ) from error


def _shard(members: Mapping[str, Any]) -> ShardMarks:
    directories = members["directories"].items()
    return ShardMarks(
        tuple(_step(one) for one in members["wal"]),
        tuple(_step(one) for one in members["manifests"]),
        {layout.check_name(name): _time(since) for name, since in directories},
    )


def _step_members(step: Step) -> dict[str, Any]:
    return {"up_to": step.up_to, "since": _time_text(step.since)}


def _step(members: Mapping[str, Any]) -> Step:
    up_to = members["up_to"]
    if not isinstance(up_to, int) or isinstance(up_to, bool) or not 0 <= up_to <= _MAX_NUMBER:
        raise ValueError(f"a step up to {up_to!r:.40}")
    return Step(up_to, _time(members["since"]))


def _time_text(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _time(text: str) -> datetime:
    found = datetime.fromisoformat(_text(text))
    if found.tzinfo is None:
        raise ValueError("a time without a time zone")
    return found.astimezone(UTC)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return value
