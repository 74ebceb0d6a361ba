"""The mark of a write that may be repeated: where its rows come from, and how far that source has got.

A source numbers what it sends, each number higher than the one before. A shard remembers the highest number
of every source whose rows it has, and passes over a write with a number that is not above it. So whoever
cannot tell whether a write has been done does it again.

A name that begins with ``once:`` is that of a single write: nothing else comes from this source, and its
number only tells something about it. Of those a shard remembers a window, the last few thousand, and forgets
the oldest.

A mark stands in the log entry that holds its rows (:mod:`weir.format.wal_entry`), and in every shard manifest
stand those of all that its generations cover (:mod:`weir.format.shard_manifest`). Weir's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from weir.errors import InputError

__all__ = ["MAX_SINGLE", "MAX_SOURCES", "Source", "SourceMarks"]

MAX_SOURCES = 4096
"""How many sources a shard remembers: they stand in each of its manifests."""

MAX_SINGLE = 4096
"""How many single writes a shard remembers; when there are more, it forgets the older half."""

_SINGLE = "once:"
_MAX_NAME_BYTES = 256
_MAX_SEQUENCE = (1 << 63) - 1


@dataclass(frozen=True, slots=True, order=True)
class Source:
    """Where the rows of a write come from, so that writing them twice does no more than writing them once.

    Parameters
    ----------
    name : str
        The source, such as the name of a job or a stream; the same in every attempt. From 1 to 256 bytes
        of UTF-8.
    sequence : int
        Number of this write, from 0 to 2**63 - 1. A shard that has rows of the source with this number or
        a higher one passes the write over.

    Raises
    ------
    InputError
        If the name is empty or too long, or the number is out of range.

    Examples
    --------
    >>> Source("orders", 42)
    Source(name='orders', sequence=42)
    """

    name: str
    sequence: int

    def __post_init__(self) -> None:
        """Check both."""
        if not isinstance(self.name, str) or not 1 <= _length(self.name) <= _MAX_NAME_BYTES:
            raise InputError(
                f"the name of a source has from 1 to {_MAX_NAME_BYTES} bytes of UTF-8, got {self.name!r:.80}",
                where="source",
            )
        number = self.sequence
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= _MAX_SEQUENCE:
            raise InputError(
                f"the sequence of a source is a whole number from 0 to 2**63 - 1, got {number!r:.100}",
                where="source",
            )

    @property
    def is_single(self) -> bool:
        """Whether it is that of a single write."""
        return self.name.startswith(_SINGLE)


def _length(name: str) -> int:
    try:
        return len(name.encode())
    except UnicodeEncodeError:
        # Half of a surrogate pair, which no file can hold.
        return 0


@dataclass(frozen=True, slots=True)
class SourceMarks:
    """The highest number of every source that a shard has rows of. A value.

    Parameters
    ----------
    sequences : mapping of str to int, default {}
        By the name of the source.

    Examples
    --------
    >>> marks = SourceMarks({"orders": 41})
    >>> marks.covers(Source("orders", 42)), marks.covers(Source("orders", 41))
    (False, True)
    >>> marks.with_mark(Source("orders", 42))
    SourceMarks(sequences={'orders': 42})
    """

    sequences: Mapping[str, int] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(frozenset(self.sequences.items()))

    def __iter__(self) -> Iterator[Source]:
        """Yield the marks by the name of their source, then those of single writes, oldest first."""
        lasting = sorted(name for name in self.sequences if not name.startswith(_SINGLE))
        single = (name for name in self.sequences if name.startswith(_SINGLE))
        return (Source(name, self.sequences[name]) for name in (*lasting, *single))

    def covers(self, source: Source) -> bool:
        """Whether a write with this mark has been done; of a single write, whatever its number."""
        known = self.sequences.get(source.name)
        return known is not None and (source.is_single or known >= source.sequence)

    def with_mark(self, source: Source | None) -> SourceMarks:
        """Return the marks once a write has been done; the same if it has no mark, or one that is covered."""
        return self if source is None else self.with_marks((source,))

    @property
    def is_full(self) -> bool:
        """Whether there are as many sources as may be that are for good."""
        if len(self.sequences) < MAX_SOURCES:
            return False
        return sum(not name.startswith(_SINGLE) for name in self.sequences) >= MAX_SOURCES

    def with_marks(self, sources: Iterable[Source]) -> SourceMarks:
        """Return the marks once several writes have been done."""
        new = [source for source in sources if not self.covers(source)]
        if not new:
            return self
        sequences = dict(self.sequences)
        for source in new:
            sequences[source.name] = max(source.sequence, sequences.get(source.name, -1))
        if len(sequences) > MAX_SINGLE and any(source.is_single for source in new):
            single = [name for name in sequences if name.startswith(_SINGLE)]
            for name in single[: -MAX_SINGLE // 2] if len(single) > MAX_SINGLE else ():
                del sequences[name]
        return SourceMarks(sequences)
