"""The stored checksums of the base table's files, written at each commit by Weir.

Lance's files carry no checksum. Each object here belongs to one commit: its files below ``data`` and
``_deletions`` that no version before it had.
"""

from __future__ import annotations

from collections.abc import Mapping

from weir.errors import CorruptionError
from weir.format import checked_json
from weir.format.buffers import Bytes

__all__ = ["CHECKSUMS", "checksums_path", "decode", "encode", "version_of"]

CHECKSUMS = "_weir/checksums"
"""Directory of the objects."""

_FILES = "files"


def checksums_path(version: int, name: str) -> str:
    """Return the path of the object of a commit.

    Parameters
    ----------
    version : int
        The version of the base table that was committed.
    name : str
        What distinguishes it from others of that number.

    Examples
    --------
    >>> checksums_path(7, "c0ffee")
    '_weir/checksums/7-c0ffee.json'
    """
    return f"{CHECKSUMS}/{version}-{name}.json"


def version_of(path: str) -> int:
    """Return the version that an object is of, by its path; -1 if it is none.

    Examples
    --------
    >>> version_of("_weir/checksums/7-c0ffee.json")
    7
    """
    number = path.rpartition("/")[2].partition("-")[0]
    return int(number) if number.isdecimal() else -1


def encode(checksums: Mapping[str, int]) -> bytes:
    """Return an object of the XXH64, seed 0, of each file, by its path relative to the table.

    Examples
    --------
    >>> decode(encode({"data/a.lance": 10}), where="checksums")
    {'data/a.lance': 10}
    """
    return checked_json.encode({_FILES: {path: f"{one:016x}" for path, one in checksums.items()}})


def decode(data: Bytes, *, where: str) -> dict[str, int]:
    """Return the checksums that :func:`encode` was given.

    Raises
    ------
    CorruptionError
        If the bytes are damaged (invariant I11).
    """
    try:
        files = checked_json.decode(data, where=where)[_FILES]
        return {str(path): int(one, 16) for path, one in files.items()}
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise CorruptionError(f"these are not checksums of files: {error}", where=where) from error
