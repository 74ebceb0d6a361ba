"""The shared context of a table writer's shards: the table, its limits, its background workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import pyarrow as pa

from weir.base.table import BaseTable
from weir.config import WriterOptions
from weir.format.merge_engine import MergeEngine
from weir.indexing.build_plan import GenerationIndex
from weir.storage.interface import ObjectStore
from weir.write.lease.heartbeat import Heartbeat
from weir.write.lease.lease_owner import new_lease_owner
from weir.write.lease.lease_terms import LeaseTerms
from weir.write.memtable.aging import FlushByAge
from weir.write.memtable.backpressure import MergeBacklog, UnflushedBytes, unflushed_of

__all__ = ["BaseVersions", "ShardContext"]


@dataclass(frozen=True, slots=True)
class BaseVersions:
    """Where a writer finds the base table.

    Parameters
    ----------
    known : callable
        Returns it as it was seen last, without asking the store.
    newest : callable
        Returns it as it is now.
    """

    known: Callable[[], BaseTable]
    newest: Callable[[], BaseTable]


@dataclass(frozen=True, slots=True)
class ShardContext:
    """The context of a shard's writer. Made by :meth:`of`.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    namespace : str
        Identity of the table, under which log entries are cached for readers in this process.
    key_columns : tuple of str
        Primary-key columns.
    schema : callable
        Returns the schema of log entries, as far as it is known: the table's columns and ``_tombstone``.
    newest_schema : callable
        Returns the schema as the base table has it now: asked where the log has entries with another one.
    options : WriterOptions
        Limits.
    flusher : Executor
        Runs flushes in the background. Flushes of one shard never overlap.
    lease_terms : LeaseTerms
        How leases are taken.
    heartbeat : Heartbeat or None
        Renews them. Without it the caller does (:attr:`ShardWriter.lease`).
    unflushed : UnflushedBytes
        Bounds the memory of all shards together.
    backlog : MergeBacklog or None
        Bounds the generations that wait for a merge. None: unbounded.
    indexes : callable
        Returns the indexes for generations.
    aging : FlushByAge or None
        Has MemTables flushed by age. None: they are not.
    spec_id : int
        The shard spec that new shards are made with.
    versions : BaseVersions or None
        Where the base table is found, by writes that depend on the rows there are. None: there are none.
    merge_engine : MergeEngine or None
        What the versions of a key come to. None: the last row.
    sort_by : tuple of str
        Columns by which the rows of a generation are sorted.
    """

    store: ObjectStore
    namespace: str
    key_columns: tuple[str, ...]
    schema: Callable[[], pa.Schema]
    newest_schema: Callable[[], pa.Schema]
    options: WriterOptions
    flusher: Executor
    lease_terms: LeaseTerms
    heartbeat: Heartbeat | None
    unflushed: UnflushedBytes
    backlog: MergeBacklog | None
    indexes: Callable[[], Sequence[GenerationIndex]]
    aging: FlushByAge | None
    spec_id: int
    versions: BaseVersions | None
    merge_engine: MergeEngine | None
    sort_by: tuple[str, ...]

    @classmethod
    def of(
        cls,
        store: ObjectStore,
        schema: Callable[[], pa.Schema],
        key_columns: tuple[str, ...],
        *,
        namespace: str,
        merge_engine: MergeEngine | None,
        flusher: Executor,
        options: WriterOptions | None = None,
        newest_schema: Callable[[], pa.Schema] | None = None,
        lease_terms: LeaseTerms | None = None,
        heartbeat: Heartbeat | None = None,
        unflushed: UnflushedBytes | None = None,
        backlog: MergeBacklog | None = None,
        indexes: Callable[[], Sequence[GenerationIndex]] = tuple,
        aging: FlushByAge | None = None,
        spec_id: int = 0,
        versions: BaseVersions | None = None,
        sort_by: tuple[str, ...] = (),
        on_restore: Callable[[], None] | None = None,
    ) -> ShardContext:
        """Return a context; omitted parts follow from the options, and nothing is indexed."""
        options = options or WriterOptions()
        return cls(
            store,
            namespace,
            key_columns,
            schema,
            newest_schema or schema,
            options,
            flusher,
            lease_terms
            or LeaseTerms(
                options.lease_ttl,
                options.takeover,
                new_lease_owner(options.holder, options.address),
                on_restore=on_restore,
            ),
            heartbeat,
            unflushed
            or UnflushedBytes(
                options.max_unflushed_bytes,
                timeout=options.backpressure_timeout,
                where=store.uri,
                within=unflushed_of(store.engine),
            ),
            backlog,
            indexes,
            aging,
            spec_id,
            versions,
            merge_engine,
            sort_by,
        )
