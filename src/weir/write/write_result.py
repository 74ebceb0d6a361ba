"""The result of a durable write, combined from those of its shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import TypeVar, overload
from uuid import UUID

import pyarrow as pa

__all__ = ["WriteResult", "in_pieces", "joined", "together", "with_answer"]

Piece = TypeVar("Piece")


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What a durable write left in the WAL; for a repeated single write, what the first one left.

    Parameters
    ----------
    rows : int
        Rows written, tombstones included.
    positions : mapping of UUID to int
        For every shard the rows went to, the WAL position that made the last of them durable.
    deduplicated : tuple of UUID, default ()
        Shards to which nothing was written because they already have the rows: from a write with the same
        source and this number, or a higher one, or from a single write with the same id. For the latter, the
        other fields are those of the first write.
    done : Table, optional
        For a write that depends on existing rows: the keys it changed, tombstones included.
    skipped : Table, optional
        The keys it left as they were, because a condition did not hold, or the row did or did not exist. A
        write that changes nothing is not an error. None if the write as a whole was skipped.
    remaining : int, default 0
        For an update or delete by filter with a limit: the matching rows that are left for another call.
    """

    rows: int
    positions: Mapping[UUID, int]
    deduplicated: tuple[UUID, ...] = ()
    done: pa.Table | None = field(default=None, compare=False, repr=False)
    skipped: pa.Table | None = field(default=None, compare=False, repr=False)
    remaining: int = 0


def joined(one: WriteResult, other: WriteResult) -> WriteResult:
    """Return the result of two writes, one after the other, without a source."""
    return WriteResult(
        one.rows + other.rows,
        {**one.positions, **other.positions},
        done=together([one.done, other.done]),
        skipped=together([one.skipped, other.skipped]),
    )


@overload
def with_answer(written: WriteResult, known: WriteResult) -> WriteResult: ...
@overload
def with_answer(written: Future[WriteResult], known: WriteResult) -> Future[WriteResult]: ...
def with_answer(
    written: WriteResult | Future[WriteResult], known: WriteResult
) -> WriteResult | Future[WriteResult]:
    """Return the result of a write combined with that of its rows that were written before."""
    if isinstance(written, WriteResult):
        deduplicated = (*known.deduplicated, *written.deduplicated)
        return replace(joined(known, written), deduplicated=deduplicated)
    whole: Future[WriteResult] = Future()

    def settle(rest: Future[WriteResult]) -> None:
        error = rest.exception()
        if error is not None:
            whole.set_exception(error)
        else:
            whole.set_result(with_answer(rest.result(), known))

    written.add_done_callback(settle)
    return whole


def in_pieces(
    stream: Iterable[Piece], write: Callable[[Piece, int], WriteResult], progress: Callable[[int], object]
) -> WriteResult:
    """Write a stream piece by piece, and return the result of all.

    Parameters
    ----------
    stream : iterable
        The pieces, of which one at a time is in memory.
    write : callable
        Writes a piece, given the number of its first row in the stream.
    progress : callable
        Is told after every piece how many rows are durable.
    """
    result = WriteResult(0, {})
    for piece in stream:
        result = joined(result, write(piece, result.rows))
        progress(result.rows)
    return result


def together(tables: Sequence[pa.Table | None]) -> pa.Table | None:
    """Return the keys of several results; None if none of them names any."""
    known = [one for one in tables if one is not None]
    return pa.concat_tables(known).combine_chunks() if known else None
