"""Sets and sequences of 64-bit numbers, as Lance serialises them: a U64Segment.

The first MemWAL index lists the entries of a log in one (:mod:`weir.format.first_index_details`). There are
five forms: a range, a range with holes, a range with a bitmap, and arrays of numbers that ascend or do not,
which are stored with two, four or eight bytes each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from weir.errors import CorruptionError, InputError
from weir.format import messages
from weir.format.buffers import Bytes
from weir.format.proto import first_index_pb2 as proto

__all__ = ["U64Segment", "decode", "encode"]

_Numbers: TypeAlias = npt.NDArray[np.uint64]

_LIMIT = 1 << 64
_ITERATED_AT_ONCE = 65_536
# Numbers further apart than that are listed one by one.
_MOST_HOLES = 65_536
# What a range costs beside its holes or its bitmap: its ends.
_ENDS_BYTES = 16


def _no_numbers() -> _Numbers:
    return np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True)
class U64Segment:
    """Numbers of a segment: those of a range but for some, or the numbers of an array.

    Parameters
    ----------
    start : int, default 0
        The first number of the range.
    end : int, default 0
        The number after the last of the range.
    holes : array of uint64, default empty
        Numbers of the range that are not there, ascending.
    array : array of uint64, optional
        The numbers themselves, in order; None if they are those of the range.
    encoded : bytes, optional
        The stored bytes, so that an unchanged segment is written back byte for byte; None if it is new.

    Examples
    --------
    >>> segment = U64Segment.of([0, 1, 3])
    >>> list(segment), len(segment), 2 in segment, segment.next
    ([0, 1, 3], 3, False, 4)
    """

    start: int = 0
    end: int = 0
    holes: _Numbers = field(default_factory=_no_numbers)
    array: _Numbers | None = None
    encoded: bytes | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, numbers: Iterable[int]) -> U64Segment:
        """Return the segment of some numbers, in their order.

        Raises
        ------
        InputError
            If one of them is below 0 or does not fit 64 bits.
        """
        listed = list(numbers)
        if any(not 0 <= number < _LIMIT for number in listed):
            raise InputError("a number of a segment must fit 64 bits and not be negative")
        array = np.array(listed, np.uint64)
        if not array.size:
            return cls()
        if not _ascends(array):
            return cls(array=array)
        start, end = listed[0], listed[-1] + 1
        if end - start > 16 * array.size:
            return cls(array=array)
        places = (array - np.uint64(start)).astype(np.int64)
        is_there = np.zeros(end - start, np.bool_)
        is_there[places] = True
        return cls(start, end, np.flatnonzero(~is_there).astype(np.uint64) + np.uint64(start))

    def __len__(self) -> int:
        return self.count

    @property
    def count(self) -> int:
        """How many numbers there are, also where they are more than ``len`` can say."""
        return self.end - self.start - self.holes.size if self.array is None else int(self.array.size)

    def __contains__(self, number: object) -> bool:
        if not isinstance(number, int) or not 0 <= number < _LIMIT:
            return False
        if self.array is not None:
            return bool((self.array == np.uint64(number)).any())
        at = int(np.searchsorted(self.holes, np.uint64(number)))
        is_hole = at < self.holes.size and int(self.holes[at]) == number
        return self.start <= number < self.end and not is_hole

    def __iter__(self) -> Iterator[int]:
        if self.array is not None:
            yield from self.array.tolist()
            return
        for start in range(self.start, self.end, _ITERATED_AT_ONCE):
            some = np.arange(start, min(start + _ITERATED_AT_ONCE, self.end), dtype=np.uint64)
            yield from np.setdiff1d(some, self.holes, assume_unique=True).tolist()

    def ascending(self) -> Iterator[int]:
        """Yield the numbers from the lowest to the highest, few at a time."""
        return iter(self) if self.array is None else iter(np.sort(self.array).tolist())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, U64Segment):
            return NotImplemented
        if self.array is not None and other.array is not None:
            return bool(np.array_equal(self.array, other.array))
        same_form = self.array is None and other.array is None
        same_range = (self.start, self.end) == (other.start, other.end)
        return same_form and same_range and bool(np.array_equal(self.holes, other.holes))

    __hash__ = None  # type: ignore[assignment]

    @property
    def next(self) -> int:
        """The number after the highest; 0 if there is none."""
        if self.array is None:
            return self.end
        return int(self.array.max()) + 1 if self.array.size else 0

    @property
    def form(self) -> str:
        """The form it is stored in: range, range with holes, range with bitmap, sorted array or array."""
        message = proto.U64Segment()
        message.ParseFromString(encode(self))
        kind = message.WhichOneof("segment")
        return "empty" if kind is None else kind.replace("_", " ")

    def with_number(self, number: int) -> U64Segment:
        """Return the segment with one number more, above all others; skipped numbers are holes.

        Raises
        ------
        InputError
            If it is not above all others.
        """
        if number < self.next or number >= _LIMIT:
            raise InputError(f"number {number} is not above those of a segment that ends before {self.next}")
        if self.array is not None:
            return U64Segment(array=np.append(self.array, np.uint64(number)))
        if not self.count:
            return U64Segment(number, number + 1)
        if number - self.end > _MOST_HOLES:
            return U64Segment(array=np.append(np.fromiter(self, np.uint64, self.count), np.uint64(number)))
        skipped = np.arange(self.end, number, dtype=np.uint64)
        return U64Segment(self.start, number + 1, np.concatenate([self.holes, skipped]))


def encode(segment: U64Segment) -> bytes:
    """Return the bytes to store for a segment: as it was stored, else in the form that takes the fewest.

    Examples
    --------
    >>> encode(U64Segment(0, 3)).hex()
    '0a021003'
    """
    if segment.encoded is not None:
        return segment.encoded
    message = proto.U64Segment()
    if segment.array is not None:
        kept = message.sorted_array if _ascends(segment.array) else message.array
        kept.CopyFrom(_encode_array(segment.array))
    elif not segment.holes.size:
        message.range.SetInParent()
        message.range.start, message.range.end = segment.start, segment.end
    else:
        _encode_with_holes(message, segment)
    return messages.serialize(message)


def _encode_with_holes(message: proto.U64Segment, segment: U64Segment) -> None:
    slots, count = segment.end - segment.start, segment.count
    holes = _encode_array(segment.holes)
    sizes = {
        "holes": _ENDS_BYTES + holes.ByteSize(),
        "bitmap": _ENDS_BYTES + -(-slots // 8),
        "sorted": (2 if slots <= 1 << 16 else 4 if slots <= 1 << 32 else 8) * count,
    }
    least = min(sizes, key=sizes.__getitem__)
    if least == "holes":
        message.range_with_holes.start, message.range_with_holes.end = segment.start, segment.end
        message.range_with_holes.holes.CopyFrom(holes)
        return
    if least == "sorted":
        message.sorted_array.CopyFrom(_encode_array(np.fromiter(segment, np.uint64, count)))
        return
    is_there = np.ones(slots, np.bool_)
    is_there[(segment.holes - np.uint64(segment.start)).astype(np.int64)] = False
    message.range_with_bitmap.start, message.range_with_bitmap.end = segment.start, segment.end
    message.range_with_bitmap.bitmap = np.packbits(is_there, bitorder="little").tobytes()


def _encode_array(numbers: _Numbers) -> proto.EncodedU64Array:
    message = proto.EncodedU64Array()
    if not numbers.size:
        message.u64_array.SetInParent()
        return message
    base, span = int(numbers.min()), int(numbers.max()) - int(numbers.min())
    if span < 1 << 32:
        kept, width = (message.u16_array, "<u2") if span < 1 << 16 else (message.u32_array, "<u4")
        kept.base = base
        kept.offsets = (numbers - np.uint64(base)).astype(width).tobytes()
    else:
        message.u64_array.values = numbers.astype("<u8").tobytes()
    return message


def decode(data: Bytes, *, where: str) -> U64Segment:
    """Return the segment stored as ``data``; no bytes at all are one without numbers.

    Parameters
    ----------
    data : bytes-like
        A serialised U64Segment.
    where : str
        Where it is from, for the error.

    Raises
    ------
    CorruptionError
        The bytes are not one: no message of this kind, a range that ends before it starts, a bitmap of
        another length, holes outside the range or out of order, an array that says it ascends and does not.
    """
    message = messages.parse(proto.U64Segment(), data, what="segment", where=where)
    kind, stored = message.WhichOneof("segment"), bytes(data)
    if kind is None:
        if stored:
            raise CorruptionError("the segment has an unknown form", where=where)
        return U64Segment(encoded=stored)
    if kind in {"sorted_array", "array"}:
        array = _decode_array(message.array if kind == "array" else message.sorted_array, where)
        if kind == "sorted_array" and not _ascends(array):
            raise CorruptionError("the sorted array of the segment does not ascend", where=where)
        return U64Segment(array=array, encoded=stored)
    ranged = getattr(message, kind)
    start, end = ranged.start, ranged.end
    if end < start:
        raise CorruptionError(f"the segment's range from {start} ends before it, at {end}", where=where)
    holes = _no_numbers()
    if kind == "range_with_holes":
        holes = _decode_array(ranged.holes, where)
        inside = not holes.size or (start <= int(holes[0]) and int(holes[-1]) < end)
        if not _ascends(holes) or not inside:
            raise CorruptionError("the holes of the segment are out of order or out of range", where=where)
    elif kind == "range_with_bitmap":
        holes = _holes(ranged.bitmap, start, end, where)
    return U64Segment(start, end, holes, encoded=stored)


def _holes(bitmap: bytes, start: int, end: int, where: str) -> _Numbers:
    if len(bitmap) != -(-(end - start) // 8):
        raise CorruptionError(
            f"the segment's bitmap has {len(bitmap)} bytes for a range of {end - start} numbers", where=where
        )
    is_there = np.unpackbits(np.frombuffer(bitmap, np.uint8), count=end - start, bitorder="little")
    return np.flatnonzero(is_there == 0).astype(np.uint64) + np.uint64(start)


def _decode_array(message: proto.EncodedU64Array, where: str) -> _Numbers:
    kind = message.WhichOneof("array")
    if kind is None:
        raise CorruptionError("an array of the segment has an unknown form", where=where)
    kept = getattr(message, kind)
    width, data = {"u16_array": 2, "u32_array": 4, "u64_array": 8}[kind], b""
    data = kept.values if kind == "u64_array" else kept.offsets
    if len(data) % width:
        raise CorruptionError(f"an array of the segment has {len(data)} bytes, {width} a number", where=where)
    numbers = np.frombuffer(data, f"<u{width}").astype(np.uint64)
    if kind == "u64_array":
        return numbers
    if numbers.size and kept.base + int(numbers.max()) >= _LIMIT:
        raise CorruptionError("a number of the segment does not fit 64 bits", where=where)
    return numbers + np.uint64(kept.base)


def _ascends(numbers: _Numbers) -> bool:
    return bool((numbers[1:] > numbers[:-1]).all())
