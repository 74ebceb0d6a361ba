"""Which paths name an object in a store.

A path is relative to the root of the store: parts joined by ``/``, none of them empty, ``.`` or
``..``. Two kinds of name are reserved on every store, so that what is written to one can be copied to
any other: names that begin with ``.weir-`` (temporary files and versions of the local store) and names
that end in ``#`` and digits (the temporary files of Lance's own local store, which its listings hide).
"""

from __future__ import annotations

import re

from weir.errors import UriError

__all__ = [
    "RESERVED_PREFIX",
    "check_listed_path",
    "check_path",
    "check_prefix",
    "is_reserved",
    "is_temporary",
]

RESERVED_PREFIX = ".weir-"
"""How the names of everything begin that a store keeps for itself beside the objects."""

_LIBRARY_TEMPORARY = re.compile(r"#[0-9]+\Z")

_ORDINARY = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*/)*[A-Za-z0-9_][A-Za-z0-9_.-]*")
"""What nearly all paths are, of which nothing else has to be asked."""


def is_reserved(name: str) -> bool:
    """Whether a name (one part of a path) is kept for the store itself."""
    return name.startswith(RESERVED_PREFIX)


def is_temporary(name: str) -> bool:
    """Whether a name is that of a temporary file of Lance's own local store, left where a write failed."""
    return _LIBRARY_TEMPORARY.search(name) is not None


def check_path(path: str) -> str:
    """Return the path of an object if it is one.

    Raises
    ------
    UriError
        The path is empty, absolute, leaves the root, or uses a reserved name.

    Examples
    --------
    >>> check_path("_mem_wal/manifest/1.binpb")
    '_mem_wal/manifest/1.binpb'
    >>> check_path("../other")
    Traceback (most recent call last):
    weir.errors.UriError: A path may not hold the part '..' [../other]. Name the object relative to \
the root of the store, with single slashes
    """
    return _checked(path, temporary=False)


def check_listed_path(path: str) -> str:
    """Return the path of an object that a listing may have named.

    On local disk that can also be a temporary file of Lance, left by a killed process, which must be
    deletable.

    Raises
    ------
    UriError
        As :func:`check_path`, but for the names of such files.

    Examples
    --------
    >>> check_listed_path("_versions/1.manifest#1")
    '_versions/1.manifest#1'
    """
    return _checked(path, temporary=True)


def _checked(path: str, *, temporary: bool) -> str:
    if _ORDINARY.fullmatch(path):
        return path
    parts = path.split("/")
    for number, part in enumerate(parts, start=1):
        if part in ("", ".", ".."):
            raise UriError(
                f"A path may not hold the part {part!r}",
                where=path,
                hint="Name the object relative to the root of the store, with single slashes",
            )
        may_be_temporary = temporary and number == len(parts)
        is_temporary = "#" in part and _LIBRARY_TEMPORARY.search(part)
        if part.startswith(RESERVED_PREFIX) or (is_temporary and not may_be_temporary):
            raise UriError(
                f"The name {part!r} is reserved for temporary files",
                where=path,
                hint=f"Choose a name that does not begin with {RESERVED_PREFIX!r} or end in '#' and digits",
            )
    if "\0" in path or not (path.isascii() or _is_unicode(path)):
        raise UriError(
            "A path must be valid Unicode text without NUL characters",
            where=repr(path),
            hint="Choose another name for the object",
        )
    return path


def check_prefix(prefix: str) -> str:
    """Return the path of a directory without a slash at its end; ``""`` is the root.

    Raises
    ------
    UriError
        As :func:`check_path`.

    Examples
    --------
    >>> check_prefix("_mem_wal/")
    '_mem_wal'
    >>> check_prefix("")
    ''
    """
    prefix = prefix.removesuffix("/")
    return check_path(prefix) if prefix else prefix


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
