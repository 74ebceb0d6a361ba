"""Every error Weir raises, as one tree.

::

    WeirError
    ├── InputError (ValueError)           what the caller passed cannot be accepted; nothing was written
    │   ├── SchemaError                   a column is missing, unknown, duplicate, or of the wrong type
    │   ├── KeyValueError                 a primary key is missing or null
    │   ├── FilterError                   a filter does not parse or does not fit the schema
    │   ├── QueryError                    a search query cannot be used on the table
    │   ├── ShardingError                 a shard spec or transform is invalid
    │   ├── IndexDefinitionError          an index cannot be built on that column with those parameters
    │   ├── OptionError                   an option is unknown or out of range
    │   ├── UnsupportedError              the requested feature is not supported
    │   └── UriError                      a location cannot be understood
    ├── TableError
    │   ├── TableNotFoundError (FileNotFoundError)
    │   ├── TableExistsError (FileExistsError)
    │   ├── ShardConflictError            several shards hold rows that belong in one
    │   ├── UnknownFeatureError           the table uses a feature unknown to this version of Weir
    │   ├── NamespaceNotFoundError (FileNotFoundError)
    │   ├── NamespaceReadOnlyError        the namespace is read-only
    │   ├── FirstIndexError               the table has the first form of the MemWAL index
    │   ├── KeyNotFoundError              the service has no key of that id
    │   ├── IndexNotFoundError            the table has no index of that name
    │   └── IndexExistsError              the table has an index of that name already
    ├── WriterError
    │   ├── FencedError                   another writer has claimed the shard
    │   ├── LeaseHeldError                another writer holds a live lease on the shard
    │   ├── ShardSealedError              the shard accepts no more writes
    │   ├── BackpressureError (TimeoutError)
    │   └── WriterClosedError
    ├── StorageError (OSError)
    │   ├── ObjectNotFoundError (FileNotFoundError)
    │   ├── ObjectExistsError (FileExistsError)
    │   ├── PreconditionError             the object changed since it was read
    │   └── DiskFullError                 the disk is full, or the quota on it is used up
    ├── CorruptionError                   stored bytes are not what was written
    ├── ConflictError                     concurrent commits did not settle within the retries
    ├── SnapshotExpiredError              garbage collection has passed the snapshot
    ├── ReadCancelledError                the caller no longer waits for the read
    ├── PipelineError                     the stream of a pipeline has failed
    ├── RunnerError                       a runner could not run its tasks
    ├── ForkedProcessError (RuntimeError)
    └── MissingDependencyError (ImportError)

A message says what happened, where, and what to do next. Errors that concern a stored object carry
its location in :attr:`WeirError.where`.
"""

from __future__ import annotations

from typing import Self, TypeVar

__all__ = [
    "BackpressureError",
    "ConflictError",
    "CorruptionError",
    "DiskFullError",
    "FencedError",
    "FilterError",
    "FirstIndexError",
    "ForkedProcessError",
    "IndexDefinitionError",
    "IndexExistsError",
    "IndexNotFoundError",
    "InputError",
    "KeyNotFoundError",
    "KeyValueError",
    "LeaseHeldError",
    "MissingDependencyError",
    "NamespaceNotFoundError",
    "NamespaceReadOnlyError",
    "ObjectExistsError",
    "ObjectNotFoundError",
    "OptionError",
    "PipelineError",
    "PreconditionError",
    "QueryError",
    "ReadCancelledError",
    "RunnerError",
    "SchemaError",
    "ShardConflictError",
    "ShardSealedError",
    "ShardingError",
    "SnapshotExpiredError",
    "StorageError",
    "TableError",
    "TableExistsError",
    "TableNotFoundError",
    "UnknownFeatureError",
    "UnsupportedError",
    "UriError",
    "WeirError",
    "WriterClosedError",
    "WriterError",
]


Kind = TypeVar("Kind", bound="WeirError")

_MOST_CHARACTERS = 4_000
"""Of a message, and of a place. What was refused may have megabytes, and errors end in logs and answers."""
_HALF = 1_950
"""Characters at either end that are kept of a longer one. What is left is not shortened once more."""


class WeirError(Exception):
    """Base of every error raised by Weir.

    Parameters
    ----------
    message : str
        What happened.
    where : str, optional
        The location it concerns: a path, a column, a shard and position.
    hint : str, optional
        What the caller can do next.
    """

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        message, where = _shortened(message), None if where is None else _shortened(where)
        super().__init__(message, where, hint)
        self.message = message
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        """Return message, location and hint as one line."""
        text = self.message
        if self.where:
            text = f"{text} [{self.where}]"
        if self.hint:
            text = f"{text}. {self.hint}"
        return text

    def again(self: Self) -> Self:
        """Return a copy of the error, to be raised again.

        An exception object that is raised repeatedly keeps references to everything in the frames it passed:
        the rows of every write that failed with it.
        """
        same = _rebuild(type(self), self.message, self.where, self.hint)
        same.__cause__ = self.__cause__
        return same

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle with the keyword-only arguments."""
        # Errors cross process boundaries in distributed services; keyword-only
        # arguments need their own way back.
        return (_rebuild, (type(self), self.message, self.where, self.hint))


def _shortened(text: str) -> str:
    """Return a text without its middle, if it is a long one."""
    text = str(text)
    if len(text) <= _MOST_CHARACTERS:
        return text
    return f"{text[:_HALF]} ... ({len(text) - 2 * _HALF:,} characters) ... {text[-_HALF:]}"


def _rebuild(kind: type[Kind], message: str, where: str | None, hint: str | None) -> Kind:
    return kind(message, where=where, hint=hint)


class InputError(WeirError, ValueError):
    """The caller's input cannot be accepted. Nothing was written."""


class SchemaError(InputError):
    """A column is missing, unknown, duplicate, or of a type that does not fit."""


class KeyValueError(InputError):
    """A primary-key column is missing from the data, or a key is null."""


class FilterError(InputError):
    """A filter does not parse, or names columns or types the table does not have."""


class QueryError(InputError):
    """A search query does not parse, or does not fit the table, its columns or its indexes."""


class ShardingError(InputError):
    """A shard spec or transform is invalid for the table."""


class IndexDefinitionError(InputError):
    """An index cannot be built on that column, or not with those parameters."""


class OptionError(InputError):
    """An option is unknown or out of range."""


class UnsupportedError(InputError):
    """The request, or its form, is not supported; the message names it."""


class UriError(InputError):
    """A table location or storage option cannot be understood."""


class TableError(WeirError):
    """The table is not in a state that permits the call."""


class TableNotFoundError(TableError, FileNotFoundError):
    """No Weir table exists at the location."""


class TableExistsError(TableError, FileExistsError):
    """A table already exists at the location."""


class ShardConflictError(TableError):
    """Several shards hold rows that belong in one, and it is unknown which of them are newest."""


class UnknownFeatureError(TableError):
    """The table uses a feature that this version of Weir does not know."""


class FirstIndexError(TableError):
    """The table has the first form of the MemWAL index, which Weir reads but does not write."""


class KeyNotFoundError(TableError):
    """The service has no key of that id."""


class NamespaceNotFoundError(TableError, FileNotFoundError):
    """There is no namespace of that name."""


class NamespaceReadOnlyError(TableError):
    """The namespace is read-only until it is made writable again."""


class IndexNotFoundError(TableError):
    """The table has no index of that name."""


class IndexExistsError(TableError):
    """The table has an index of that name already."""


class WriterError(WeirError):
    """A writer cannot continue."""


class FencedError(WriterError):
    """Another writer has claimed the shard with a higher epoch (invariant I2)."""


class LeaseHeldError(WriterError):
    """Another writer holds a live lease on the shard."""


class ShardSealedError(WriterError):
    """The shard is sealed: it accepts no more writes."""


class BackpressureError(WriterError, TimeoutError):
    """Writes outran flushes or merges for longer than the writer may wait."""


class WriterClosedError(WriterError):
    """The writer has been closed, or an earlier failure has stopped it."""


class StorageError(WeirError, OSError):
    """The store failed, for a reason other than a missing object or a lost race."""


class DiskFullError(StorageError):
    """The disk is full, or the quota on it is used up. Once there is space, the same call works."""


class ObjectNotFoundError(StorageError, FileNotFoundError):
    """The object does not exist."""


class ObjectExistsError(StorageError, FileExistsError):
    """A put-if-absent found an object already there."""


class PreconditionError(StorageError):
    """A compare-and-swap found a version other than the expected one."""


class CorruptionError(WeirError):
    """Stored bytes are not what was written (invariant I11). Never skipped."""


class ConflictError(WeirError):
    """Concurrent commits kept colliding until the retries were used up."""


class SnapshotExpiredError(WeirError):
    """Garbage collection has passed the requested snapshot (invariant I8)."""


class ReadCancelledError(WeirError):
    """The caller no longer waits for the read."""


class PipelineError(WeirError):
    """The stream of a pipeline has failed. Committed rows stay; a restart continues from its checkpoint."""


class RunnerError(WeirError):
    """A runner could not run its tasks; completed work stays."""


class ForkedProcessError(WeirError, RuntimeError):
    """A table is used in a process forked from one that had opened a table."""


class MissingDependencyError(WeirError, ImportError):
    """An optional dependency is not installed."""
