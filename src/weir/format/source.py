"""The mark of a repeatable write: where its rows come from, and the progress of that source.

A source numbers what it sends, each number higher than the one before. A shard remembers the highest number
of every source whose rows it has, and skips a write with a number that is not above it. So a source that does
not know whether a write was done repeats it.

A name that begins with ``once:``, as of :meth:`Source.once`, is that of a single write: nothing else comes
from this source, and its number is only information. A shard remembers a window of these with their answers,
and forgets the oldest (:mod:`weir.format.write_window`).

A mark stands in the log entry that holds its rows (:mod:`weir.format.wal_entry`), and in every shard manifest
stand those of all that its generations cover (:mod:`weir.format.shard_manifest`). Weir's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from weir.errors import InputError
from weir.format.write_window import DoneWrite, WriteWindow

__all__ = ["MAX_SOURCES", "Source", "SourceMarks"]

MAX_SOURCES = 4096
"""How many sources a shard remembers: they stand in each of its manifests."""

_SINGLE = "once:"
_MAX_NAME_BYTES = 256
_MAX_SEQUENCE = (1 << 63) - 1


@dataclass(frozen=True, slots=True, order=True)
class Source:
    """Identifies where the rows of a write come from, so that writing them twice has no further effect.

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

    @classmethod
    def once(cls, write_id: str, number: int = 0) -> Source:
        """Return the mark of a single write, by its own id, such as that of a request.

        A repeated write with the same id gets the first answer. A shard remembers the last 65,536 of them at
        least.

        Parameters
        ----------
        write_id : str
            From 1 to 251 bytes of UTF-8.
        number : int, default 0
            Further information about it.

        Examples
        --------
        >>> Source.once("request 17").is_single
        True
        """
        most = _MAX_NAME_BYTES - len(_SINGLE)
        if not isinstance(write_id, str) or not 1 <= _length(write_id) <= most:
            raise InputError(
                f"a write id has from 1 to {most} bytes of UTF-8, got {write_id!r:.80}",
                where="write_id",
            )
        return cls(_SINGLE + write_id, number)

    @property
    def is_single(self) -> bool:
        """Whether it marks a single write."""
        return self.name.startswith(_SINGLE)


def _length(name: str) -> int:
    if name.isascii():
        return len(name)
    try:
        return len(name.encode())
    except UnicodeEncodeError:
        # Half of a surrogate pair, which no file can hold.
        return 0


@dataclass(frozen=True, slots=True)
class SourceMarks:
    """The highest number of every source that a shard has rows of, and its single writes. A value.

    Parameters
    ----------
    sequences : mapping of str to int, default {}
        By the name of the source.
    window : WriteWindow, default none
        The single writes.

    Examples
    --------
    >>> marks = SourceMarks({"orders": 41})
    >>> marks.covers(Source("orders", 42)), marks.covers(Source("orders", 41))
    (False, True)
    >>> marks.with_mark(Source("orders", 42)).sequences
    {'orders': 42}
    """

    sequences: Mapping[str, int] = field(default_factory=dict)
    window: WriteWindow = field(default_factory=WriteWindow)

    def __hash__(self) -> int:
        return hash((frozenset(self.sequences.items()), self.window))

    def __iter__(self) -> Iterator[Source]:
        """Yield the marks by the name of their source, without those of single writes."""
        return (Source(name, self.sequences[name]) for name in sorted(self.sequences))

    def covers(self, source: Source) -> bool:
        """Whether a write with this mark has been done; for a single write, whatever its number."""
        if source.is_single:
            return self.window.get(source.name) is not None
        known = self.sequences.get(source.name)
        return known is not None and known >= source.sequence

    def with_mark(self, source: Source | None) -> SourceMarks:
        """Return the marks once a write has been done; the same if it has no mark, or one that is covered."""
        return self if source is None else self.with_marks((source,))

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another source."""
        return len(self.sequences) >= MAX_SOURCES

    def with_marks(
        self, sources: Iterable[Source], answers: Sequence[bytes] = (), position: int = 0
    ) -> SourceMarks:
        """Return the marks once several writes have been done.

        Parameters
        ----------
        sources : iterable of Source
            Their marks, in their order.
        answers : sequence of bytes, default ()
            What each did; none if each did all that it was to do.
        position : int, default 0
            Where they stand in the log.
        """
        marks = tuple(sources)
        known = self.window.known([source.name for source in marks if source.is_single])
        single: dict[str, DoneWrite] = {}
        sequences: dict[str, int] | None = None
        for at, source in enumerate(marks):
            if source.is_single:
                if source.name not in known:
                    done = DoneWrite(source.sequence, position, answers[at] if answers else b"")
                    single.setdefault(source.name, done)
                continue
            if self.covers(source):
                continue
            sequences = dict(self.sequences) if sequences is None else sequences
            sequences[source.name] = max(source.sequence, sequences.get(source.name, -1))
        if not single and sequences is None:
            return self
        return SourceMarks(
            self.sequences if sequences is None else sequences,
            self.window.with_done(single) if single else self.window,
        )
