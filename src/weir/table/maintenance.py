"""Jobs beside the writers and readers of a table: :attr:`weir.Table.maintenance`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from uuid import UUID

from weir.base.table import BaseTable
from weir.config import DEFAULT_ROWS_PER_FRAGMENT, RETRAIN_IMBALANCE_THRESHOLD
from weir.engine.durations import Duration, as_duration
from weir.engine.freed_memory import give_back_freed_memory
from weir.engine.runner import Runner, ThreadRunner
from weir.errors import CorruptionError, StorageError
from weir.format import layout
from weir.format.shard_manifest import ShardManifest
from weir.log.read_lease import read_lease
from weir.maintenance.catch_up import CatchUpReport, catch_up_indexes
from weir.maintenance.compact import CompactReport, compact
from weir.maintenance.expire import ExpireReport, expire_rows
from weir.maintenance.garbage.garbage import DEFAULT_HORIZON, collect_garbage
from weir.maintenance.garbage.report import GarbageReport
from weir.maintenance.maintain import MaintenanceReport
from weir.maintenance.recover import RecoverReport, is_unleased, recover_shards
from weir.maintenance.repair import RepairReport, repair_table
from weir.maintenance.shard_repairs import TableShards
from weir.maintenance.verify import VerifyReport, verify_table
from weir.merge.age import age_of_object
from weir.merge.commit import can_be_divided
from weir.merge.plan import DEFAULT_MAX_TASK_BYTES
from weir.merge.policy import ALWAYS, MergePolicy
from weir.merge.service import MergeReport, merge_generations
from weir.read.shared_keys import find_shared_keys
from weir.snapshots.snapshot import ReadSnapshot
from weir.table.kept_writer import release_kept
from weir.table.open_table import OpenTable
from weir.write.lease.lease_terms import lease_state

__all__ = ["TableMaintenance"]

_NO_LIMIT = 2**62
_DEAD = ("expired", "abandoned")


class TableMaintenance:
    """Maintains a table. Got from :attr:`weir.Table.maintenance`.

    Every job may run concurrently with writers, readers and other jobs, itself included, in any process. A
    job that was killed can simply be run again.

    Parameters
    ----------
    table : OpenTable
        The table.
    """

    def __init__(self, table: OpenTable) -> None:
        self._table = table

    def merge(
        self,
        *,
        runner: Runner | None = None,
        on_progress: Callable[[int, int], None] | None = None,
        policy: MergePolicy | None = None,
        divided: bool | None = None,
    ) -> MergeReport:
        """Merge every flushed generation into the base table, exactly once.

        Rows that are only in a MemTable and the WAL wait for their flush. Safe to run concurrently with
        writers, readers and other merges. Shards that hold versions of the same keys, so that the newest
        cannot be determined, are left alone and named in the report; :meth:`repair` joins them.

        Parameters
        ----------
        runner : Runner, optional
            Executes the tasks. Default: threads of this process.
        on_progress : callable, optional
            Called with (shards done, shards in all).
        policy : MergePolicy, optional
            Decides whether there is enough to merge. Default: any amount is.
        divided : bool, optional
            Whether to divide the merge, so that the executors of a runner merge one table together: one task
            for every shard, or for several shards with few rows, writes the rows; tasks for groups of
            fragments find the rows that these replace; and one commit publishes everything. Otherwise one
            task at a time merges, with Lance's ``merge_insert``; tables with stable row ids are always merged
            this way. Default: divide where that is at least as fast. On one machine that is the case with
            1,000 rows or more, at most a quarter of the base table's (a fiftieth if the key is not a single
            integer, date or timestamp), and an index of the key, or of a selective column of it, that lacks
            at most a quarter of the rows; on Spark also with 100,000 rows or more, or 8 million in the base
            table, whatever the key.

        Raises
        ------
        ConflictError
            If concurrent commits did not settle.

        Examples
        --------
        >>> import tempfile, pyarrow as pa, weir
        >>> schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
        >>> table = weir.create(tempfile.mkdtemp() + "/people", schema, primary_key="id")
        >>> with table.writer() as writer:
        ...     _ = writer.upsert([{"id": 1, "name": "Ada"}])
        ...     _ = writer.flush()
        >>> table.maintenance.merge(divided=True).rows_upserted
        1
        """
        base, manifests, in_conflict = self._to_merge()
        return merge_generations(
            base,
            manifests,
            runner or ThreadRunner(),
            policy=policy or ALWAYS,
            in_conflict=in_conflict,
            on_progress=on_progress,
            divided=divided,
        )

    def merge_loaded(self, *, runner: Runner | None = None) -> MergeReport:
        """Merge every flushed generation, in as few commits as possible: see :mod:`weir.table.load`."""
        base, manifests, in_conflict = self._to_merge()
        # Tasks hold keys alone; whatever else merges holds rows.
        divided = can_be_divided(base) and base.merge_engine is None
        copied = divided or (base.append_only is not None and not base.sort_by)
        return merge_generations(
            base,
            manifests,
            runner or ThreadRunner(),
            in_conflict=in_conflict,
            divided=divided,
            max_task_bytes=_NO_LIMIT if copied else DEFAULT_MAX_TASK_BYTES,
        )

    def compact(
        self,
        *,
        rows_per_fragment: int = DEFAULT_ROWS_PER_FRAGMENT,
        max_deleted: float = 0.1,
        runner: Runner | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> CompactReport:
        """Rewrite small fragments of the base table, and those with many deleted rows, into large ones.

        May run concurrently with everything else. Fragments that a merge changes meanwhile are left for the
        next run.

        Parameters
        ----------
        rows_per_fragment : int
            Target rows per fragment; a fragment with half as many is left as it is. Default 1,048,576.
        max_deleted : float
            Share of a fragment's rows that may be deleted before it is rewritten. Default 0.1.
        runner : Runner, optional
            Writes the new fragments. Default: threads of this process.
        on_progress : callable, optional
            Called with (rewrites done, rewrites in all).

        Raises
        ------
        OptionError
            If an option is out of range.
        """
        return compact(
            self._table.base,
            runner or ThreadRunner(),
            rows_per_fragment=rows_per_fragment,
            max_deleted=max_deleted,
            on_progress=on_progress,
        )

    def expire(self) -> ExpireReport:
        """Remove expired rows from the base table; reads already skip them.

        Rows that are not merged yet are removed after their merge. A fragment whose rows have all expired is
        removed as a whole, without being read; that is the usual case if rows are sorted by their expiry
        time.

        Returns
        -------
        ExpireReport
            The removed rows; none for a table whose rows do not expire.

        Raises
        ------
        ConflictError
            If concurrent commits got in the way of every attempt.
        """
        return expire_rows(self._table.base)

    def catch_up_indexes(
        self,
        *,
        names: Sequence[str] | None = None,
        runner: Runner | None = None,
        retrain_imbalance_threshold: float = RETRAIN_IMBALANCE_THRESHOLD,
        without_gone: bool = False,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> CatchUpReport:
        """Add merged rows to the base table's indexes.

        Until then searches read the rows an index lacks, which is correct but slower. May run concurrently
        with everything else, itself included.

        Parameters
        ----------
        names : sequence of str, optional
            The indexes. Default: all that are maintained.
        runner : Runner, optional
            Builds the pieces. Default: threads of this process.
        retrain_imbalance_threshold : float
            A vector index is retrained when its largest partition is more than this many times larger than
            its smallest non-empty one. Default 5.0.
        without_gone : bool
            Whether to rebuild indexes that still hold values of rows deleted with their whole fragment: no
            search finds such rows, but the index files contain their values. Default False.
        on_progress : callable, optional
            Called with (steps done, steps in all).

        Raises
        ------
        IndexNotFoundError
            If there is no index with that name.
        ConflictError
            If concurrent commits got in the way of every attempt.
        StorageError, CorruptionError
            If an index could not catch up. All others have.
        """
        return catch_up_indexes(
            self._table.base,
            runner or ThreadRunner(),
            names=names,
            retrain_imbalance_threshold=retrain_imbalance_threshold,
            without_gone=without_gone,
            on_progress=on_progress,
        )

    def collect_garbage(
        self,
        *,
        horizon: Duration = DEFAULT_HORIZON,
        version_retention: Duration | None = None,
        dry_run: bool = False,
        runner: Runner | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> GarbageReport:
        """Delete what is no longer needed: merged generations, covered log entries, old manifests.

        Lance MemWAL spec, "Garbage Collector". A call marks garbage, and deletes what an earlier call marked
        at least a horizon ago and is still garbage (invariant I9). Deleting something therefore takes two
        calls; run it on a timer. Safe to run concurrently with everything else, itself included, and again
        after it was killed.

        Parameters
        ----------
        horizon : timedelta or number of seconds
            How long something is kept after it was marked. Reads, flushes and snapshots that take longer may
            fail, with an error that says so. Default 15 minutes.
        version_retention : timedelta or number of seconds, optional
            How long a version of the base table is kept after it was superseded, at least the horizon,
            together with every generation not merged into it. Older versions are removed unless they have a
            tag or a snapshot pins them. Default: no version is removed, and each keeps the generations that
            its own index of shards lists.
        dry_run : bool
            Whether to write nothing and only report what would be deleted, marked or kept, and why.
        runner : Runner, optional
            Executes the tasks. Default: threads of this process.
        on_progress : callable, optional
            Called with (steps done, steps in all).

        Returns
        -------
        GarbageReport
            What was deleted, what was marked, and what is kept, each with the reason.

        Raises
        ------
        OptionError
            If a duration is negative or too short.
        ConflictError
            If other collections or flushes prevented every attempt.
        CorruptionError
            If an object needed to decide what is garbage cannot be read. Nothing was deleted.
        StorageError
            If the store failed. Only garbage has been deleted; call it again.

        Examples
        --------
        >>> import tempfile, pyarrow as pa, weir
        >>> schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
        >>> table = weir.create(tempfile.mkdtemp() + "/t", schema, primary_key="id")
        >>> with table.writer() as writer:
        ...     for n in range(3):
        ...         _ = writer.upsert([{"id": n}])
        >>> _ = table.maintenance.merge()
        >>> for item in table.maintenance.collect_garbage(horizon=0, dry_run=True).items:
        ...     print(item.objects, item.kind, "-", item.reason)
        8 generation - merged, and no manifest lists it
        3 log entries - covered by generations that are merged, up to position 4
        >>> marked = table.maintenance.collect_garbage(horizon=0)
        >>> table.maintenance.collect_garbage(horizon=0).deleted_objects >= marked.waiting_objects
        True
        """
        return collect_garbage(
            self._table.base,
            runner or ThreadRunner(),
            horizon=as_duration(horizon, "horizon"),
            version_retention=None
            if version_retention is None
            else as_duration(version_retention, "version_retention"),
            dry_run=dry_run,
            on_progress=on_progress,
            fields_to_record=self._table.sharding.catalog.fields_to_record,
        )

    def recover(
        self,
        *,
        unleased: bool = False,
        runner: Runner | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> RecoverReport:
        """Flush the rows that vanished writers left in the logs of shards, so that they can be merged.

        Claims every shard that has rows in its log and no live writer: its lease was released, has expired,
        or was held by a process of this machine that no longer exists. Shards with a live lease are left
        alone. Safe to run concurrently with everything else, itself included.

        Parameters
        ----------
        unleased : bool
            Whether to claim shards that were never leased: writers of the released library take no lease.
            This fences their writers if they are still running. Default False.
        runner : Runner, optional
            Executes the tasks. Default: threads of this process.
        on_progress : callable, optional
            Called with (shards done, shards in all).

        Returns
        -------
        RecoverReport
            The flushed shards, and those left alone with the reason.

        Raises
        ------
        CorruptionError, StorageError
            If a shard could not be recovered; raised after all others were.
        """
        return recover_shards(
            self._table.store,
            self._table.reader.take_newest().shards,
            runner or ThreadRunner(),
            unleased=unleased,
            on_progress=on_progress,
        )

    def recover_dead(self, *, runner: Runner | None = None) -> int:
        """Flush what dead writers left in logs, and return the number of shards recovered.

        Unlike :meth:`recover` it leaves alone shards whose writers released them in order or took no lease.

        Parameters
        ----------
        runner : Runner, optional
            Executes the tasks. Default: threads of this process.
        """
        store = self._table.store
        views = [view for view in self._table.reader.take_newest().shards if view.tail_rows]
        leases = {view.shard_id: read_lease(store, view.shard_id) for view in views}
        dead = [
            view
            for view in views
            if not is_unleased(leases[view.shard_id], view.manifest)
            and lease_state(leases[view.shard_id]) in _DEAD
        ]
        return recover_shards(store, dead, runner or ThreadRunner()).recovered if dead else 0

    def recover_quiet(self, quiet_for: timedelta) -> int:
        """Flush idle logs whose writers take no lease, and return the number of shards recovered.

        Whether a writer of the released library or of LanceDB is alive cannot be determined. One that is gets
        fenced: its next write fails with that error, and LanceDB continues after ``close_lsm_writers()``.

        Parameters
        ----------
        quiet_for : timedelta
            How long a log must have been idle, by the clock of the store.

        Raises
        ------
        CorruptionError, StorageError
            If a shard could not be recovered; raised after all others were.
        """
        store = self._table.store
        views = [view for view in self._table.reader.take_newest().shards if view.tail_rows]
        quiet = [
            view
            for view in views
            if is_unleased(read_lease(store, view.shard_id), view.manifest)
            and age_of_object(store, layout.wal_path(view.shard_id, view.last_position)) >= quiet_for
        ]
        return recover_shards(store, quiet, ThreadRunner(), unleased=True).recovered if quiet else 0

    def verify(
        self,
        *,
        base_rows: bool = True,
        runner: Runner | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> VerifyReport:
        """Check every invariant of the table that can be seen in storage. Writes nothing.

        It reads every shard manifest, log entry and generation, the stored state of tokens, consumers and
        garbage collections, and the base table. Safe to run concurrently with everything else: anything that
        looks wrong is checked again, and reported only if it persists.

        Parameters
        ----------
        base_rows : bool
            Whether to read the rows of the base table too, which holds their keys in memory. Default True.
        runner : Runner, optional
            Executes the tasks. Default: threads of this process.
        on_progress : callable, optional
            Called with (tasks done, tasks in all), as far as known.

        Returns
        -------
        VerifyReport
            The problems; ``report.passed`` says whether there is no error.

        Examples
        --------
        >>> import tempfile, pyarrow as pa, weir
        >>> schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
        >>> table = weir.create(tempfile.mkdtemp() + "/people", schema, primary_key="id")
        >>> with table.writer() as writer:
        ...     _ = writer.upsert([{"id": 1, "name": "Ada"}])
        >>> report = table.maintenance.verify()
        >>> report.passed, report.generations, report.entries
        (True, 1, 2)
        """
        return verify_table(
            self._table.base, runner or ThreadRunner(), base_rows=base_rows, on_progress=on_progress
        )

    def repair(
        self, *, dry_run: bool = False, prefer: UUID | str | None = None, as_clone: bool = False
    ) -> RepairReport:
        """Repair everything that can be repaired without losing a row.

        Shards that hold versions of the same keys are joined: for every key the version written last wins, by
        the store's time of its log entry. One of several shards with the same values is kept, and the others
        are sealed. Merged rows stay as they are.

        In a clone that something other than Weir wrote, merge progress that belongs to another table is
        removed.

        The newest versions of the base table are set aside for inspection if a loss of power has torn them,
        so that their manifests or files are empty, truncated or missing; the next merge merges their rows
        again. Every commit by Weir does this too; readers do not.

        Log entries of a writer that kept writing while its table was replaced by a backup are set aside for
        inspection. All entries that wait for a flush are read.

        Indexes whose files are missing or damaged are rebuilt from the rows. All index files are read.

        Parameters
        ----------
        dry_run : bool
            Whether to only report what would be done. Default False.
        prefer : UUID or str, optional
            The shard whose version of a key wins if several were written at the same moment.
        as_clone : bool
            Whether the table is known to be a clone, for tables that do not record their location. Default
            False.

        Returns
        -------
        RepairReport
            What was done, or would be.

        Raises
        ------
        LeaseHeldError
            If a shard to be joined has an active writer.
        ShardConflictError
            If it cannot be determined which of two versions is newer, or whose progress it is.
        CorruptionError
            If the base table has damage that cannot be repaired. Nothing was changed.
        """
        if not dry_run:
            release_kept(self._table.store.uri)
        return repair_table(
            TableShards(
                self._table.base, self._table.sharding.router, self._table.sharding.catalog.values_of
            ),
            dry_run=dry_run,
            prefer=None if prefer is None else UUID(str(prefer)),
            as_clone=as_clone,
        )

    def run(
        self,
        *,
        horizon: Duration = DEFAULT_HORIZON,
        runner: Runner | None = None,
        on_progress: Callable[[str, int, int], None] | None = None,
        merge_policy: MergePolicy | None = None,
        quiet_for: timedelta | None = None,
        version_retention: Duration | None = None,
    ) -> MaintenanceReport:
        """Run one round of everything: merge, compact, catch up indexes and collect garbage.

        What dead writers left in logs is flushed first.

        Parameters
        ----------
        horizon : timedelta or number of seconds
            How long garbage is kept after it was marked. Default 15 minutes.
        runner : Runner, optional
            Executes the tasks. Default: threads of this process.
        on_progress : callable, optional
            Called with (phase, steps of it done, steps of it in all); the phases are ``"merge"``,
            ``"compact"``, ``"catch up"`` and ``"collect"``, in this order.
        merge_policy : MergePolicy, optional
            Decides whether there is enough to merge. Default: any amount is.
        quiet_for : timedelta, optional
            Also flush logs of writers without a lease, such as LanceDB's, that have been idle for this long
            (:meth:`recover_quiet`). Default: leave them to their writers.
        version_retention : timedelta or number of seconds, optional
            As for :meth:`collect_garbage`. Default: no version of the base table is removed.

        Returns
        -------
        MaintenanceReport
            What each of them did.

        Raises
        ------
        StorageError, CorruptionError
            If an index could not catch up. Everything else was done.
        """
        runner = runner or ThreadRunner()

        def reporting(what: str) -> Callable[[int, int], None] | None:
            return None if on_progress is None else partial(on_progress, what)

        self.recover_dead()
        if quiet_for is not None:
            self.recover_quiet(quiet_for)
        merged = self.merge(runner=runner, on_progress=reporting("merge"), policy=merge_policy)
        collect = partial(
            self.collect_garbage,
            horizon=horizon,
            version_retention=version_retention,
            runner=runner,
            on_progress=reporting("collect"),
        )
        expired = self.expire()
        compacted = self.compact(runner=runner, on_progress=reporting("compact"))
        try:
            indexes = self.catch_up_indexes(runner=runner, on_progress=reporting("catch up"))
        except (StorageError, CorruptionError):
            collect()
            raise
        report = MaintenanceReport(merged, compacted, indexes, expired, collect())
        give_back_freed_memory()
        return report

    def _to_merge(self) -> tuple[BaseTable, Sequence[ShardManifest], frozenset[UUID]]:
        """Return the base table, the newest manifests of its shards, and which of these are in conflict."""
        found = self._table.reader.take_manifests()
        if found is not None:
            return *found, frozenset()
        snapshot = self._table.reader.take_newest()
        return (
            snapshot.base,
            [view.manifest for view in snapshot.shards],
            self._shards_in_conflict(snapshot),
        )

    def _shards_in_conflict(self, snapshot: ReadSnapshot) -> frozenset[UUID]:
        """Return the shards that hold versions of keys of which another shard holds versions too."""
        shared = find_shared_keys(snapshot, self._table.sharding.router, self._table.shard_values(snapshot))
        return frozenset(shard for one in shared for shard in one.shards)
