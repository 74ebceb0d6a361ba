"""Numbers and bytes in sequence, for texts that have to be short."""

from __future__ import annotations

__all__ = ["ByteReader", "varint"]

_LIMIT_BITS = 64


def varint(number: int) -> bytes:
    """Return a number in groups of 7 bits, lowest first, with the high bit set on all but the last.

    Examples
    --------
    >>> varint(300).hex()
    'ac02'
    """
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


class ByteReader:
    """Bytes, taken one value after the other.

    Parameters
    ----------
    data : bytes
        All of them.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_used_up(self) -> bool:
        """Whether nothing is left."""
        return self._at == len(self._data)

    def take(self, count: int) -> bytes:
        """Return the next bytes.

        Raises
        ------
        ValueError
            If there are fewer.
        """
        part = self._data[self._at : self._at + count]
        if len(part) < count:
            raise ValueError("it ends too early")
        self._at += count
        return part

    def varint(self) -> int:
        """Return the next number.

        Raises
        ------
        ValueError
            If it is none, or has more than 64 bits.
        """
        number = shift = 0
        while True:
            (byte,) = self.take(1)
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
            if shift >= _LIMIT_BITS:
                raise ValueError("it holds a number of more than 64 bits")
