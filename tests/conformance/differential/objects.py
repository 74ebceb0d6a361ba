"""What a history asks of a place, for one in a bucket: the little of ``pathlib`` that it takes."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from dataclasses import dataclass, field

import obstore
from obstore.store import S3Store

__all__ = ["ObjectPath"]


@dataclass(frozen=True, order=True)
class ObjectPath:
    """A place in a bucket.

    Parameters
    ----------
    uri : str
        The place.
    store : S3Store
        The bucket.
    """

    uri: str
    store: S3Store = field(compare=False, repr=False)

    def __truediv__(self, name: str) -> ObjectPath:
        """Return the place of that name in this one."""
        return ObjectPath(f"{self.uri}/{name}", self.store)

    def __str__(self) -> str:
        """Return the location."""
        return self.uri

    def __fspath__(self) -> str:
        """Return the location, which Weir takes where it takes a path."""
        return self.uri

    @property
    def key(self) -> str:
        """The location in the bucket."""
        return self.uri.removeprefix("s3://").partition("/")[2]

    @property
    def name(self) -> str:
        """The last part of the location."""
        return self.uri.rpartition("/")[2]

    def exists(self) -> bool:
        """Whether anything is there."""
        return any(True for _ in self.iterdir())

    def iterdir(self) -> Iterator[ObjectPath]:
        """Yield what is right below it."""
        found = obstore.list_with_delimiter(self.store, f"{self.key}/")
        names = [*(one["path"] for one in found["objects"]), *found["common_prefixes"]]
        return (self / name.rpartition("/")[2] for name in names)

    def glob(self, pattern: str) -> Iterator[ObjectPath]:
        """Yield what has such a name right below it."""
        return (one for one in self.iterdir() if fnmatch.fnmatch(one.name, pattern))

    def read_bytes(self) -> bytes:
        """Return what an object holds."""
        return bytes(obstore.get(self.store, self.key).bytes())
