"""The marks of repeatable writes in a WAL entry, and the result of each of these writes.

They are between the end marker of the Arrow stream, where Arrow's readers have stopped, and the trailer,
whose checksum covers them: so the schema of all entries of a writer stays the same. Only if an entry has a
single mark, of a continuing source, its name is in the metadata of the schema instead, and its number in the
trailer (:mod:`weir.format.wal_header`).

Each mark is its number and the lengths of its name and its answer, then both. After the last of them comes
how many bytes they have, and ``weirmark``. All numbers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from weir.errors import CorruptionError, InputError
from weir.format.source import Source

__all__ = ["encode_marks", "read_marks"]

_MARK = struct.Struct("<QHI")
_END = struct.Struct("<Q8s")
_MAGIC = b"weirmark"


def encode_marks(sources: Sequence[Source], answers: Sequence[bytes]) -> bytes:
    """Return marks as they are stored; nothing if there are none.

    Parameters
    ----------
    sources : sequence of Source
        The marks.
    answers : sequence of bytes
        The same number, or none.

    Examples
    --------
    >>> stored = encode_marks([Source("once:a", 1)], [])
    >>> read_marks(memoryview(stored), where="example")
    ((Source(name='once:a', sequence=1),), ())
    """
    if not sources:
        return b""
    parts = []
    for source, answer in zip(sources, answers or (b"",) * len(sources), strict=True):
        name = source.name.encode()
        parts += [_MARK.pack(source.sequence, len(name), len(answer)), name, answer]
    marks = b"".join(parts)
    return marks + _END.pack(len(marks), _MAGIC)


def read_marks(stream: memoryview, *, where: str) -> tuple[tuple[Source, ...], tuple[bytes, ...]]:
    """Return the marks at the end of what stands before a trailer, and their answers, if any has one.

    Raises
    ------
    CorruptionError
        They are none that a writer makes.
    """
    if stream[-len(_MAGIC) :] != _MAGIC:
        return (), ()
    nbytes = _END.unpack_from(stream, len(stream) - _END.size)[0]
    marks = bytes(stream[-_END.size - nbytes : -_END.size]) if nbytes <= len(stream) - _END.size else b""
    sources: list[Source] = []
    answers: list[bytes] = []
    start = 0
    try:
        while start < nbytes:
            number, name_bytes, answer_bytes = _MARK.unpack_from(marks, start)
            name_at = start + _MARK.size
            answer_at = name_at + name_bytes
            start = answer_at + answer_bytes
            sources.append(Source(marks[name_at:answer_at].decode(), number))
            answers.append(marks[answer_at:start])
    except (struct.error, UnicodeDecodeError, InputError) as error:
        raise CorruptionError("the WAL entry has an unreadable source mark", where=where) from error
    if start != len(marks) or not sources:
        raise CorruptionError("the WAL entry has half a source mark", where=where)
    return tuple(sources), tuple(answers) if any(answers) else ()
