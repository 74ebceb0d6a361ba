"""Validation of the names of namespaces and attributes, and their stored form."""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import quote, unquote

from weir.errors import InputError

__all__ = [
    "ID",
    "VECTOR",
    "attribute_of",
    "check_attribute_name",
    "check_namespace_name",
    "column_of",
    "directory_of",
    "namespace_of",
]

ID = "id"
"""The attribute that identifies a document."""

VECTOR = "vector"
"""The attribute that is a vector without being declared one."""

_NAMESPACE = re.compile(r"[A-Za-z0-9\-_.]{1,128}\Z")
_PLAIN = re.compile(r"[^%_.`][^.`]*\Z")
_MOST_BYTES = 128
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def check_namespace_name(name: object) -> str:
    """Return the name of a namespace, if it may be one.

    Raises
    ------
    InputError
        If it has other characters than letters, digits, ``-``, ``_`` and ``.``, more than 128 of them, or is
        ``.`` or ``..``.

    Examples
    --------
    >>> check_namespace_name("docs-2026.v1")
    'docs-2026.v1'
    """
    if not isinstance(name, str) or not _NAMESPACE.match(name) or name in (".", ".."):
        raise InputError(
            "a namespace is named by 1 to 128 letters, digits, '-', '_' and '.', and not '.' or '..'"
        )
    return name


def check_attribute_name(name: object) -> str:
    """Return the name of an attribute, if it may be one.

    Raises
    ------
    InputError
        If it has no byte or more than 128, begins with ``$``, or holds a control character.
    """
    if not isinstance(name, str):
        raise InputError(f"an attribute is named by text, got {type(name).__name__}")
    return _checked(name)


@lru_cache(maxsize=4096)
def _checked(name: str) -> str:
    """Return an attribute name that may be one: most are those of the documents before."""
    try:
        length = len(name.encode())
    except UnicodeEncodeError as error:
        raise InputError("the name of an attribute is not Unicode text") from error
    if not 1 <= length <= _MOST_BYTES:
        raise InputError(f"the name of an attribute has 1 to {_MOST_BYTES} bytes, this one has {length}")
    if name.startswith("$"):
        raise InputError(f"the name of an attribute does not begin with '$': {name!r}")
    if _CONTROL.search(name):
        raise InputError(f"the name of an attribute holds no control characters: {name!r}")
    return name


def column_of(attribute: str) -> str:
    """Return the column that an attribute is stored in: its own name, where a table can have it.

    Examples
    --------
    >>> column_of("title"), column_of("a.b"), column_of("_rowid"), column_of("100%")
    ('title', '%a%2Eb', '%_rowid', '100%')
    """
    if _PLAIN.match(attribute) and attribute != "*":
        return attribute
    return "%" + attribute.replace("%", "%25").replace(".", "%2E").replace("`", "%60")


def attribute_of(column: str) -> str:
    """Return the attribute that a column stores.

    Examples
    --------
    >>> [attribute_of(column_of(name)) for name in ("title", "a.b", "%2E", "_`")]
    ['title', 'a.b', '%2E', '_`']
    """
    if not column.startswith("%"):
        return column
    return column[1:].replace("%60", "`").replace("%2E", ".").replace("%25", "%")


def directory_of(namespace: str) -> str:
    """Return the directory of a namespace below those of all: a store keeps names with a dot in front.

    Examples
    --------
    >>> directory_of("docs"), directory_of(".hidden")
    ('docs', '%2Ehidden')
    """
    return "%2E" + quote(namespace[1:], safe="") if namespace.startswith(".") else namespace


def namespace_of(directory: str) -> str:
    """Return the namespace that a directory is of."""
    return unquote(directory)
