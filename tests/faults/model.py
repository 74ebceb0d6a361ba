"""What a table may hold, given what its writers have told: far simpler than what it checks.

The log of a shard, as the change feed reads it, is the order of its writes. It has to agree with what the
writers know, and every read has to agree with it:

- an acknowledged write is in the log, whole, once, at the position that its writer was told;
- a refused write is not in it;
- a write in doubt (its process died, or its call failed) is in it once and whole, or not at all;
- what began after another write had ended comes after it;
- nothing else is in it;
- the table is what the log leaves, and a strong read that went on beside it all is what the log had left
  at some moment between its beginning and its end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

__all__ = ["Change", "Key", "Model", "Observation", "Write"]

Key = tuple[int, int]
"""The group, which is the shard, and the number of a row in it."""


@dataclass(frozen=True, slots=True)
class Write:
    """One call of a writer, as the writer knows it.

    Parameters
    ----------
    name : str
        Unique; the value of the rows it upserts.
    writer : str
        Who made it; one call after the other.
    keys : frozenset of Key
        The rows it touches, all of one shard. No two deletes have the same.
    is_delete : bool
        Whether it deletes them.
    began, ended : float
        When it was called, and when it certainly was over: answered, or its process dead.
    position : int, optional
        Where it was acknowledged.
    is_refused : bool
        Whether its writer was told that nothing was written.
    """

    name: str
    writer: str
    keys: frozenset[Key]
    is_delete: bool
    began: float
    ended: float
    position: int | None = None
    is_refused: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """One row of a shard's log: what it made of a key, None if it was deleted."""

    group: int
    position: int
    epoch: int
    key: Key
    value: str | None


@dataclass(frozen=True, slots=True)
class Observation:
    """A strong read: when it was made, the keys it asked for, and the value of each that it found."""

    began: float
    ended: float
    asked: frozenset[Key]
    found: dict[Key, str]


@dataclass(frozen=True, slots=True)
class _Version:
    value: str | None
    began: float
    acknowledged: float


class Model:
    """The table, as its log and its writers have it."""

    def __init__(self) -> None:
        self.rows: dict[Key, str] = {}
        self.landed_in_doubt = 0
        self._epochs: dict[int, int] = {}
        self._positions: dict[int, int] = {}
        self._versions: dict[Key, list[_Version]] = {}

    def follow(self, writes: Iterable[Write], changes: Iterable[Change]) -> None:
        """Take in what was written since the last time. No writer is alive any more."""
        waiting = {write.name: write for write in writes}
        # Of earlier rounds only what they left can still be seen.
        self._versions = {key: [_Version(value, -math.inf, -math.inf)] for key, value in self.rows.items()}
        began: dict[int, float] = {}
        latest: dict[tuple[int, str], float] = {}
        for (group, position), entry in groupby(changes, lambda change: (change.group, change.position)):
            rows = list(entry)
            self._follow_position(rows[0])
            for write in self._writes_of(rows, waiting):
                del waiting[write.name]
                assert not write.is_refused, f"refused, and in the log: {write}"
                assert write.position in (None, position), f"acknowledged elsewhere than {position}: {write}"
                assert write.ended >= began.get(group, -math.inf), f"after what began later: {write}"
                began[group] = max(began.get(group, -math.inf), write.began)
                assert write.began > latest.get((group, write.writer), -math.inf), f"out of order: {write}"
                latest[group, write.writer] = write.began
                self._apply(write)
        lost = [write for write in waiting.values() if write.position is not None]
        assert not lost, f"acknowledged, and not in the log: {lost}"

    def _follow_position(self, row: Change) -> None:
        assert row.position > self._positions.get(row.group, 0), f"the log goes back: {row}"
        assert row.epoch >= self._epochs.get(row.group, 0), f"a fenced writer was accepted: {row}"
        self._positions[row.group] = row.position
        self._epochs[row.group] = row.epoch

    def _writes_of(self, rows: Sequence[Change], waiting: Mapping[str, Write]) -> list[Write]:
        """Return the writes that make up an entry, in order."""
        if rows[0].value is None:
            # A delete has an entry of its own, and is told by its keys.
            keys = frozenset(row.key for row in rows)
            assert all(row.value is None for row in rows), rows
            deletes = [one for one in waiting.values() if one.is_delete and one.keys == keys]
            assert deletes, f"deleted twice, or by nobody: {rows}"
            return deletes
        written = []
        for name, part in groupby(rows, lambda row: row.value):
            assert name in waiting, f"written twice, or by nobody: {rows}"
            write = waiting[name]
            touched = [row.key for row in part]
            assert sorted(touched) == sorted(write.keys), f"not whole: {write}, only {touched}"
            written.append(write)
        return written

    def _apply(self, write: Write) -> None:
        acknowledged = math.inf if write.position is None else write.ended
        self.landed_in_doubt += write.position is None
        value = None if write.is_delete else write.name
        for key in write.keys:
            self._versions.setdefault(key, [_Version(None, -math.inf, -math.inf)]).append(
                _Version(value, write.began, acknowledged)
            )
            if value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = value

    def check(self, seen: Observation) -> None:
        """Compare a read that was made while the writers were at work."""
        assert seen.found.keys() <= seen.asked, "rows that nobody asked for"
        for key in seen.asked:
            versions = self._versions.get(key, [_Version(None, -math.inf, -math.inf)])
            settled = max(number for number, one in enumerate(versions) if one.acknowledged < seen.began)
            possible = {one.value for one in versions[settled:] if one.began <= seen.ended}
            found = seen.found.get(key)
            assert found in possible, f"{key} is {found}, and can only be one of {possible}: {seen}"
