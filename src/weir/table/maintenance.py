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
    """Keeps a table in shape. Got from :attr:`weir.Table.maintenance`.

    Every job may run beside writers, readers and other jobs, in any process, and twice at once. One that
    was killed is run again.

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

        Rows that are only in a MemTable and the WAL wait for their flush. Safe to run beside
        writers, readers and other merges. Shards that hold versions of the same keys, so that nobody knows
        which are the newest, are left alone and named in the report; :meth:`repair` joins them.

        Parameters
        ----------
        runner : Runner, optional
            Executes the tasks. Default: threads of this process.
        on_progress : callable, optional
            Called with (shards done, shards in all).
        policy : MergePolicy, optional
            Says whether there is enough to merge. Default: whatever there is, is.
        divided : bool, optional
            Whether the merge of a table is divided: a task for every shard, or for several that bring few
            rows, writes its rows, tasks for groups of fragments look for the rows that these replace, and
            one commit has all of it. So the executors of a runner merge one table together. Otherwise one
            task at a time merges, by Lance's ``merge_insert``; so it does, whatever is said here, where a
            table has stable row ids. Default: it is divided where that is at least as fast. On one machine
            that is with 1,000 rows or more, at most a quarter of the base table's, or a fiftieth if the key
            is no integer, date or timestamp, and a key of one column, of which the key index lacks a quarter
            of the rows at most; on Spark also with 100,000 rows or more, or 8 million in the base table,
            whatever the key.

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
        """Merge every flushed generation, as many in one commit as can be: see :mod:`weir.table.load`."""
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
        """Rewrite the base table's small fragments, and those with many deleted rows, into large ones.

        May run beside everything else. What a merge changes meanwhile is left for the next time.

        Parameters
        ----------
        rows_per_fragment : int
            Rows to make fragments of; one with half as many stays as it is. Default 1,048,576.
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
        """Remove the rows of the base table that have expired, which no read shows any more.

        Those that are not merged yet go after they are. A fragment of which no row is left goes as a whole,
        without being read: so it is where rows are sorted by the time by which they expire.

        Returns
        -------
        ExpireReport
            What was removed; nothing of a table whose rows do not expire.

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
        """Bring the base table's indexes up to the rows that were merged into it.

        Until then searches read what an index lacks, which is right and slower. May run beside
        everything else, and twice at once.

        Parameters
        ----------
        names : sequence of str, optional
            The indexes. Default: all that are maintained.
        runner : Runner, optional
            Builds the pieces. Default: threads of this process.
        retrain_imbalance_threshold : float
            A vector index is trained again when its largest partition is more than so many times
            larger than its smallest that is not empty. Default 5.0.
        without_gone : bool
            Whether indexes that have values of rows which were deleted with their whole fragment are built
            anew: nobody finds such rows, but files have their values. Default False.
        on_progress : callable, optional
            Called with (steps done, steps in all).

        Raises
        ------
        IndexNotFoundError
            If there is no index of that name.
        ConflictError
            If concurrent commits got in the way of every attempt.
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
        """Delete what nobody needs any more: merged generations, covered log entries, old manifests.

        Lance MemWAL spec, "Garbage Collector". A call marks what is garbage, and deletes what an earlier
        call has marked at least a horizon before and is garbage still (invariant I9). So it takes two
        calls to delete something; run it from a timer. Safe to run beside everything else, twice at once,
        and again after it was killed.

        Parameters
        ----------
        horizon : timedelta or number of seconds
            How long something stays after it was marked. Reads, flushes and snapshots that take longer
            may fail, with an error that says so. Default 15 minutes.
        version_retention : timedelta or number of seconds, optional
            How long a version of the base table is retained after it was superseded, at least the
            horizon, together with every generation it lacks. Older versions are removed, unless they
            have a tag or a snapshot pins them. Default: no version is removed, and each keeps the
            generations that its own index of shards lists.
        dry_run : bool
            Whether to write nothing, and only report what would be deleted, what would be marked, and
            what is kept, and why.
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
            If a length of time is negative or too short.
        ConflictError
            If other collections or flushes got in the way of every attempt.
        CorruptionError
            If something that says what is needed cannot be read. Nothing was deleted.
        StorageError
            If the store failed. What has been deleted was garbage; call it again.

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
        """Flush what writers that are gone have left in the logs of shards, so that it can be merged.

        Claims every shard that has rows in its log and no live writer: one whose lease was released, has
        run out, or was held by a process of this machine that is gone. Shards whose lease somebody holds
        are left alone. Safe to run beside everything else, and twice at once.

        Parameters
        ----------
        unleased : bool
            Whether to claim shards on which no writer has ever taken a lease, as writers of the released
            library take none. That fences their writers, if they live. Default False.
        runner : Runner, optional
            Executes the tasks. Default: threads of this process.
        on_progress : callable, optional
            Called with (shards done, shards in all).

        Returns
        -------
        RecoverReport
            What was flushed, and what was left alone and why.

        Raises
        ------
        CorruptionError, StorageError
            If a shard could not be recovered, after every other one was.
        """
        return recover_shards(
            self._table.store,
            self._table.reader.take_newest().shards,
            runner or ThreadRunner(),
            unleased=unleased,
            on_progress=on_progress,
        )

    def recover_dead(self, *, runner: Runner | None = None) -> int:
        """Flush what writers that died have left; return how many shards it was.

        Unlike :meth:`recover` it leaves shards alone whose writers have let go of them in order, or have
        taken them without a lease.

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
        """Flush what stands still in logs whose writers take no lease; return how many shards it was.

        Nothing tells whether a writer of the released library or of LanceDB lives. One that does is fenced:
        its next write says so, and LanceDB goes on after ``close_lsm_writers()``.

        Parameters
        ----------
        quiet_for : timedelta
            For how long nothing must have been written to a log, by the clock of the store.

        Raises
        ------
        CorruptionError, StorageError
            If a shard could not be recovered, after every other one was.
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
        """Check every invariant of the table that storage can show. Writes nothing.

        It reads every shard manifest, log entry and generation, what tokens, consumers and garbage
        collections have stored, and the base table. Safe to run beside everything else: what looks
        wrong is looked at again, and reported only if it stays so.

        Parameters
        ----------
        base_rows : bool
            Whether to read the rows of the base table too, whose keys are held in memory for it.
            Default True.
        runner : Runner, optional
            Executes the tasks. Default: threads of this process.
        on_progress : callable, optional
            Called with (tasks done, tasks in all), as far as these are known.

        Returns
        -------
        VerifyReport
            What is not as it should be; ``report.passed`` says whether there is no error.

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
        """Put right what can be put right without a row lost.

        Shards that hold versions of the same keys are joined: of every key the version counts that was
        written last, by the time at which the store has its log entry. One of several shards with the same
        values is kept, and the others are sealed. What has been merged stays as it is.

        Merge progress of another table is forgotten, in a clone that something else than Weir has written.

        The newest versions of the base table that a loss of power has torn, so that their manifests or files
        are empty, short or gone, are set aside, where they can be looked at; what they had merged is merged
        again by the next merge. Every commit of Weir does this by itself, and no reader does.

        Log entries that a writer has left which went on while a backup took the place of its table are set
        aside, where they can be looked at. All entries that wait for a flush are read.

        Indexes whose files are gone or damaged are built anew from the rows. All files of indexes are read.

        Parameters
        ----------
        dry_run : bool
            Whether only to say what would be done. Default False.
        prefer : UUID or str, optional
            The shard whose version of a key counts where several were written at the same moment.
        as_clone : bool
            Whether the table is known to be a clone, for one that does not record its place. Default False.

        Returns
        -------
        RepairReport
            What was done, or would be.

        Raises
        ------
        LeaseHeldError
            If a writer of shards that are to be joined is at work.
        ShardConflictError
            If nobody can tell which of two versions is newer, or whose progress it is.
        CorruptionError
            If the base table is damaged in a way that no repair is for. Nothing was changed.
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
    ) -> MaintenanceReport:
        """Merge, compact, let the indexes catch up, and collect garbage: one round of each.

        What writers that died have left in logs is flushed before.

        Parameters
        ----------
        horizon : timedelta or number of seconds
            How long what is not needed any more stays after it was marked. Default 15 minutes.
        runner : Runner, optional
            Executes the tasks. Default: threads of this process.
        on_progress : callable, optional
            Called with (what is going on, steps of it done, steps of it in all): ``"merge"``,
            ``"compact"``, ``"catch up"``, ``"collect"``, one after the other.
        merge_policy : MergePolicy, optional
            Says whether there is enough to merge. Default: whatever there is, is.
        quiet_for : timedelta, optional
            Flush as well what writers without a lease, such as those of LanceDB, have left in logs to which
            nothing was written for so long (:meth:`recover_quiet`). Default: leave it to them.

        Returns
        -------
        MaintenanceReport
            What each of them did.
        """
        runner = runner or ThreadRunner()

        def reporting(what: str) -> Callable[[int, int], None] | None:
            return None if on_progress is None else partial(on_progress, what)

        self.recover_dead()
        if quiet_for is not None:
            self.recover_quiet(quiet_for)
        merged = self.merge(runner=runner, on_progress=reporting("merge"), policy=merge_policy)
        report = MaintenanceReport(
            merge=merged,
            expired=self.expire(),
            compact=self.compact(runner=runner, on_progress=reporting("compact")),
            indexes=self.catch_up_indexes(runner=runner, on_progress=reporting("catch up")),
            garbage=self.collect_garbage(horizon=horizon, runner=runner, on_progress=reporting("collect")),
        )
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
