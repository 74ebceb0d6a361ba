"""The window of single writes that a shard remembers: their ids, log positions and results.

A write id belongs to one write: a repetition gets the first answer, and nothing is written. The log entry of
the write has its id and its answer (:mod:`weir.format.wal_marks`); every shard manifest has those of all
writes before the position where replay starts.

Ids are remembered in *segments* that never change once they are full, so that a shard with tens of thousands
of them neither copies nor encodes them again with every write or flush. An id is stored as a digest.

An answer says which rows of the write were done, in the write's order. Empty: all of them.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Collection, Iterable, KeysView, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from weir.errors import CorruptionError

__all__ = ["MAX_WRITE_IDS", "DoneWrite", "WriteWindow", "decode_answer", "encode_answer"]

MAX_WRITE_IDS = 65_536
"""How many single writes a shard remembers at least, unless their answers are very large."""

SEGMENT_IDS = 1024
"""How many of them are forgotten together."""

MAX_WINDOW_BYTES = 8 << 20
"""What the window takes in a manifest at most: beyond it the oldest are forgotten earlier."""

_SEGMENT_BYTES = 128 << 10
"""The answers after which a segment is full, however few ids it has."""

_DIGEST_BYTES = 16
_COUNT = struct.Struct("<I")
_ANSWER = struct.Struct("<IB")
_NUMBERS = struct.Struct("<QQI")


class DoneWrite(NamedTuple):
    """The record of a single write.

    Parameters
    ----------
    number : int
        The number it came with.
    position : int
        Where its log entry stands; 0 if it has none, or if that is not known.
    answer : bytes
        Which of its rows were done (:func:`encode_answer`).
    """

    number: int
    position: int = 0
    answer: bytes = b""


def encode_answer(done: npt.NDArray[np.bool_]) -> bytes:
    """Return the stored form of which rows of a write were done.

    Examples
    --------
    >>> encode_answer(np.array([True, True]))
    b''
    >>> decode_answer(encode_answer(np.array([True, False])), 2).tolist()
    [True, False]
    """
    if done.all():
        return b""
    bits = np.packbits(done).tobytes()
    packed = zlib.compress(bits, 1)
    is_packed = len(packed) < len(bits)
    return _ANSWER.pack(len(done), is_packed) + (packed if is_packed else bits)


def decode_answer(answer: bytes, rows: int) -> npt.NDArray[np.bool_] | None:
    """Return which rows of a write were done; None if it cannot have had so many.

    Parameters
    ----------
    answer : bytes
        As :func:`encode_answer` made it.
    rows : int
        How many rows the write should have.
    """
    if not answer:
        return np.ones(rows, dtype=np.bool_)
    count, is_packed = _ANSWER.unpack_from(answer)
    if count != rows:
        return None
    bits = answer[_ANSWER.size :]
    raw = np.frombuffer(zlib.decompress(bits) if is_packed else bits, dtype=np.uint8)
    return np.unpackbits(raw, count=rows).astype(np.bool_)


@dataclass(frozen=True, eq=False)
class _Segment:
    """Ids that were done one after the other, as they are stored."""

    encoded: bytes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Segment) and other.encoded == self.encoded

    def __hash__(self) -> int:
        return hash(self.encoded)

    @classmethod
    def of(cls, writes: Mapping[bytes, DoneWrite]) -> _Segment:
        """Return a segment of some ids, oldest first."""
        facts = b"".join(
            (
                *(_NUMBERS.pack(one.number, one.position, len(one.answer)) for one in writes.values()),
                *(one.answer for one in writes.values()),
            )
        )
        return cls(_COUNT.pack(len(writes)) + b"".join(writes) + zlib.compress(facts, 1))

    @property
    def count(self) -> int:
        count: int = _COUNT.unpack_from(self.encoded)[0]
        return count

    @cached_property
    def _at(self) -> dict[bytes, int]:
        starts = range(_COUNT.size, _COUNT.size + self.count * _DIGEST_BYTES, _DIGEST_BYTES)
        return {self.encoded[start : start + _DIGEST_BYTES]: at for at, start in enumerate(starts)}

    @cached_property
    def _facts(self) -> tuple[array[int], array[int], Mapping[int, bytes]]:
        facts = zlib.decompress(self.encoded[_COUNT.size + self.count * _DIGEST_BYTES :])
        numbers, positions, answers = array("Q"), array("Q"), {}
        end = self.count * _NUMBERS.size
        for at, (number, position, length) in enumerate(_NUMBERS.iter_unpack(facts[:end])):
            numbers.append(number)
            positions.append(position)
            if length:
                answers[at] = facts[end : end + length]
                end += length
        return numbers, positions, answers

    @property
    def digests(self) -> KeysView[bytes]:
        return self._at.keys()

    def get(self, digest: bytes) -> DoneWrite | None:
        at = self._at.get(digest)
        return None if at is None else self._write(at)

    def writes(self) -> dict[bytes, DoneWrite]:
        """Return its content, oldest first."""
        return {digest: self._write(at) for digest, at in self._at.items()}

    def _write(self, at: int) -> DoneWrite:
        numbers, positions, answers = self._facts
        return DoneWrite(numbers[at], positions[at], answers.get(at, b""))


@dataclass(frozen=True, slots=True)
class WriteWindow:
    """The single writes that a shard remembers. A value; made by :meth:`with_done` and :meth:`decode`.

    Examples
    --------
    >>> window = WriteWindow().with_done({"request 1": DoneWrite(0, position=7)})
    >>> window.get("request 1")
    DoneWrite(number=0, position=7, answer=b'')
    >>> WriteWindow.decode(window.encode(), where="example") == window
    True
    """

    _full: tuple[_Segment, ...] = ()
    _recent: Mapping[bytes, DoneWrite] = field(default_factory=dict)
    _recent_bytes: int = field(default=0, compare=False)

    def __len__(self) -> int:
        return sum(one.count for one in self._full) + len(self._recent)

    def __hash__(self) -> int:
        return hash((self._full, tuple(self._recent)))

    def get(self, write_id: str) -> DoneWrite | None:
        """Return the record of a write; None if it was not done, or is forgotten."""
        if not self._recent and not self._full:
            return None
        digest = _digest(write_id)
        found = self._recent.get(digest)
        if found is not None:
            return found
        for segment in reversed(self._full):
            found = segment.get(digest)
            if found is not None:
                return found
        return None

    def known(self, write_ids: Collection[str]) -> set[str]:
        """Return those of some ids whose write was done and is not forgotten.

        Examples
        --------
        >>> WriteWindow().with_done({"request 1": DoneWrite(0)}).known(["request 1", "request 2"])
        {'request 1'}
        """
        if not self._recent and not self._full:
            return set()
        asked = {_digest(write_id): write_id for write_id in write_ids}
        # Sets against sets: asking every segment for every id would take many times as long.
        digests = set(asked)
        held = (self._recent.keys(), *(segment.digests for segment in self._full))
        return {asked[digest] for one in held if not one.isdisjoint(digests) for digest in one & digests}

    def with_done(self, writes: Mapping[str, DoneWrite]) -> WriteWindow:
        """Return the window once some more writes have been done, in their order."""
        full = list(self._full)
        recent = dict(self._recent)
        nbytes = self._recent_bytes
        for write_id, done in writes.items():
            recent[_digest(write_id)] = done
            nbytes += len(done.answer)
            if len(recent) >= SEGMENT_IDS or nbytes >= _SEGMENT_BYTES:
                full.append(_Segment.of(recent))
                recent, nbytes = {}, 0
        return WriteWindow(self._full if len(full) == len(self._full) else _newest(full), recent, nbytes)

    def encode(self) -> list[bytes]:
        """Return the segments as they are stored, oldest first."""
        last = [_Segment.of(self._recent).encoded] if self._recent else []
        return [*(one.encoded for one in self._full), *last]

    @classmethod
    def decode(cls, segments: Iterable[bytes], *, where: str) -> WriteWindow:
        """Return the window that is stored as some segments.

        Raises
        ------
        CorruptionError
            If they are none.
        """
        found = [_Segment(one) for one in segments]
        for one in found:
            size = len(one.encoded)
            if size < _COUNT.size or not one.count or size < _COUNT.size + one.count * _DIGEST_BYTES:
                raise CorruptionError("the shard manifest has half a segment of write ids", where=where)
        recent: dict[bytes, DoneWrite] = {}
        if found and found[-1].count < SEGMENT_IDS:
            try:
                recent = found.pop().writes()
            except (zlib.error, struct.error) as error:
                raise CorruptionError("the shard manifest has unreadable write ids", where=where) from error
        return cls(tuple(found), recent, sum(len(one.answer) for one in recent.values()))


def _newest(full: list[_Segment]) -> tuple[_Segment, ...]:
    """Return the newest of some segments: as many as are remembered and fit."""
    ids = nbytes = 0
    for at, segment in enumerate(reversed(full)):
        nbytes += len(segment.encoded)
        if ids >= MAX_WRITE_IDS or nbytes > MAX_WINDOW_BYTES:
            return tuple(full[len(full) - at :])
        ids += segment.count
    return tuple(full)


@lru_cache(maxsize=4096)  # a write is looked for, perhaps twice, and then noted
def _digest(write_id: str) -> bytes:
    return blake2b(write_id.encode(), digest_size=_DIGEST_BYTES).digest()
