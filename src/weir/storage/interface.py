"""The storage interface: the few operations Weir needs.

A store holds objects below one root, named by relative paths with ``/`` between parts. It knows
nothing of LSM trees. Every write is atomic: readers see the whole object or none of it. Every
conditional write is decided by the store: of any number of racing writers exactly one wins, in
whatever process or machine they are.

Paths are text in NFC or any other form, passed through unchanged; ``weir.storage.paths`` says what they may
hold. Every failure is a :class:`~weir.errors.StorageError`, except an invalid path, which is a
:class:`~weir.errors.UriError`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

import pyarrow as pa

from weir.engine.context import EngineContext, default_context
from weir.engine.executors import EndpointExecutors
from weir.errors import ConflictError, CorruptionError

__all__ = ["Bytes", "ObjectMeta", "ObjectStore"]

_READS = 20

Bytes: TypeAlias = bytes | bytearray | memoryview | pa.Buffer
"""What a store takes and gives: anything that holds contiguous bytes.

All of them support ``len`` (of a ``memoryview``, use ``nbytes``), ``memoryview(data)`` for a view and
``bytes(data)`` for a copy; ``pa.py_buffer(data)`` makes an Arrow buffer without copying. What a store
gives is ``bytes`` or ``pa.Buffer``, never changes, and stays valid when the object is deleted.
"""


@dataclass(frozen=True, slots=True)
class ObjectMeta:
    """The metadata of an object.

    Parameters
    ----------
    path : str
        Path relative to the root of the store.
    size : int
        Size in bytes.
    last_modified : datetime
        When the object was published, in UTC, to a second or so, by the clock of the store: on a file
        system by that of the machine whose file system it is.
    version : str
        Opaque token that changes whenever the content does; what
        :meth:`ObjectStore.compare_and_swap` expects back (an ETag on object stores).
    """

    path: str
    size: int
    last_modified: datetime
    version: str


class ObjectStore(ABC):
    """A flat namespace of immutable or conditionally replaced objects.

    Implementations are thread-safe and can be pickled (they reopen on the other side).
    """

    @property
    @abstractmethod
    def uri(self) -> str:
        """Location of the root, as Lance spells it (``s3://bucket/table``, ``/data/table``)."""

    @property
    @abstractmethod
    def storage_options(self) -> Mapping[str, str]:
        """The storage options the store was opened with, spelled as Lance spells them."""

    @property
    @abstractmethod
    def is_local(self) -> bool:
        """Whether the root is a directory of this machine."""

    @property
    def waits_for_disk(self) -> bool:
        """Whether it promises that what was written survives a loss of power, and has to do for it."""
        return False

    @property
    def engine(self) -> EngineContext:
        """The engine shared with other tables. Default: that of the process."""
        return default_context()

    @property
    def sharing_key(self) -> Hashable:
        """Equal for stores with the same objects. Default: the store."""
        return self

    @property
    def endpoint(self) -> str:
        """What answers requests: stores of one endpoint fail together. Default: this machine."""
        return ""

    @property
    def executors(self) -> EndpointExecutors:
        """The threads of the engine that wait for this endpoint."""
        return self.engine.executors.at(self.endpoint)

    @abstractmethod
    def get(self, path: str) -> Bytes:
        """Return the whole object.

        Raises
        ------
        ObjectNotFoundError
            There is no such object.
        """

    def location_of(self, path: str) -> str:
        """Return where an object is, for a message. On a local disk the very file that holds it now."""
        return f"{self.uri}/{path}"

    @contextmanager
    def naming(self, path: str) -> Iterator[str]:
        """Have an error about an object name what holds it, which may be a file of another name.

        Yields the location that the error is raised with.
        """
        where = f"{self.uri}/{path}"
        try:
            yield where
        except CorruptionError as error:
            if error.where == where:
                error.where = self.location_of(path)
            raise

    def get_with_version(self, path: str) -> tuple[Bytes, str]:
        """Return the whole object and its version, both of one moment.

        Raises
        ------
        ObjectNotFoundError
            There is no such object.
        ConflictError
            It changes all the time.
        """
        for _ in range(_READS):
            before = self.head(path)
            data = self.get(path)
            after = self.head(path)
            if before is not None and after is not None and after.version == before.version:
                return data, after.version
        raise ConflictError("the object changed during every attempt to read it", where=f"{self.uri}/{path}")

    @abstractmethod
    def get_range(self, path: str, start: int, length: int) -> Bytes:
        """Return ``length`` bytes from ``start``; fewer, or none, at the end of the object.

        A negative ``start`` counts from the end of the object (and from its beginning if the object
        is shorter than that).

        Raises
        ------
        ObjectNotFoundError
            There is no such object.
        OptionError
            ``length`` is negative.
        """

    @abstractmethod
    def head(self, path: str) -> ObjectMeta | None:
        """Return the metadata of the object, or None if it does not exist."""

    def stamp(self, *paths: str) -> Hashable | None:
        """Return what differs once one of some objects or directories has changed, without a request.

        A directory changes with the names directly in it. None where an equal stamp would not prove that
        nothing has changed. Default: None.
        """
        return None

    @abstractmethod
    def list(self, prefix: str) -> Sequence[ObjectMeta]:
        """Return every object below the directory ``prefix``, at any depth, in path order.

        The root is ``""``. A directory that does not exist holds no objects. Path order is the order
        of the code points of the whole path.
        """

    def list_first(self, prefix: str) -> Sequence[ObjectMeta]:
        """Return the objects below a directory that are first in path order: as many as come at once.

        All of them where there are few; on an object store it is one request. Default: all.
        """
        return self.list(prefix)

    @abstractmethod
    def list_directories(self, prefix: str) -> Sequence[str]:
        """Return the names (not paths) directly below the directory ``prefix`` that hold objects.

        In order; at any depth below the name counts.
        """

    @abstractmethod
    def put(self, path: str, data: Bytes | Sequence[Bytes]) -> None:
        """Write or replace the object atomically. A sequence is written as one object, in order."""

    @abstractmethod
    def put_if_absent(self, path: str, data: Bytes | Sequence[Bytes]) -> None:
        """Write the object atomically if it does not exist.

        Raises
        ------
        ObjectExistsError
            The object exists; nothing was changed. On an object store it can be the caller's own, if the
            response to its first attempt was lost and the client retried (invariant I4): a caller that needs
            to know stamps the content with an identifier.
        """

    @abstractmethod
    def compare_and_swap(self, path: str, data: Bytes | Sequence[Bytes], expected: str) -> str:
        """Replace the object if its version is still ``expected``; return the new version.

        ``expected`` is what :meth:`head` or an earlier swap returned. On object stores equal content may have
        an equal version, so content that must be distinguishable carries something unique.

        Raises
        ------
        PreconditionError
            The version differs or the object is gone; nothing was changed.
        """

    @abstractmethod
    def copy(self, source: str, target: str) -> None:
        """Write an object that has the content of another, which no byte of it leaves the store for.

        The target must be an unused name: the effect on an existing object is undefined. On a local disk both
        are one file, so neither may be changed in place, and both count as written now.

        Raises
        ------
        ObjectNotFoundError
            There is no object to copy.
        StorageError
            The store cannot copy it: S3 has a limit of 5 GiB, and a file system may lack hard links. Nothing
            was written.
        """

    @abstractmethod
    def delete(self, paths: Iterable[str]) -> None:
        """Delete objects; missing ones are ignored."""

    @abstractmethod
    def sync(self, prefix: str) -> None:
        """Make everything below ``prefix`` durable that another library has written there.

        On local disk the files and directories are fsynced (Lance does not do it); on object
        stores a completed write is durable, and nothing happens.
        """
