"""Parsing of table locations: the kind of store and the path in it, without opening anything."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

from weir.errors import UriError
from weir.storage.paths import check_path

__all__ = ["Location", "parse_location"]

SUPPORTED = (
    "a path, file:///path, s3://bucket/path, gs://bucket/path, az://container/path, "
    "abfss://container@account.dfs.core.windows.net/path or memory://name/path"
)
# Other names in use for the same stores; Lance knows only the ones on the right.
_SYNONYMS = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
_BUCKET = re.compile(r"[-A-Za-z0-9._:$@]+")
"""Also of ARNs, and with the account of abfss."""
_OBJECT_STORES = ("s3", "gs", "az", "abfss", "memory")


@dataclass(frozen=True, slots=True)
class Location:
    """A location, taken apart.

    Parameters
    ----------
    scheme : str
        ``file``, ``s3``, ``gs``, ``az``, ``abfss`` or ``memory``.
    authority : str
        The bucket or container (for ``abfss`` with its account); empty for ``file``.
    path : str
        The absolute path of a ``file``, otherwise the path within the bucket, empty for all of it;
        without percent-encoding.
    uri : str
        The location as Lance spells it.
    """

    scheme: str
    authority: str
    path: str
    uri: str


def parse_location(uri: str | os.PathLike[str]) -> Location:
    """Take a location apart.

    A location without a scheme is a path of this machine: ``~`` is the home directory, and a
    relative path is taken from the current directory. In a URI the path is percent-decoded, as
    Lance does; in a plain path nothing is decoded.

    Raises
    ------
    UriError
        The location cannot be understood, or its kind is not supported.

    Examples
    --------
    >>> parse_location("s3a://bucket/my%20table/")
    Location(scheme='s3', authority='bucket', path='my table', uri='s3://bucket/my%20table')
    >>> parse_location("/data/my%20table/").path
    '/data/my%20table'
    """
    try:
        text: object = os.fspath(uri)
    except TypeError:
        text = None
    if not isinstance(text, str):
        raise UriError("The location is neither text nor a path", where=repr(uri), hint=f"Give {SUPPORTED}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UriError(
            "The location holds half of a character", where=ascii(text), hint=f"Give {SUPPORTED}"
        ) from None
    if not text.strip():
        raise UriError("The location is empty", where=repr(uri), hint=f"Give {SUPPORTED}")
    if "://" not in text:
        _refuse_unfinished(text)
        return _path_location(os.path.expanduser(text))
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise UriError(f"The location is not a URI: {error}", where=text, hint=f"Give {SUPPORTED}") from error
    scheme = _SYNONYMS.get(parts.scheme, parts.scheme)
    if scheme == "s3+ddb":
        raise UriError(
            "Locations with a DynamoDB table are not supported",
            where=text,
            hint="Weir uses the conditional writes of S3 itself: give s3://bucket/path",
        )
    if scheme != "file" and scheme not in _OBJECT_STORES:
        raise UriError(f"The scheme {parts.scheme!r} is not supported", where=text, hint=f"Give {SUPPORTED}")
    if parts.query or parts.fragment or text.endswith(("?", "#")):
        raise UriError(
            "A URI of a table has no query and no fragment",
            where=text,
            hint="Write '?' as %3F and '#' as %23 where they belong to a name",
        )
    return _file_location(text, parts) if scheme == "file" else _object_store_location(text, parts, scheme)


def _refuse_unfinished(text: str) -> None:
    """Refuse a URI that lacks a slash: as a path it would be a table on this machine's disk instead."""
    scheme, colon, rest = text.partition(":")
    if colon and scheme in ("file", *_OBJECT_STORES, *_SYNONYMS):
        whole = f"{scheme}://{'/' if scheme == 'file' else ''}{rest.lstrip('/')}"
        raise UriError(
            f"{scheme}: without two slashes after it is not a URI",
            where=text,
            hint=f"Write {whole}, or ./{text} for a directory of that name",
        )


def _path_location(path: str) -> Location:
    if "\0" in path:
        raise UriError("A path may not hold NUL characters", where=repr(path), hint=f"Give {SUPPORTED}")
    absolute = os.path.abspath(path)
    return Location("file", "", absolute, absolute)


def _file_location(text: str, parts: SplitResult) -> Location:
    if parts.netloc not in ("", "localhost"):
        raise UriError(
            f"A file URI cannot name another machine: {parts.netloc!r}",
            where=text,
            hint="Write three slashes before an absolute path: file:///path",
        )
    if not parts.path.startswith("/"):
        raise UriError("A file URI needs an absolute path", where=text, hint="Write file:///path")
    return _path_location(unquote(parts.path))


def _object_store_location(text: str, parts: SplitResult, scheme: str) -> Location:
    bucket = parts.netloc
    container, _, account = bucket.partition("@")
    if not bucket or bucket.startswith(":"):
        raise UriError("The location names no bucket or container", where=text, hint=f"Give {SUPPORTED}")
    if not _BUCKET.fullmatch(bucket):
        # The library treats an unparsable location as a local path.
        raise UriError(
            f"No bucket or container is called {bucket!r}",
            where=repr(text),
            hint="Such names have letters, digits, dots and hyphens",
        )
    if scheme == "abfss" and not (container and account):
        raise UriError(
            "An abfss location needs a container and an account",
            where=text,
            hint="Write abfss://container@account.dfs.core.windows.net/path",
        )
    if scheme != "abfss" and "@" in bucket:
        raise UriError(
            f"An {scheme} location cannot name an account",
            where=text,
            hint="Give the account as storage option 'account_name', or write abfss://container@account...",
        )
    path = unquote(parts.path).removeprefix("/").removesuffix("/")
    if path:
        check_path(path)
    uri = f"{scheme}://{bucket}{parts.path.rstrip('/')}"
    return Location(scheme, bucket, path, uri)
