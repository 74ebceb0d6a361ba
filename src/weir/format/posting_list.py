"""Posting lists of Lance's full-text indexes: the rows that contain a word, and how often.

The list of a word is split into blocks of 128 rows. A whole block holds the number of its first row, the
steps from row to row and the counts, each packed to as many bits as the largest needs: 32-bit words of four
lanes, where every fourth value is in the same lane. The remaining rows make a last block, of numbers of seven
bits a byte.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.errors import CorruptionError

__all__ = ["BLOCK_ROWS", "TAIL_CODEC", "PostingLists", "decode"]

BLOCK_ROWS = 128
"""Rows of a whole block."""

TAIL_CODEC = "varint_delta_v1"
"""What an index calls the way its last blocks are written in."""

_SCORE_BYTES = 4
_FIRST_ROW_BYTES = 4
_LANES = 4
_PER_LANE = BLOCK_ROWS // _LANES
_WIDEST = 32
_LONGEST_NUMBER = 5

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PostingLists:
    """Decoded lists, one after the other.

    Parameters
    ----------
    documents : ndarray of int32
        Numbers of the rows, ascending within a list.
    counts : ndarray of int32
        How often each has the word.
    starts : ndarray of int64
        Where each list begins, and where the last one ends.
    """

    documents: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int32]
    starts: Numbers

    @property
    def nbytes(self) -> int:
        """Bytes it takes in memory."""
        return int(self.documents.nbytes + self.counts.nbytes + self.starts.nbytes)


def decode(blocks: pa.Array, lengths: npt.NDArray[np.uint32], *, where: str) -> PostingLists:
    """Decode posting lists, all at once.

    Parameters
    ----------
    blocks : ListArray of large_binary
        The blocks of each list.
    lengths : ndarray of uint32
        How many rows each has.
    where : str
        Where they were read, for errors.

    Raises
    ------
    CorruptionError
        If these are no posting lists.
    """
    sizes = lengths.astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    documents, counts = np.zeros(int(starts[-1]), dtype=np.int32), np.zeros(int(starts[-1]), dtype=np.int32)
    whole, left = np.divmod(sizes, BLOCK_ROWS)
    first_block = blocks.offsets.to_numpy().astype(np.int64)
    flat = blocks.values
    if not np.array_equal(np.diff(first_block), whole + (left > 0)):
        raise _damaged(where, "the number of blocks is not what the number of rows says")
    data = np.frombuffer(flat.buffers()[2] or b"", dtype=np.uint8)
    bounds = np.frombuffer(flat.buffers()[1], dtype=np.int64)[flat.offset : flat.offset + len(flat) + 1]
    number = _ranges(whole)
    at = _ranges(whole, first_block[:-1])
    to = (np.repeat(starts[:-1], whole) + BLOCK_ROWS * number)[:, None] + np.arange(BLOCK_ROWS)
    if len(at):
        documents[to], counts[to] = _whole_blocks(data, bounds[at], bounds[at + 1], where)
    having = np.flatnonzero(left)
    if len(having):
        last = first_block[having] + whole[having]
        rows = left[having]
        to = _ranges(rows, starts[having] + BLOCK_ROWS * whole[having])
        documents[to], counts[to] = _last_blocks(
            data, bounds[last] + _SCORE_BYTES, bounds[last + 1], rows, where
        )
    return PostingLists(documents, counts, starts)


def _whole_blocks(data: Bytes, low: Numbers, high: Numbers, where: str) -> tuple[Numbers, Numbers]:
    """Return rows and counts of some blocks, one block per row."""
    head = low + _SCORE_BYTES
    if np.any(high - head < _FIRST_ROW_BYTES + 2):
        raise _damaged(where, "a block is cut short")
    first = data[head[:, None] + np.arange(_FIRST_ROW_BYTES)].view("<u4").astype(np.int64)
    place = head + _FIRST_ROW_BYTES
    steps, place = _unpacked(data, place, high - 1, where)
    counts, place = _unpacked(data, place, high, where)
    if np.any(place != high):
        raise _damaged(where, "a block is longer than its numbers")
    return first + np.cumsum(steps, axis=1), counts


def _unpacked(data: Bytes, place: Numbers, high: Numbers, where: str) -> tuple[Numbers, Numbers]:
    """Return the numbers that are packed from some places on, and where they end."""
    bits = data[place].astype(np.int64)
    end = place + 1 + bits * (BLOCK_ROWS // 8)
    if np.any(bits > _WIDEST) or np.any(end > high):
        raise _damaged(where, "a block holds numbers of more bits than there are")
    found = np.zeros((len(place), BLOCK_ROWS), dtype=np.int64)
    for width in np.unique(bits[bits > 0]).tolist():
        (mine,) = np.nonzero(bits == width)
        packed = data[(place[mine] + 1)[:, None] + np.arange(width * BLOCK_ROWS // 8)]
        words = packed.view("<u4").reshape(len(mine), width, _LANES).astype(np.uint64)
        bit = np.arange(_PER_LANE) * width
        word, shift = bit // 32, (bit % 32).astype(np.uint64)
        # A number may continue in the next word of its lane.
        both = words[:, word] | (words[:, np.minimum(word + 1, width - 1)] << np.uint64(32))
        values = (both >> shift[:, None]) & np.uint64((1 << width) - 1)
        found[mine] = values.reshape(len(mine), BLOCK_ROWS).astype(np.int64)
    return found, end


def _last_blocks(
    data: Bytes, low: Numbers, high: Numbers, rows: Numbers, where: str
) -> tuple[Numbers, Numbers]:
    """Return rows and counts of last blocks, one block after the other."""
    sizes = np.maximum(high - low, 0)
    read = data[_ranges(sizes, low)]
    ends = np.flatnonzero(read < 128)
    begins = np.concatenate([[0], ends[:-1] + 1]).astype(np.int64)
    digits = ends + 1 - begins
    if len(ends) != 2 * int(rows.sum()) or ends[-1] + 1 != len(read) or digits.max() > _LONGEST_NUMBER:
        raise _damaged(where, "a last block has not as many numbers as rows")
    values = (read[begins] & 127).astype(np.int64)
    for digit in range(1, int(digits.max())):
        (longer,) = np.nonzero(digits > digit)
        values[longer] += (read[begins[longer] + digit] & 127).astype(np.int64) << (7 * digit)
    # First the rows of a block, as steps, then its counts.
    of_block = _ranges(rows, np.cumsum(2 * rows) - 2 * rows)
    steps, counts = values[of_block], values[of_block + np.repeat(rows, rows)]
    total = np.cumsum(steps)
    begin = np.cumsum(rows) - rows
    return total - np.repeat(total[begin] - steps[begin], rows), counts


def _ranges(sizes: Numbers, starts: Numbers | int = 0) -> Numbers:
    """Return as many numbers as each size says, from each start on, one range after the other."""
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    found: Numbers = np.arange(total) + np.repeat(starts - (ends - sizes), sizes)
    return found


def _damaged(where: str, message: str) -> CorruptionError:
    return CorruptionError(
        f"the full-text index cannot be read: {message}", where=where, hint="Create the index again"
    )
