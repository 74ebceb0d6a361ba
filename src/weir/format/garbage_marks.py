"""The marks of garbage collections, with their times: ``_weir/garbage/marks.json``.

An object is deleted only when it was marked a horizon ago and is still garbage. The marks of all shards are
one JSON object, replaced by compare-and-swap, so that concurrent collections see each other's marks. Weir's
own; the spec leaves collection to the implementation.

Log entries and shard manifests are collected from the bottom up, so their marks are steps: "everything
up to here has been garbage since then". Generations are marked by the name of their directory.

Before a collection deletes anything, it marks it here and checks again what is needed. A process that begins
to need something announces it first and then looks here. So one of the two sees the other.
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

__all__ = ["MARKS", "Marks", "ShardMarks", "Step", "Swept", "decode", "encode"]

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
class Swept:
    """What collections of a shard are about to delete. No process that begins later may rely on it.

    Parameters
    ----------
    log : int, default -1
        Log entries up to this position.
    manifests : int, default 0
        Shard manifests up to this version.
    directories : frozenset of str, default empty
        Directories of generations, as long as they may be there.
    """

    log: int = -1
    manifests: int = 0
    directories: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ShardMarks:
    """The marks of one shard.

    Parameters
    ----------
    wal : tuple of Step, default ()
        Log entries, by ascending position and time.
    manifests : tuple of Step, default ()
        Shard manifests, by ascending version and time.
    directories : mapping of str to datetime, default {}
        Directories of generations that no manifest lists any more, by name, and since when.
    swept : Swept
        What collections have set out to delete. Default: nothing.
    """

    wal: tuple[Step, ...] = ()
    manifests: tuple[Step, ...] = ()
    directories: Mapping[str, datetime] = field(default_factory=dict)
    swept: Swept = Swept()

    def __bool__(self) -> bool:
        """Whether this says anything."""
        return bool(self.wal or self.manifests or self.directories) or self.swept != Swept()


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks of a table.

    Parameters
    ----------
    shards : mapping of UUID to ShardMarks, default {}
        Shards in which something is marked.
    write_id : str, default ""
        Random, new in every version: no two versions have equal bytes, and a collection whose answer was
        lost recognises its own.
    swept_versions : tuple of int, default ()
        Versions of the base table that collections have set out to remove, as long as they may be there.
    """

    shards: Mapping[UUID, ShardMarks] = field(default_factory=dict)
    write_id: str = ""
    swept_versions: tuple[int, ...] = ()

    def of(self, shard_id: UUID) -> ShardMarks:
        """Return the marks of a shard."""
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
            "swept_versions": list(marks.swept_versions),
            "shards": {
                str(shard_id): {
                    "wal": [_step_members(step) for step in one.wal],
                    "manifests": [_step_members(step) for step in one.manifests],
                    "directories": {name: _time_text(since) for name, since in one.directories.items()},
                    "swept": {
                        "log": one.swept.log,
                        "manifests": one.swept.manifests,
                        "directories": sorted(one.swept.directories),
                    },
                }
                for shard_id, one in marks.shards.items()
                if one
            },
        }
    )


def decode(data: Bytes, *, where: str) -> Marks:
    """Return the marks stored as ``data``. Members that only a later version of Weir knows are ignored.

    Raises
    ------
    CorruptionError
        If the bytes are damaged (invariant I11).
    """
    members = checked_json.decode(data, where=where)
    try:
        return Marks(
            {UUID(name): _shard(one) for name, one in members["shards"].items()},
            _text(members["write_id"]),
            tuple(_number(one) for one in members.get("swept_versions", ())),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise CorruptionError(
            f"these are not the marks of a garbage collection: {error!r:.80}",
            where=where,
            hint="Delete the object: its garbage is then marked again, and kept for another horizon",
        ) from error


def _shard(members: Mapping[str, Any]) -> ShardMarks:
    directories = members["directories"].items()
    return ShardMarks(
        tuple(_step(one) for one in members["wal"]),
        tuple(_step(one) for one in members["manifests"]),
        {layout.check_name(name): _time(since) for name, since in directories},
        _swept(members["swept"]) if "swept" in members else Swept(),
    )


def _swept(members: Mapping[str, Any]) -> Swept:
    return Swept(
        _number(members["log"], least=-1),
        _number(members["manifests"]),
        frozenset(layout.check_name(name) for name in members["directories"]),
    )


def _step_members(step: Step) -> dict[str, Any]:
    return {"up_to": step.up_to, "since": _time_text(step.since)}


def _step(members: Mapping[str, Any]) -> Step:
    return Step(_number(members["up_to"]), _time(members["since"]))


def _number(value: object, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _MAX_NUMBER:
        raise ValueError(f"{value!r:.40} is not a position or a version")
    return value


def _time_text(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _time(text: str) -> datetime:
    found = datetime.fromisoformat(_text(text))
    if found.tzinfo is None:
        raise ValueError("a time without a time zone")
    return found.astimezone(UTC)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not text")
    return value
