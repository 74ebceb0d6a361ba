"""The checksum of a WAL entry: XXH64 over all of its bytes, its own digits read as zeros."""

from __future__ import annotations

import re
from collections.abc import Sequence

import xxhash

from weir.errors import CorruptionError
from weir.format.ipc_framing import KeyValue
from weir.format.wal_header import CHECKSUM, OWN_PREFIX

__all__ = ["CHECKSUM_DIGITS", "NO_CHECKSUM", "prove", "verify_checksum"]

CHECKSUM_DIGITS = 16
NO_CHECKSUM = b"0" * CHECKSUM_DIGITS
"""What stands in place of the digits while the checksum is computed."""

_HEX_DIGITS = re.compile(rb"[0-9a-f]{16}")


def verify_checksum(view: memoryview, end: int, pairs: Sequence[KeyValue], where: str) -> bool:
    """Return whether an entry has a checksum, after checking it. Its schema message goes up to ``end``.

    Raises
    ------
    CorruptionError
        It has another one, or should have one and has none.
    """
    found = [pair for pair in pairs if pair.key == CHECKSUM]
    if not found:
        # A damaged count of pairs hides those at the end, and what is left may look like the library's.
        if any(pair.key.startswith(OWN_PREFIX) for pair in pairs) or CHECKSUM in bytes(view[:end]):
            raise CorruptionError("the WAL entry has lost its checksum", where=where)
        return False
    if len(found) > 1:
        raise CorruptionError("the WAL entry has no valid checksum", where=where)
    prove(view, found[0].value_start, found[0].value, where)
    return True


def prove(view: memoryview, checksum_at: int, written: bytes, where: str) -> None:
    """Refuse an entry unless it has the checksum that stands in it.

    Raises
    ------
    CorruptionError
        It has another one.
    """
    if _HEX_DIGITS.fullmatch(written) is None:
        raise CorruptionError("the WAL entry has no valid checksum", where=where)
    checksum = xxhash.xxh64(view[:checksum_at])
    checksum.update(NO_CHECKSUM)
    checksum.update(view[checksum_at + CHECKSUM_DIGITS :])
    expected = written.decode()
    actual = checksum.hexdigest()
    if actual != expected:
        raise CorruptionError(
            f"the WAL entry has the checksum {actual}, but {expected} was written", where=where
        )
