"""Bugs put into Weir on purpose, one at a time: the checker has to find each of them.

Every bug is a mistake that somebody could make, or has made, in this kind of system, written as a small
change of the real code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, cast
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tests.simulation import library
from tests.simulation.compaction import Compaction
from tests.simulation.primitives import SimulatedExecutor

import weir.changes.feed
import weir.changes.plan
import weir.changes.start
import weir.log.manifest_store
import weir.log.replay
import weir.log.wal
import weir.lsm.levels
import weir.lsm.newest
import weir.maintenance.compact
import weir.maintenance.garbage.garbage
import weir.maintenance.garbage.policy
import weir.maintenance.garbage.survey
import weir.merge.commit
import weir.merge.merge_insert
import weir.merge.merged_keys
import weir.merge.new_rows
import weir.merge.replaced_rows
import weir.merge.rows
import weir.merge.waves
import weir.read.planner
import weir.rows.changes
import weir.rows.conforming
import weir.snapshots.consumers
import weir.snapshots.history
import weir.snapshots.shard_view
import weir.snapshots.snapshot
import weir.snapshots.time_travel
import weir.write.claim
import weir.write.decision.decide
import weir.write.decision.present_rows
import weir.write.flush.flush
import weir.write.flush.generation_rows
import weir.write.flush.generation_writer
import weir.write.flush.staged_generations
import weir.write.lease.lease
import weir.write.log_appender
import weir.write.memtable.memtable
import weir.write.replay
import weir.write.shard_writer
from weir.base.details_commit import update_details
from weir.base.merge_guard import guard_id
from weir.base.row_commit import RowChange
from weir.base.table import BaseTable
from weir.changes.range import ChangeRange, ShardChanges
from weir.engine.concurrent_map import Wave
from weir.errors import KeyValueError, StorageError
from weir.format import layout, shard_manifest, wal_entry
from weir.format.index_details import IndexDetails, MergedGeneration
from weir.format.merge_engine import MergeEngine
from weir.format.shard_manifest import FlushedGeneration, ShardManifest
from weir.format.snapshot_token import STAMP_BYTES, ShardCut, SnapshotToken
from weir.format.source import Source, SourceMarks
from weir.format.wal_entry import TOMBSTONE, WalEntry
from weir.format.wal_header import WalEntryHeader
from weir.log.wal import PositionedEntry, Wal
from weir.lsm.fold import Settled, fold, settle
from weir.lsm.newest import Overlay, overlay
from weir.maintenance.garbage.policy import ShardPlan
from weir.maintenance.garbage.state import ShardState
from weir.maintenance.garbage.survey import Survey
from weir.merge.merge_insert import merge_by_library
from weir.merge.plan import MergeTask
from weir.merge.result import MergeResult
from weir.merge.rows import RunRows
from weir.snapshots.capture import Cut
from weir.snapshots.consumers import StoredConsumer
from weir.snapshots.shard_view import ShardView
from weir.snapshots.snapshot import ReadSnapshot
from weir.storage.interface import Bytes, ObjectStore
from weir.write.claim import Claim
from weir.write.log_appender import LogAppender
from weir.write.memtable.memtable import MemTable
from weir.write.memtable.memtable_set import MemTables

__all__ = ["PLANTED_BUGS", "PlantedBug"]

Patch = tuple[Any, str, Any]

_WITH_ENGINE = "with a merge engine"


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """A mistake, and how to make it.

    Parameters
    ----------
    name : str
        What is wrong.
    breaks : str
        The invariants of which a simulation reports one first.
    patches : callable
        Returns what to replace: object, attribute, replacement.
    kind : str, optional
        The kind of scenario in which it shows, if it would take many seeds of all kinds to find it.
    is_long : bool, optional
        Whether it takes a long history, or a short one, if it would take many seeds of all lengths.
    first_seed : int
        Where to begin, a little before the seed that finds it, if that would take many seeds of its kind.
    """

    name: str
    breaks: str
    patches: Callable[[], Sequence[Patch]]
    kind: str | None = None
    is_long: bool | None = None
    first_seed: int = 0

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Make the mistake for the length of a ``with`` block."""
        before: list[Patch] = []
        try:
            for owner, name, replacement in self.patches():
                before.append((owner, name, owner.__dict__[name]))
                setattr(owner, name, replacement)
            yield
        finally:
            for owner, name, value in reversed(before):
                setattr(owner, name, value)


class _Changed:
    """An object with other attributes in the place of some of its own."""

    def __init__(self, real: Any, **others: Any) -> None:
        self._real = real
        vars(self).update(others)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def _no_fence_entry() -> Sequence[Patch]:
    claim_shard = weir.write.claim.claim_shard

    def without_fence(store: ObjectStore, wal: Wal, *arguments: Any, **options: Any) -> Claim:
        silent = _Changed(wal, append_or_read=lambda *_: None, remember=lambda *_: None)
        claim = claim_shard(store, cast(Any, silent), *arguments, **options)
        return replace(claim, next_position=claim.next_position - 1, fence=None)

    return [(weir.write.shard_writer, "claim_shard", without_fence)]


def _no_epoch_check_at_flush() -> Sequence[Patch]:
    update = weir.log.manifest_store.update_manifest

    def whoever_asks(
        store: ObjectStore, shard_id: UUID, change: Any, *, known: ShardManifest
    ) -> ShardManifest:
        def flushed(latest: ShardManifest) -> ShardManifest:
            changed: ShardManifest = change(replace(latest, writer_epoch=known.writer_epoch))
            return replace(changed, writer_epoch=latest.writer_epoch)

        return update(store, shard_id, flushed, known=known)

    return [(weir.write.flush.flush, "update_manifest", whoever_asks)]


def _published_before_data() -> Sequence[Patch]:
    write = library.Library.write_dataset

    def write_behind(*arguments: Any) -> None:
        SimulatedExecutor().submit(write, *arguments)

    return [(library.Library, "write_dataset", write_behind)]


def _merged_generation_is_read() -> Sequence[Patch]:
    def unmerged(self: ReadSnapshot, view: ShardView) -> tuple[FlushedGeneration, ...]:
        return tuple(sorted(view.manifest.flushed_generations, key=lambda one: one.generation))

    return [(ReadSnapshot, "unmerged", unmerged)]


def _older_generation_wins() -> Sequence[Patch]:
    unmerged = ReadSnapshot.unmerged

    def newest_first(self: ReadSnapshot, view: ShardView) -> tuple[FlushedGeneration, ...]:
        return unmerged(self, view)[::-1]

    return [(ReadSnapshot, "unmerged", newest_first)]


def _tombstones_dropped_at_merge() -> Sequence[Patch]:
    read_runs = weir.merge.rows.read_runs

    def without_deletes(*arguments: Any) -> RunRows:
        run = read_runs(*arguments)
        run.deletes = run.deletes.slice(0, 0)
        return run

    return [
        (module, "read_runs", without_deletes) for module in (weir.merge.merge_insert, weir.merge.new_rows)
    ]


def _settled_without_the_base() -> Sequence[Patch]:
    def of_generations(base: BaseTable, engine: MergeEngine, versions: pa.Table) -> Settled:
        return settle(engine, versions, base.primary_key)

    return [(weir.merge.rows, "settled_rows", of_generations)]


def _delete_dropped_before_a_row() -> Sequence[Patch]:
    def without_deletes(*arguments: Any, **named: Any) -> pa.Table:
        rows = fold(*arguments, **named)
        live = pc.invert(rows.column(TOMBSTONE))
        of_deleted = pc.invert(pc.is_in(rows.column("id"), rows.filter(live).column("id").combine_chunks()))
        return rows.filter(pc.or_(live, of_deleted))

    return [(weir.write.flush.generation_rows, "fold", without_deletes)]


def _tombstones_shown() -> Sequence[Patch]:
    def with_tombstones(*arguments: Any) -> Overlay:
        found = overlay(*arguments)
        live = (mask | source.tombstones for mask, source in zip(found.live, found.sources, strict=True))
        return replace(found, live=tuple(live))

    return [(weir.lsm.levels, "overlay", with_tombstones)]


def _lost_answer_taken_for_failure() -> Sequence[Patch]:
    append_or_read = Wal.append_or_read

    def try_again(self: Wal, position: int, data: Sequence[Bytes]) -> WalEntry | None:
        while True:
            try:
                return append_or_read(self, position, data)
            except StorageError:
                position += 1

    return [(Wal, "append_or_read", try_again)]


def _tail_ignored() -> Sequence[Patch]:
    class WithoutEnd(Wal):
        def read_from(self, *_: Any, **options: Any) -> Iterator[PositionedEntry]:
            return iter(())

    return [(weir.snapshots.shard_view, "Wal", WithoutEnd)]


def _replay_one_too_late() -> Sequence[Patch]:
    covered_position = weir.log.replay.covered_position

    def one_later(manifest: ShardManifest, entries: Iterable[PositionedEntry]) -> int:
        covered = covered_position(manifest, entries)
        return covered + 1 if covered >= 0 else covered

    return [
        (module, "covered_position", one_later)
        for module in (weir.log.replay, weir.write.claim, weir.snapshots.shard_view)
    ]


def _acknowledged_before_the_put() -> Sequence[Patch]:
    append = LogAppender.append

    def append_behind(self: LogAppender, batches: Any, *arguments: Any) -> int:
        if not batches:
            return append(self, batches, *arguments)
        position = self.position + 1
        SimulatedExecutor().submit(append, self, batches, *arguments)
        return position

    return [(LogAppender, "append", append_behind)]


def _progress_in_a_commit_of_its_own() -> Sequence[Patch]:
    def merge_twice(tasks: Sequence[MergeTask], base: BaseTable, **options: Any) -> MergeResult:
        result = merge_by_library(tasks, base, **options)
        merged = {task.shard_id: task.last_generation for task in tasks}

        def mark(details: IndexDetails) -> IndexDetails:
            others = tuple(one for one in details.merged_generations if one.shard_id not in merged)
            newest = (
                MergedGeneration(shard_id, max(generation, details.merged_generation(shard_id)))
                for shard_id, generation in merged.items()
            )
            return replace(details, merged_generations=(*others, *newest))

        return replace(result, base=update_details(base, mark))

    return [
        (library.MergeInsert, "mark_sstables_as_compacted", lambda self, marks: self),
        *((module, "merge_by_library", merge_twice) for module in (weir.merge.commit, weir.merge.waves)),
    ]


def _no_guard_against_overlapping_merges() -> Sequence[Patch]:
    mark = library.MergeInsert.mark_sstables_as_compacted

    def without_guards(self: library.MergeInsert, marks: Sequence[library.Mark]) -> library.MergeInsert:
        guards = {str(guard_id(UUID(one.shard))) for one in marks}
        return mark(self, [one for one in marks if one.shard not in guards])

    return [(library.MergeInsert, "mark_sstables_as_compacted", without_guards)]


def _deletes_of_a_merge_not_pinned() -> Sequence[Patch]:
    retries = library.MergeInsert.conflict_retries
    # As many as the library does where nobody says how many.
    return [(library.MergeInsert, "conflict_retries", lambda self, _: retries(self, 10))]


def _manifest_overwritten() -> Sequence[Patch]:
    def commit_manifest(
        store: ObjectStore, manifest: ShardManifest, *, after: ShardManifest | None, absent: object = None
    ) -> ShardManifest | None:
        path = layout.manifest_path(manifest.shard_id, manifest.version)
        if store.head(path) is not None:
            return None
        store.put(path, shard_manifest.encode(manifest))
        return manifest

    return [
        (weir.log.manifest_store, "commit_manifest", commit_manifest),
        (weir.write.claim, "commit_manifest", commit_manifest),
    ]


def _flush_repeated_after_a_lost_answer() -> Sequence[Patch]:
    update = weir.log.manifest_store.update_manifest

    def once_more(store: ObjectStore, shard_id: UUID, change: Any, **options: Any) -> ShardManifest:
        def flushed(latest: ShardManifest) -> ShardManifest:
            changed: ShardManifest = change(replace(latest, replay_after_wal_entry_position=-1))
            return changed

        return update(store, shard_id, flushed, **options)

    return [(weir.write.flush.flush, "update_manifest", once_more)]


def _base_ahead_of_the_tail_unnoticed() -> Sequence[Patch]:
    return [(weir.snapshots.snapshot, "base_is_ahead", lambda base, view: False)]


def _tail_kept_after_a_flush() -> Sequence[Patch]:
    return [(weir.snapshots.shard_view, "covered_position", lambda *_: -1)]


def _older_row_of_a_memtable_flushed() -> Sequence[Patch]:
    def oldest_rows(columns: Sequence[pa.ChunkedArray]) -> np.ndarray[Any, Any]:
        _, first = np.unique(columns[0].to_numpy(), return_index=True)
        return np.sort(first)

    return [(weir.write.flush.generation_rows, "newest_rows", oldest_rows)]


def _lease_ignored() -> Sequence[Patch]:
    return [(weir.write.lease.lease, "is_free", lambda *_: True)]


def _collection_without_horizon() -> Sequence[Patch]:
    plan_shard = weir.maintenance.garbage.policy.plan_shard

    def everything_is_due(*arguments: Any) -> ShardPlan:
        plan = plan_shard(*arguments)
        return replace(
            plan,
            due_log=plan.log,
            due_manifests=plan.manifests,
            due_directories=tuple(plan.directories),
        )

    return [(weir.maintenance.garbage.garbage, "plan_shard", everything_is_due)]


def _fences_collected() -> Sequence[Patch]:
    return [_seen_at_collection(guards=frozenset())]


def _seen_at_collection(**seen: Any) -> Patch:
    """Have collections see some of a shard's state as something else."""
    survey_shard = weir.maintenance.garbage.survey.survey_shard

    def as_it_seems(survey: Survey) -> ShardState | None:
        state = survey_shard(survey)
        return None if state is None else replace(state, **seen)

    return weir.maintenance.garbage.garbage, "survey_shard", as_it_seems


def _tokens_hold_nothing_back() -> Sequence[Patch]:
    return [(weir.maintenance.garbage.garbage, "live_roots", lambda *_: ())]


def _unmerged_generation_collected() -> Sequence[Patch]:
    def all_of_them(manifest: ShardManifest, _: Any) -> tuple[FlushedGeneration, ...]:
        return tuple(sorted(manifest.flushed_generations, key=lambda one: one.generation))

    return [(weir.maintenance.garbage.garbage, "off_the_list", all_of_them)]


def _manifest_out_of_line_unnoticed() -> Sequence[Patch]:
    commit = weir.log.manifest_store.commit_manifest

    class Short(Wave):
        def was_short(self) -> bool:
            return True

    def as_the_first(store: ObjectStore, manifest: ShardManifest, **_: Any) -> ShardManifest | None:
        return commit(store, manifest, after=None, absent=Short())

    return [
        (module, "commit_manifest", as_the_first) for module in (weir.log.manifest_store, weir.write.claim)
    ]


def _feed_skips() -> Sequence[Patch]:
    batches = ChangeRange.batches

    def without_first(self: ChangeRange) -> Iterator[ShardChanges]:
        for number, changes in enumerate(batches(self)):
            yield changes if number else replace(changes, rows=changes.rows.slice(0, 0))

    return [(ChangeRange, "batches", without_first)]


def _feed_doubles() -> Sequence[Patch]:
    with_cut = weir.changes.plan.with_cut

    def one_behind(token: SnapshotToken, cut: ShardCut) -> SnapshotToken:
        return with_cut(token, replace(cut, position=cut.position - 1))

    return [(weir.changes.feed, "with_cut", one_behind)]


def _commit_of_a_consumer_dropped() -> Sequence[Patch]:
    return [(StoredConsumer, "acknowledge", lambda self, token: None)]


def _rows_before_from_the_newest_base() -> Sequence[Patch]:
    state_token = weir.snapshots.history.state_token

    def with_the_newest_base(store: ObjectStore, cut: Cut, *arguments: Any) -> SnapshotToken:
        token = state_token(store, cut, *arguments)
        stamp = cut.base.version_identity[:STAMP_BYTES]
        return replace(token, base_version=cut.base.version, base_stamp=stamp)

    return [
        (module, "state_token", with_the_newest_base) for module in (weir.changes.feed, weir.changes.start)
    ]


def _token_drifts() -> Sequence[Patch]:
    view_at = weir.snapshots.time_travel.view_at

    def as_far_as_it_goes(store: ObjectStore, base: BaseTable, cut: ShardCut) -> ShardView:
        wal = Wal(store, cut.shard_id, namespace=base.identity)
        end = max((item.position for item in wal.read_from(cut.position + 1)), default=cut.position)
        return view_at(store, base, replace(cut, position=end))

    return [(weir.snapshots.time_travel, "view_at", as_far_as_it_goes)]


def _checksum_not_verified() -> Sequence[Patch]:
    return [(wal_entry, "prove", lambda *_: None)]


def _keys_not_checked() -> Sequence[Patch]:
    conformed = weir.rows.conforming.conformed

    def with_any_key(table: pa.Table, schema: pa.Schema, *arguments: Any, **options: Any) -> pa.Table:
        try:
            return conformed(table, schema, *arguments, **options)
        except KeyValueError:
            return pa.Table.from_arrays(table.select(schema.names).columns, schema=schema)

    return [(weir.rows.changes, "conformed", with_any_key)]


def _marks_not_looked_at() -> Sequence[Patch]:
    return [(SourceMarks, "covers", lambda self, source: False)]


def _only_the_newest_number_known() -> Sequence[Patch]:
    def is_newest(self: SourceMarks, source: Source) -> bool:
        return self.sequences.get(source.name) == source.sequence

    return [(SourceMarks, "covers", is_newest)]


def _marks_lost_at_flush() -> Sequence[Patch]:
    update = weir.write.flush.flush.update_manifest  # type: ignore[attr-defined]

    def without_new_marks(store: ObjectStore, shard_id: UUID, change: Any, **options: Any) -> Any:
        def flushed(latest: ShardManifest) -> ShardManifest:
            changed: ShardManifest = change(latest)
            return replace(changed, sources=latest.sources)

        return update(store, shard_id, flushed, **options)

    return [(weir.write.flush.flush, "update_manifest", without_new_marks)]


def _marks_of_the_tail_not_replayed() -> Sequence[Patch]:
    replayed = weir.write.replay.replayed_memtables

    def without_marks(generation: int, schema: pa.Schema, tail: Any, sources: SourceMarks) -> list[MemTable]:
        memtables = replayed(generation, schema, tail, sources)
        for memtable in memtables:
            memtable.sources = sources
        return memtables

    return [(weir.write.shard_writer, "replayed_memtables", without_marks)]


def _marks_of_the_manifest_not_taken_over() -> Sequence[Patch]:
    replayed = weir.write.replay.replayed_memtables

    def of_the_tail_alone(generation: int, schema: pa.Schema, tail: Any, _: SourceMarks) -> list[MemTable]:
        return replayed(generation, schema, tail, SourceMarks())

    return [(weir.write.shard_writer, "replayed_memtables", of_the_tail_alone)]


def _mark_in_doubt_forgotten() -> Sequence[Patch]:
    append = MemTables.append

    def without_mark(self: MemTables, position: int, entry: WalEntry, queued: int) -> None:
        if not queued:
            entry = replace(entry, header=replace(entry.header, source=None))
        append(self, position, entry, queued)

    return [(MemTables, "append", without_mark)]


def _repeats_in_a_group_not_compared() -> Sequence[Patch]:
    class Forgetful(SourceMarks):
        def with_mark(self, source: Source | None) -> SourceMarks:
            return self

    return [(weir.write.shard_writer, "SourceMarks", Forgetful)]


def _record_of_marks_not_searched() -> Sequence[Patch]:
    def newest_alone(store: ObjectStore, wal: Wal, latest: ShardManifest) -> SourceMarks:
        return latest.sources or SourceMarks()

    return [(weir.write.claim, "recorded_sources", newest_alone)]


def _record_of_marks_collected() -> Sequence[Patch]:
    return [_seen_at_collection(record=None)]


def _staged_twice_published() -> Sequence[Patch]:
    publish = weir.write.log_appender.publish_staged  # type: ignore[attr-defined]

    def publish_again(store: ObjectStore, claim: Claim, staged: Any, **options: Any) -> Any:
        published = publish(store, claim, staged, **options)
        return publish(store, claim, staged, **{**options, "generation": published.current_generation})

    return [(weir.write.log_appender, "publish_staged", publish_again)]


def _mark_of_a_publication_lost() -> Sequence[Patch]:
    publish = weir.write.log_appender.publish_staged  # type: ignore[attr-defined]

    def without_mark(store: ObjectStore, claim: Claim, staged: Any, **options: Any) -> Any:
        known = claim.manifest.sources or SourceMarks()
        return publish(store, claim, staged, **{**options, "sources": known})

    return [(weir.write.log_appender, "publish_staged", without_mark)]


def _staged_collected_too_early() -> Sequence[Patch]:
    return [(weir.maintenance.garbage.policy, "LEFT_BEHIND_AFTER", timedelta(hours=1))]


def _staged_published_too_late() -> Sequence[Patch]:
    return [(weir.write.flush.staged_generations, "MAX_STAGED", timedelta(days=365))]


def _publication_not_announced() -> Sequence[Patch]:
    return [(WalEntryHeader, "announcing", lambda self, generations: self)]


def _published_while_a_shard_is_opened_is_missed() -> Sequence[Patch]:
    class Unnumbered(Wal):
        def read_tail(self, manifest: ShardManifest, *, reached: int = 0) -> Iterator[PositionedEntry]:
            for item in super().read_tail(manifest, reached=reached):
                header = replace(item.entry.header, published_from=0)
                yield replace(item, entry=replace(item.entry, header=header))

    return [(weir.snapshots.shard_view, "Wal", Unnumbered)]


def _published_before_the_rest_is_flushed() -> Sequence[Patch]:
    class AtOnce(LogAppender):
        is_publishing = False

        def publish(self, staged: Any, source: Any) -> int | None:
            self.is_publishing = True
            try:
                return super().publish(staged, source)
            finally:
                self.is_publishing = False

        def freeze(self) -> None:
            if not self.is_publishing:
                super().freeze()

    return [(weir.write.shard_writer, "LogAppender", AtOnce)]


def _decided_without_what_is_in_memory() -> Sequence[Patch]:
    class Unread:
        def __init__(self, *_: Any) -> None:
            """Take whatever groups of keys take."""

        def newest(self, _: Any) -> Iterator[Any]:
            return iter(())

    return [(weir.write.decision.present_rows, "KeyGroup", Unread)]


def _decided_without_what_is_flushed() -> Sequence[Patch]:
    return [(weir.write.decision.present_rows, "key_groups", lambda *_: ())]


def _decided_before_what_is_in_doubt() -> Sequence[Patch]:
    return [(LogAppender, "settle", lambda self: None)]


def _rows_of_a_group_decided_at_once() -> Sequence[Patch]:
    def all_different(columns: Sequence[pa.ChunkedArray]) -> tuple[np.ndarray[Any, Any], int]:
        rows = len(columns[0])
        return np.arange(rows, dtype=np.int64), rows

    return [(weir.write.decision.decide, "key_codes", all_different)]


def _left_out_by_who_is_fenced() -> Sequence[Patch]:
    return [(LogAppender, "confirm", lambda self: self.position)]


def _marks_without_rows() -> Sequence[Patch]:
    def commit(store: Any, manifest: Any, change: RowChange, marks: Any) -> int | None:
        return library.commit_rows(store, manifest, RowChange(change.left, ()), marks)

    return [(weir.merge.waves, "commit_rows", commit)]


def _rows_without_marks() -> Sequence[Patch]:
    def commit(store: Any, manifest: Any, change: RowChange, marks: Any) -> int | None:
        return library.commit_rows(store, manifest, change, ())

    return [(weir.merge.waves, "commit_rows", commit)]


def _key_file_lost() -> Sequence[Patch]:
    read = weir.merge.merged_keys.read_keys

    def none(store: ObjectStore, keys: Any) -> pa.Table:
        return read(store, keys).slice(0, 0)

    return [(weir.merge.replaced_rows, "read_keys", none)]


def _stale_fragment_taken() -> Sequence[Patch]:
    def as_it_was(dataset: library.Dataset) -> dict[int, str]:
        return dict.fromkeys(library.fragments_of(dataset), "as it was")

    return [(weir.merge.waves, "fragments_of", as_it_was)]


def _commit_loses_against_itself() -> Sequence[Patch]:
    return [(weir.merge.waves, "commit_rows", partial(library.commit_rows, knows_its_own=False))]


def _generation_not_synced() -> Sequence[Patch]:
    write = weir.write.flush.flush.write_generation  # type: ignore[attr-defined]

    def unsynced(store: ObjectStore, *args: Any, **options: Any) -> Any:
        return write(cast(Any, _Changed(store, sync=lambda prefix: None)), *args, **options)

    return [(weir.write.flush.flush, "write_generation", unsynced)]


def _place_not_synced() -> Sequence[Patch]:
    return [(weir.snapshots.consumers, "make_durable", lambda store, version: None)]


def _compaction_overlooks_deletes() -> Sequence[Patch]:
    commit = Compaction.commit

    def as_of_now(dataset: library.Dataset, results: Sequence[Any], options: Any) -> None:
        commit(dataset, [replace(one, read_version=dataset.version) for one in results], options)

    return [(Compaction, "commit", staticmethod(as_of_now))]


PLANTED_BUGS = (
    PlantedBug(
        "a generation is listed that nobody has synced",
        "I1, I5, I6, I7, I12, no unexplained error",
        _generation_not_synced,
        "losing power",
    ),
    PlantedBug(
        "the place of a consumer names a version that nobody has synced",
        "I9, no unexplained error",
        _place_not_synced,
        "losing power",
        first_seed=400,
    ),
    PlantedBug(
        "a compaction overlooks what was deleted meanwhile",
        "I5, I7",
        _compaction_overlooks_deletes,
        "compacting",
    ),
    PlantedBug(
        "a write is decided without what is in memory",
        "decided",
        _decided_without_what_is_in_memory,
        "deciding",
    ),
    PlantedBug(
        "a write is decided without what is flushed",
        "decided",
        _decided_without_what_is_flushed,
        "deciding",
    ),
    PlantedBug(
        "a write is decided before what is in doubt is settled",
        "decided, I4",
        _decided_before_what_is_in_doubt,
        "deciding",
        first_seed=410,
    ),
    PlantedBug(
        "rows of one key in a group are decided at once",
        "decided",
        _rows_of_a_group_decided_at_once,
        "deciding",
    ),
    PlantedBug(
        "a writer that is fenced leaves rows out",
        "decided, I2",
        _left_out_by_who_is_fenced,
        "deciding",
        first_seed=224,
    ),
    PlantedBug("a claim writes no fence entry", "I2", _no_fence_entry, "outliving"),
    PlantedBug("a flush does not look at the epoch", "I1, I5", _no_epoch_check_at_flush),
    PlantedBug("a flush is published before its data", "I1", _published_before_data, first_seed=12),
    PlantedBug(
        "a merged generation is still read",
        "I5, I6, I8, I12, no unexplained error",
        _merged_generation_is_read,
        first_seed=75,
    ),
    PlantedBug(
        "an older generation outranks a newer one",
        "I5, I6, I8, I12, feed",
        _older_generation_wins,
        first_seed=10,
    ),
    PlantedBug("tombstones are dropped at the merge", "I7", _tombstones_dropped_at_merge, first_seed=25),
    PlantedBug(
        "versions are merged without the row that is there", "I7", _settled_without_the_base, _WITH_ENGINE
    ),
    PlantedBug("a delete is dropped before a row", "I1", _delete_dropped_before_a_row, _WITH_ENGINE),
    PlantedBug("tombstones are shown", "I5, I6, I8", _tombstones_shown),
    PlantedBug(
        "a lost answer is taken for a failure", "I3, I4", _lost_answer_taken_for_failure, first_seed=21
    ),
    PlantedBug("a reader ignores the tail of the log", "I5, I6, I12", _tail_ignored, first_seed=67),
    PlantedBug("replay starts one entry too late", "I1, I5", _replay_one_too_late, first_seed=11),
    PlantedBug("a group is acknowledged before its put", "I1", _acknowledged_before_the_put),
    PlantedBug("merge progress has a commit of its own", "I7", _progress_in_a_commit_of_its_own),
    PlantedBug(
        "overlapping merges are not guarded",
        "I7",
        _no_guard_against_overlapping_merges,
        "merging",
        first_seed=625,
    ),
    PlantedBug(
        "the deletes of a merge are not pinned",
        "I7",
        _deletes_of_a_merge_not_pinned,
        "merging",
        is_long=True,
        first_seed=590,
    ),
    PlantedBug("a shard manifest is overwritten", "I1, I2, I7, I9", _manifest_overwritten, first_seed=230),
    PlantedBug(
        "a flush is repeated after a lost answer", "I5", _flush_repeated_after_a_lost_answer, first_seed=590
    ),
    PlantedBug("a lease is ignored", "lease", _lease_ignored, first_seed=28),
    PlantedBug(
        "garbage is collected at once",
        "I8, I9",
        _collection_without_horizon,
        "collecting",
        first_seed=2270,
    ),
    PlantedBug("fence entries are collected", "I1, I2", _fences_collected, "outliving"),
    PlantedBug("tokens hold nothing back", "I8, I9", _tokens_hold_nothing_back, first_seed=810),
    PlantedBug(
        "generations are collected before their merge", "I9", _unmerged_generation_collected, first_seed=11
    ),
    PlantedBug(
        "a manifest where nobody looks is not noticed",
        "I1, I2",
        _manifest_out_of_line_unnoticed,
        "sleeping",
        first_seed=40,
    ),
    PlantedBug(
        "the base ahead of the tail goes unnoticed",
        "I5, I6, I12",
        _base_ahead_of_the_tail_unnoticed,
        "collecting",
        first_seed=1340,
    ),
    PlantedBug(
        "the tail outlives its flush in a reader", "I5, I6, I12", _tail_kept_after_a_flush, first_seed=206
    ),
    PlantedBug("a flush keeps the oldest row of a key", "I1", _older_row_of_a_memtable_flushed),
    PlantedBug("the change feed skips an entry", "feed", _feed_skips, "collecting", first_seed=18),
    PlantedBug("the change feed delivers an entry twice", "feed", _feed_doubles, "collecting"),
    PlantedBug("a commit of a consumer is dropped", "feed", _commit_of_a_consumer_dropped, "collecting"),
    PlantedBug(
        "rows before a change are of now",
        "feed",
        _rows_before_from_the_newest_base,
        "collecting",
        first_seed=60,
    ),
    PlantedBug("a snapshot token drifts", "I8", _token_drifts, "collecting"),
    PlantedBug("a checksum is not verified", "I11", _checksum_not_verified, first_seed=89),
    PlantedBug("keys are not checked", "I10", _keys_not_checked, first_seed=125),
    PlantedBug("marks are not looked at", "I4", _marks_not_looked_at, "repeating"),
    PlantedBug(
        "only the newest number of a source is known", "I4", _only_the_newest_number_known, "repeating"
    ),
    PlantedBug("marks are lost at a flush", "I4, marks", _marks_lost_at_flush, "repeating"),
    PlantedBug(
        "marks in the tail are not replayed", "I4, marks", _marks_of_the_tail_not_replayed, "repeating"
    ),
    PlantedBug(
        "marks in the manifest are not taken over",
        "I4, marks",
        _marks_of_the_manifest_not_taken_over,
        "repeating",
    ),
    PlantedBug(
        "the mark of a write in doubt is forgotten",
        "I4, marks",
        _mark_in_doubt_forgotten,
        "repeating",
        first_seed=116,
    ),
    PlantedBug(
        "repeats that come together are not compared",
        "I4, marks",
        _repeats_in_a_group_not_compared,
        "repeating",
        first_seed=15,
    ),
    PlantedBug(
        "the record of marks is not searched for", "I4, marks", _record_of_marks_not_searched, "repeating"
    ),
    PlantedBug(
        "the record of marks is collected",
        "I4, marks, no unexplained error",
        _record_of_marks_collected,
        "repeating",
        first_seed=43,
    ),
    PlantedBug(
        "marks of a merge are published without its rows", "I7", _marks_without_rows, "merging in waves"
    ),
    PlantedBug(
        "rows of a merge are published without its marks", "I7", _rows_without_marks, "merging in waves"
    ),
    PlantedBug("a lost key file is taken for no keys", "I5, I7", _key_file_lost, "merging in waves"),
    PlantedBug(
        "a deletion file of a stale fragment is taken",
        "I5, I7",
        _stale_fragment_taken,
        "updated by hand",
        first_seed=224,
    ),
    PlantedBug(
        "a commit that is tried again loses against itself",
        "no unexplained error",
        _commit_loses_against_itself,
        "merging in waves",
        first_seed=560,
    ),
    PlantedBug(
        "staged generations are published twice",
        "I4, I5, I7, staged",
        _staged_twice_published,
        "staging",
        first_seed=108,
    ),
    PlantedBug("the mark of a publication is lost", "I4, marks", _mark_of_a_publication_lost, "staging"),
    PlantedBug(
        "staged generations are collected too early",
        "I1, I9",
        _staged_collected_too_early,
        "staging slowly",
        first_seed=9,
    ),
    PlantedBug(
        "staged generations are published too late",
        "I1",
        _staged_published_too_late,
        "staging late",
        first_seed=39,
    ),
    PlantedBug("a publication is not announced", "staged", _publication_not_announced, "staging"),
    PlantedBug(
        "a shard that is opened lacks what is published meanwhile",
        "I5, I6, I12",
        _published_while_a_shard_is_opened_is_missed,
        "staging beside travellers",
        first_seed=110,
    ),
    PlantedBug(
        "generations are published over rows in memory",
        "I1",
        _published_before_the_rest_is_flushed,
        "staging",
    ),
)
