"""Lookups in a finite state transducer, in which Lance stores the words of a full-text index.

The layout is version 3 of the ``fst`` format. A node is read backwards from its address: a state byte, then
the parts that it announces. The value of a word is the sum of the outputs along its letters.

=============  =====================================================================================
bytes          value
=============  =====================================================================================
8              version, little-endian
8              kind
...            nodes; a node comes after those that it leads to
8              number of words
8              address of the root
4              checksum
=============  =====================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from weir.errors import CorruptionError

__all__ = ["Fst"]

_VERSION = 3
_HEADER_BYTES = 16
_FOOTER_BYTES = 20
_INDEXED_FROM = 32
_NO_NODE = 0

_COMMON_LETTERS = b"te/oasripcnw.hlm-du012g=:bf3y5&_4v9678k%?xCDASFIBEjPTzRNM+LOqHG"


@dataclass(frozen=True, slots=True)
class _Step:
    """Where a letter leads, and what it adds."""

    to: int
    output: int


class Fst:
    """A transducer from words to numbers.

    Parameters
    ----------
    data : bytes
        The whole of it.
    where : str
        The file it is in, for errors.

    Raises
    ------
    ValueError
        If it is of another version.
    """

    def __init__(self, data: bytes, *, where: str) -> None:
        self._where = where
        if len(data) < _HEADER_BYTES + _FOOTER_BYTES or _number(data, 0, 8) != _VERSION:
            raise ValueError("not a transducer of a known version")
        self._data = data
        self._root = _number(data, len(data) - 12, 8)

    @property
    def nbytes(self) -> int:
        """Bytes it takes in memory."""
        return len(self._data)

    def get(self, word: bytes) -> int | None:
        """Return the number of a word, or None if it is not there.

        Raises
        ------
        CorruptionError
            If a node leads out of the transducer.
        """
        try:
            return self._get(word)
        except IndexError as error:
            raise CorruptionError(
                "the words of a full-text index cannot be read",
                where=self._where,
                hint="Drop the index and create it again",
            ) from error

    def _get(self, word: bytes) -> int | None:
        node, total = self._root, 0
        for letter in word:
            step = self._step(node, letter) if node != _NO_NODE else None
            if step is None:
                return None
            node, total = step.to, total + step.output
        if node == _NO_NODE:
            return total
        final = self._final_output(node)
        return None if final is None else total + final

    def _step(self, node: int, letter: int) -> _Step | None:
        data, state = self._data, self._data[node]
        if state & 0x80:
            common = state & 0x3F
            at = node if common else node - 1
            if (_COMMON_LETTERS[common - 1] if common else data[at]) != letter:
                return None
            if state & 0x40:
                # The next node is right before this one, and nothing is added.
                return _Step(at - 1, 0)
            at -= 1
            address_bytes, output_bytes = data[at] >> 4, data[at] & 0x0F
            end = at - address_bytes - output_bytes
            to = _target(data, at - address_bytes, address_bytes, end)
            return _Step(to, _number(data, end, output_bytes))
        at, count, _ = self._many(node)
        address_bytes, output_bytes = data[at] >> 4, data[at] & 0x0F
        indexed = 256 if count > _INDEXED_FROM else 0
        if indexed:
            which = data[at - 256 + letter]
            if which >= count:
                return None
        else:
            found = data.find(letter, at - count, at)
            if found < 0:
                return None
            which = at - 1 - found
        addresses = at - indexed - count
        outputs = addresses - count * address_bytes
        end = self._end(node)
        to = _target(data, addresses - (which + 1) * address_bytes, address_bytes, end)
        return _Step(to, _number(data, outputs - (which + 1) * output_bytes, output_bytes))

    def _many(self, node: int) -> tuple[int, int, bool]:
        """Return where the sizes of a node of many letters are, how many there are, and if a word ends."""
        data, state = self._data, self._data[node]
        count = state & 0x3F
        if count:
            return node - 1, count, bool(state & 0x40)
        stored = data[node - 1]
        # 256 does not fit, and a single letter is never stored like this.
        return node - 2, 256 if stored == 1 else stored, bool(state & 0x40)

    def _end(self, node: int) -> int:
        data = self._data
        at, count, final = self._many(node)
        address_bytes, output_bytes = data[at] >> 4, data[at] & 0x0F
        indexed = 256 if count > _INDEXED_FROM else 0
        return at - indexed - count * (1 + address_bytes + output_bytes) - (output_bytes if final else 0)

    def _final_output(self, node: int) -> int | None:
        state = self._data[node]
        if state & 0x80:
            return None
        at, _, final = self._many(node)
        return _number(self._data, self._end(node), self._data[at] & 0x0F) if final else None


def _number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")


def _target(data: bytes, at: int, size: int, end: int) -> int:
    distance = _number(data, at, size)
    return end - distance if distance else _NO_NODE
