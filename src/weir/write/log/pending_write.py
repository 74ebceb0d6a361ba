"""One write on its way into the log: a future that whoever waits for it may have to bring about."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pyarrow as pa

from weir.format.source import Source

if TYPE_CHECKING:
    from weir.write.decision.operation import Undecided
    from weir.write.log.group_commit import GroupCommit

__all__ = ["PendingWrite"]


class PendingWrite:
    """One write on its way into the WAL.

    Parameters
    ----------
    commits : GroupCommit
        Where it is to be queued.
    batch : RecordBatch or None
        The rows, in the schema of WAL entries; None of a write that is to be decided first.
    nbytes : int
        Bytes of its rows.
    overhead : int
        Bytes the batch takes in memory beyond its rows.
    source : Source, optional
        The mark of the write. Such a write has an entry to itself, since an entry has one mark.
    schema : Schema, optional
        The schema of the log entry it is for. Writes with different ones do not share an entry.
    undecided : Undecided, optional
        What is to be done, of a write that depends on the rows there are.

    Attributes
    ----------
    deduplicated : bool
        Whether nothing was written because the shard has the rows already.
    """

    __slots__ = (
        "_commits",
        "batch",
        "deduplicated",
        "error",
        "held_bytes",
        "nbytes",
        "position",
        "schema",
        "source",
        "submitted",
        "undecided",
    )

    def __init__(
        self,
        commits: GroupCommit,
        batch: pa.RecordBatch | None,
        nbytes: int,
        overhead: int = 0,
        source: Source | None = None,
        schema: pa.Schema | None = None,
        undecided: Undecided | None = None,
    ) -> None:
        self._commits = commits
        self.batch = batch
        self.schema = schema
        self.undecided = undecided
        self.source = source
        self.deduplicated = False
        self.nbytes = nbytes
        self.held_bytes = nbytes + overhead
        self.submitted = time.monotonic()
        self.position: int | None = None
        self.error: BaseException | None = None

    @property
    def rows(self) -> int:
        """Rows that it has written, tombstones included, once it is settled."""
        if self.undecided is not None:
            return self.undecided.rows_done
        return 0 if self.batch is None else self.batch.num_rows

    @property
    def is_alone(self) -> bool:
        """Whether it has an entry to itself.

        As a write with a mark, since an entry has one; and what is changed by filter, which is decided
        against all that is in the log by then.
        """
        if self.source is not None:
            return True
        return self.undecided is not None and self.undecided.since is not None

    @property
    def settled(self) -> bool:
        """Whether the write is durable or has failed."""
        return self.position is not None or self.error is not None

    def enqueue(self) -> None:
        """Queue it, its bytes being admitted. It goes out when its caller, or another, asks for a result."""
        self._commits.enqueue(self)

    def result(self) -> int:
        """Wait until the write is durable (invariant I1), and return its position; raise what made it fail.

        Raises
        ------
        FencedError
            If another writer has claimed the shard. Nothing of it was written.
        BackpressureError
            If flushes did not make room in time. Nothing of it was written.
        StorageError
            If the store failed. The rows may or may not be durable; writing them again is safe.
        """
        self._commits.settle(self)
        if self.error is not None:
            raise self.error
        assert self.position is not None
        return self.position
