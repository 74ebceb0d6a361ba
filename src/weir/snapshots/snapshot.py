"""The snapshot of one read: a base table version and a view of every shard, as one consistent cut.

Lance MemWAL spec, "Reader Consistency".
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, Concatenate, ParamSpec, TypeVar
from uuid import UUID

from weir.base.merge_guard import deletes_id, half_merged
from weir.base.newest import saw
from weir.base.published import published_shards
from weir.base.table import BaseTable
from weir.engine.concurrent_map import Wave, concurrent_map
from weir.engine.logs import get_logger
from weir.errors import (
    ConflictError,
    CorruptionError,
    OptionError,
    ShardConflictError,
    SnapshotExpiredError,
    WeirError,
)
from weir.format import layout
from weir.format.shard_manifest import FlushedGeneration, ShardManifest
from weir.log.first_look import expected_shard
from weir.log.manifest_store import list_shards, read_latest_manifest
from weir.lsm.deletion_mask import DeletionMask
from weir.lsm.expired_rows import expiry_instant, live_filter
from weir.lsm.fitted_filter import fitted_filter
from weir.lsm.key_reads import read_keys
from weir.lsm.levels import Level, ShardLevels, base_mask
from weir.lsm.total_filter import is_total
from weir.snapshots.shard_view import AnotherHistoryError, ShardReader, ShardView
from weir.storage.interface import ObjectStore

__all__ = [
    "MAX_SNAPSHOTS",
    "STRONG",
    "Consistency",
    "ReadSnapshot",
    "SnapshotReader",
    "base_is_ahead",
    "bounded",
    "is_complete",
    "refuse_foreign_progress",
]

_log = get_logger(__name__)

P = ParamSpec("P")
Result = TypeVar("Result")

MAX_SNAPSHOTS = 4
"""How many snapshots a read tries when garbage collection passes one after the other."""

_MAX_ATTEMPTS = 8

_UNKNOWN = object()


@dataclass(frozen=True, slots=True)
class Consistency:
    """How fresh a read has to be.

    Parameters
    ----------
    kind : str
        ``"strong"``: every write acknowledged before the read began is seen (invariant I12).
        ``"bounded"``: what was true at most ``max_staleness_ms`` milliseconds ago.
        ``"snapshot"``: the base table and the shard snapshots published in the MemWAL index.
    max_staleness_ms : int
        For ``"bounded"``, milliseconds.
    """

    kind: str
    max_staleness_ms: int = 0

    @classmethod
    def parse(cls, text: str | Consistency) -> Consistency:
        """Read ``"strong"``, ``"snapshot"`` or ``"bounded(MILLISECONDS)"``.

        Raises
        ------
        OptionError
            If the text is none of them.

        Examples
        --------
        >>> Consistency.parse("bounded(250)").max_staleness_ms
        250
        """
        if isinstance(text, Consistency):
            return text
        found = _named(text) if isinstance(text, str) else None
        if found is None:
            raise OptionError(
                f"unknown consistency {text!r}",
                where="consistency",
                hint="Use 'strong', 'snapshot' or 'bounded(500)' with milliseconds",
            )
        return found

    def __str__(self) -> str:
        """Return the text that :meth:`parse` reads."""
        return f"bounded({self.max_staleness_ms})" if self.kind == "bounded" else self.kind


STRONG = Consistency("strong")


@lru_cache(maxsize=64)
def _named(text: str) -> Consistency | None:
    """Return the consistency that a text names, the same few for most reads; None if it names none."""
    if text in ("strong", "snapshot"):
        return Consistency(text)
    found = re.fullmatch(r"bounded\(\s*(\d+)\s*(?:ms)?\s*\)", text)
    return None if found is None else bounded(int(found.group(1)))


def bounded(milliseconds: int) -> Consistency:
    """Return the consistency of reads that may be up to ``milliseconds`` behind.

    Examples
    --------
    >>> str(bounded(500))
    'bounded(500)'
    """
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int) or milliseconds < 0:
        raise OptionError(
            f"bounded() takes a whole number of milliseconds of at least 0, got {milliseconds!r}",
            where="consistency",
        )
    return Consistency("bounded", milliseconds)


@dataclass(frozen=True, slots=True)
class ReadSnapshot:
    """A consistent cut of a table.

    Parameters
    ----------
    base : BaseTable
        The base table, pinned at a version.
    shards : tuple of ShardView
        Every shard, by ascending id.
    instant : datetime or None, default None
        When it is judged what has expired. None: whenever it is read.
    dead_at : datetime or None, default None
        Rows that have expired at this instant are dead in its levels.
    """

    base: BaseTable
    shards: tuple[ShardView, ...]
    instant: datetime | None = None
    dead_at: datetime | None = None
    _known: dict[Hashable, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def shows(self, base: BaseTable, shards: tuple[ShardView, ...]) -> bool:
        """Whether it was made of these very objects, which is so while nothing has been written."""
        return (
            base is self.base
            and len(shards) == len(self.shards)
            and all(one is other for one, other in zip(shards, self.shards, strict=True))
        )

    def once(
        self, work_out: Callable[Concatenate[ReadSnapshot, P], Result], *args: P.args, **named: P.kwargs
    ) -> Result:
        """Return what a function makes of the snapshot, which is remembered for as long as the snapshot is.

        Parameters
        ----------
        work_out : callable
            A module-level function, which is the cache key together with the arguments. It returns a result
            derived from the snapshot and the arguments.
        """
        key = (work_out, args, *named.items()) if named else (work_out, args)
        found = self._known.get(key, _UNKNOWN)
        if found is _UNKNOWN:
            found = self._known[key] = work_out(self, *args, **named)
        known: Result = found
        return known

    def shown_to(self, filter: str | None) -> ReadSnapshot:
        """Return the snapshot in which a filter meets no row on which it may fail.

        That is this one, unless rows expire and the filter may have no value for some row: those that have
        expired are then told from the others before it is evaluated.
        """
        if filter is None or self.base.expiry is None:
            return self
        if is_total(fitted_filter(filter, self.base.schema), self.base.schema):
            return self
        instant = self.instant or expiry_instant()
        return replace(self, instant=instant, dead_at=instant)

    def live_filter(self, filter: str | None) -> str | None:
        """Return a filter whose literals fit the columns, with the condition that rows have not expired.

        Without it where such rows are dead anyway.
        """
        fitted = None if filter is None else fitted_filter(filter, self.base.schema)
        if self.base.expiry is None or self.dead_at is not None:
            return fitted
        return live_filter(self.base, fitted, self.instant)

    def shard_levels(self, view: ShardView) -> ShardLevels:
        """Return what a shard has above the base table."""
        return self.once(_shard_levels, view)

    def levels(self, views: tuple[ShardView, ...]) -> tuple[Level, ...]:
        """Return the levels of some shards above the base table: by shard, oldest first."""
        return self.once(_levels, views)

    def base_mask(self, views: tuple[ShardView, ...]) -> DeletionMask:
        """Return the base table's rows that some shards have replaced or deleted."""
        return self.once(_base_mask, views)

    def unmerged(self, view: ShardView) -> tuple[FlushedGeneration, ...]:
        """Return the flushed generations of a shard that the base table does not contain, ascending.

        A generation that is listed though it has been merged must be left out: it would outrank
        newer rows of the base table.
        """
        merged = self.base.details.merged_generation(view.shard_id)
        listed = (one for one in view.manifest.flushed_generations if one.generation > merged)
        return tuple(sorted(listed, key=lambda one: one.generation))


def _shard_levels(snapshot: ReadSnapshot, view: ShardView) -> ShardLevels:
    return ShardLevels(snapshot.base, view.shard_id, snapshot.unmerged(view), view.tail, snapshot.dead_at)


def _levels(snapshot: ReadSnapshot, views: tuple[ShardView, ...]) -> tuple[Level, ...]:
    shards = [snapshot.shard_levels(view) for view in views]
    read_keys(snapshot.base, shards)
    return tuple(level for shard in shards for level in shard.levels)


def _base_mask(snapshot: ReadSnapshot, views: tuple[ShardView, ...]) -> DeletionMask:
    return base_mask(snapshot.base, [snapshot.shard_levels(view) for view in views], snapshot.dead_at)


def _logs(snapshot: ReadSnapshot) -> list[str]:
    return [layout.wal_directory(view.shard_id) for view in snapshot.shards]


class SnapshotReader:
    """Takes snapshots of one table, caching what it has seen of every shard.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    base : BaseTable
        The base table at any version.
    """

    def __init__(self, store: ObjectStore, base: BaseTable) -> None:
        self._store = store
        self._base = base
        self._columns = base.row_schema
        # The columns may differ from those that writers of this process began with.
        saw(base)
        self._shards: dict[UUID, ShardReader] = {}
        self._lock = threading.Lock()
        self._latest: tuple[float, ReadSnapshot] | None = None
        # The stamp under which that was found to be the newest.
        self._newest_under: Hashable | None = None

    @property
    def base(self) -> BaseTable:
        """The base table at the newest version that has been seen."""
        return self._base

    def follow(self, base: BaseTable | None = None) -> BaseTable:
        """Check for a newer version of the base table, or take a known one, and return it."""
        with self._lock:
            newest = self._base.latest() if base is None else base
            if self._base.is_former:
                self._go_on_with(newest.latest() if newest.is_former else newest)
            elif not newest.is_former and newest.version > self._base.version:
                self._base = newest
            return self._base

    def take(self, consistency: Consistency) -> ReadSnapshot:
        """Return a snapshot at least as fresh as ``consistency`` asks."""
        if consistency.kind == "snapshot":
            return self._published()
        if consistency.kind == "bounded":
            latest = self._latest
            if latest is not None and (time.monotonic() - latest[0]) * 1000 <= consistency.max_staleness_ms:
                return latest[1]
        began = time.monotonic()
        with self._lock:
            snapshot = self._of_one_history()
            self._latest = (began, snapshot)
        return snapshot

    def read(self, consistency: Consistency, use: Callable[[ReadSnapshot], Result]) -> Result:
        """Return what ``use`` makes of a snapshot.

        If something it needs has been collected, because the snapshot is older than the horizon of
        garbage collection, it gets another, newer one.

        Raises
        ------
        CorruptionError
            If something is missing or damaged that the newest version of the table needs.
        SnapshotExpiredError
            If garbage collection passed every snapshot while it was used.
        """
        for _ in range(MAX_SNAPSHOTS - 1):
            try:
                return self._use(self.take(consistency), use)
            except SnapshotExpiredError:
                continue
        return self._use(self.take(consistency), use)

    def _use(self, snapshot: ReadSnapshot, use: Callable[[ReadSnapshot], Result]) -> Result:
        try:
            snapshot.base.refuse_damaged_deletions()
            return use(snapshot)
        except CorruptionError as error:
            self._refuse_expired(snapshot, error)
            raise

    @contextmanager
    def reading(self, snapshot: ReadSnapshot) -> Iterator[None]:
        """Say so if a read fails because garbage collection has passed its snapshot.

        Raises
        ------
        SnapshotExpiredError
            In place of a :class:`~weir.errors.CorruptionError`, if the table has moved on since.
        """
        try:
            yield
        except CorruptionError as error:
            self._refuse_expired(snapshot, error)
            raise

    def _refuse_expired(self, snapshot: ReadSnapshot, error: CorruptionError) -> None:
        same = snapshot.base.latest().version == snapshot.base.version
        if same and not self._is_of_another_history(snapshot):
            return
        # Others need not try it as well.
        self._latest = None
        raise SnapshotExpiredError(
            f"garbage collection has removed what version {snapshot.base.version} of the table was "
            "being read from, or something is damaged",
            where=error.where,
            hint="Read again; if reads take that long, collect with a longer horizon or pin a snapshot",
        ) from error

    def _is_of_another_history(self, snapshot: ReadSnapshot) -> bool:
        """Whether a backup was put in the place of the table, whose manifests are trusted for a while."""
        with suppress(WeirError):
            return self.take_newest().base.namespace != snapshot.base.namespace
        return False

    def take_newest(self) -> ReadSnapshot:
        """Return a strong snapshot with the newest manifest of every shard.

        A strong read may see a flushed generation's rows in the WAL tail still. Services that work on
        generations need the manifests themselves.
        """
        with self._lock:
            return self._of_one_history(reload_manifests=True)

    def take_manifests(self) -> tuple[BaseTable, tuple[ShardManifest, ...]] | None:
        """Return the base table and the newest manifest of every shard, for a merge that needs no more.

        Fewer requests than :meth:`take_newest` takes, which reads the log.

        Returns
        -------
        base : BaseTable
            Its newest version.
        manifests : tuple of ShardManifest
            The manifests of all shards that have one. None for both if :meth:`take_newest` is needed: shards
            may have keys in common, a generation takes effect only at the log entry that names it, or the
            history has changed.
        """
        with self._lock:
            before = self._base
            shard_ids = list_shards(self._store)
            if len(shard_ids) > 1 and before.append_only is None:
                return None
            readers = [self._reader(shard_id) for shard_id in shard_ids]
            try:
                found = list(
                    concurrent_map(
                        ShardReader.newest_manifest,
                        readers,
                        is_local=self._store.is_local,
                        engine=self._store.engine,
                    )
                )
            except AnotherHistoryError:
                return None
            manifests = tuple(manifest for manifest in found if manifest is not None)
            # After the shards, as always.
            base = before.latest()
            if before.is_former or base.row_schema is not self._columns:
                return None
            self._base = base
        named_later = any(
            one.published_after is not None for manifest in manifests for one in manifest.flushed_generations
        )
        if named_later or any(progress_is_ahead(base, manifest) for manifest in manifests):
            return None
        return base, manifests

    def _of_one_history(self, *, reload_manifests: bool = False) -> ReadSnapshot:
        """Return the newest snapshot; what was remembered is dropped if a backup was put in the place."""
        for _ in range(_MAX_ATTEMPTS):
            try:
                return self._current(reload_manifests=reload_manifests)
            except AnotherHistoryError:
                self._go_on_with(self._base.begin_anew())
        raise self._keeps_changing()

    def _go_on_with(self, base: BaseTable) -> None:
        """Drop what was remembered of the table: a backup was put in its place."""
        before, self._base = self._base, base
        self._columns = base.row_schema
        self._shards.clear()
        self._latest = None
        _log.warning(
            "table.restored", where=self._store.uri, former_version=before.version, version=base.version
        )

    def _current(self, *, reload_manifests: bool = False) -> ReadSnapshot:
        base = self._base
        last = None if self._latest is None else self._latest[1]
        # Before anything is looked at, so that what is written meanwhile changes it.
        stamp = None if last is None or reload_manifests else self._stamp(last)
        if last is not None and stamp is not None and stamp == self._newest_under:
            return last
        self._newest_under = None
        if base.row_schema is not self._columns:
            # Found by a caller that only asked for the current columns.
            self._give_columns_of(base)
        listed_after = base.version
        if reload_manifests or self._store.is_local:
            views = self._all_views(reload_manifests)
        else:
            views, is_newest = self._views_beside_base(None if self._latest is None else self._latest[1])
            if is_newest:
                shards = tuple(views.values())
                return self._same(base, shards) or ReadSnapshot(base, shards)
        for _ in range(_MAX_ATTEMPTS):
            # The base table last. What a shard did not show because it had been collected is merged: the
            # log of a shard is collected no further than merged generations reach, and what has gone off
            # its list was merged before. So if the base table is not ahead of what a shard showed,
            # nothing is missing.
            before, base = base, base.latest()
            if before.is_former:
                raise AnotherHistoryError
            self._base = base
            if base.row_schema is not self._columns:
                self._give_columns_of(base)
                listed_after = base.version
                views = self._all_views(reload_manifests)
                continue
            if base.version != listed_after:
                # A shard may have begun and merged since the shards were listed: the base table alone may
                # show half of its changes.
                listed_after = base.version
                begun = self._views(set(list_shards(self._store)) - views.keys(), ShardReader.refresh)
                if begun:
                    views.update((view.shard_id, view) for view in begun)
                    continue
            shards = tuple(views.values())
            same = self._same(base, shards)
            if same is not None:
                self._newest_under = stamp
                return same
            ahead = [view.shard_id for view in shards if base_is_ahead(base, view)]
            if not ahead:
                return ReadSnapshot(base, shards)
            again = self._views(ahead, lambda reader: reader.refresh(reload_manifest=True))
            refuse_foreign_progress(base, again)
            views.update((view.shard_id, view) for view in again)
        raise self._keeps_changing()

    def _stamp(self, snapshot: ReadSnapshot) -> Hashable | None:
        """Return what is another value once a snapshot is not the newest any more.

        None if that is not certain: always on an object store, where the log was written to a moment ago, and
        where a manifest has to be read again.
        """
        base, files = snapshot.base, snapshot.base.version_files
        if files is None or base is not self._base or base.is_former:
            return None
        # There is a reader for every shard that was listed: one that has no view may get one unnoticed.
        if len(snapshot.shards) != len(self._shards):
            return None
        for view in snapshot.shards:
            if not self._shards[view.shard_id].would_show(view):
                return None
        return self._store.stamp(*snapshot.once(_logs), layout.MEM_WAL, *files)

    def _give_columns_of(self, base: BaseTable) -> None:
        """Reread the log: its rows have the columns of another version."""
        self._columns = base.row_schema
        # Writers of this process use names, which may now mean other columns.
        saw(base)
        self._shards.clear()

    def _same(self, base: BaseTable, shards: tuple[ShardView, ...]) -> ReadSnapshot | None:
        """Return the snapshot before, if it shows just that."""
        before = None if self._latest is None else self._latest[1]
        return before if before is not None and before.shows(base, shards) else None

    def _views_beside_base(self, before: ReadSnapshot | None) -> tuple[dict[UUID, ShardView], bool]:
        """Look at the shards and at the base table at once: one wave of requests where nothing has moved.

        The base table has to be read last, since an entry that a shard lacks may be merged and collected.
        That would need a merge and two collections within one :class:`~weir.engine.concurrent_map.Wave`. If a
        manifest was read, the base table must have what it does not list.

        Parameters
        ----------
        before : ReadSnapshot or None
            The snapshot that is gone on from; None for the first.

        Returns
        -------
        views : dict
            What the shards show.
        is_newest : bool
            Whether they and the base table as it was are the newest state.
        """
        known = {} if before is None else {view.shard_id: view for view in before.shards}
        shards: tuple[UUID, ...] = ()
        found: dict[UUID, ShardView] = {}
        newest = base = self._base

        def look_for_shards() -> None:
            nonlocal shards
            shards = list_shards(self._store)

        def look_at_base() -> None:
            nonlocal newest
            newest = base.latest()

        def look_at(reader: ShardReader, shard_id: UUID) -> None:
            view = reader.refresh()
            if view is not None:
                found[shard_id] = view

        asked = [look_for_shards, look_at_base]
        expected = expected_shard(self._store) if before is None else None
        ids = known.keys() if expected is None else (expected,)
        asked += [partial(look_at, self._reader(shard_id), shard_id) for shard_id in ids]
        wave = Wave()
        for _ in concurrent_map(
            lambda ask: ask(), asked, is_local=self._store.is_local, engine=self._store.engine
        ):
            pass
        begun = self._views(set(shards) - found.keys(), ShardReader.refresh)
        is_newest = wave.was_short() and newest is base
        found.update((view.shard_id, view) for view in begun)
        views = {shard_id: found[shard_id] for shard_id in shards if shard_id in found}
        if before is None:
            snapshot = ReadSnapshot(base, tuple(views.values()))
            is_newest = is_newest and all(
                is_complete(snapshot, view) and not base_is_ahead(base, view) for view in views.values()
            )
        else:
            is_newest = (
                is_newest
                and base is before.base
                and views.keys() == known.keys()
                and all(view.manifest is known[shard_id].manifest for shard_id, view in views.items())
            )
        return views, is_newest

    def _all_views(self, reload_manifests: bool) -> dict[UUID, ShardView]:
        views = self._views(
            list_shards(self._store), lambda reader: reader.refresh(reload_manifest=reload_manifests)
        )
        return {view.shard_id: view for view in views}

    def _views(
        self, shard_ids: Collection[UUID], refresh: Callable[[ShardReader], ShardView | None]
    ) -> tuple[ShardView, ...]:
        readers = [self._reader(shard_id) for shard_id in shard_ids]
        views = concurrent_map(refresh, readers, is_local=self._store.is_local, engine=self._store.engine)
        return tuple(view for view in views if view is not None)

    def _reader(self, shard_id: UUID) -> ShardReader:
        reader = self._shards.get(shard_id)
        if reader is None:
            reader = self._shards[shard_id] = ShardReader(
                self._store,
                shard_id,
                self._columns,
                self._base.primary_key,
                namespace=self._base.namespace,
            )
        return reader

    def _published(self) -> ReadSnapshot:
        for _ in range(_MAX_ATTEMPTS):
            base = self.follow()
            # A published snapshot may list what has been merged or lack what has been flushed since:
            # it costs freshness, never correctness.
            views = {one.shard_id: ShardView(one, (), 0) for one in published_shards(base)}
            if views and not base.is_at_its_place:
                # What a clone publishes is of the shards of the table that it came from.
                views = {one: views[one] for one in list_shards(self._store) if one in views}
            behind = self._behind_deletes(base, views)
            if not behind:
                return ReadSnapshot(base, tuple(views.values()))
            # The base table shows half of generations that are not published yet.
            newest = concurrent_map(
                lambda shard_id: read_latest_manifest(self._store, shard_id),
                behind,
                is_local=self._store.is_local,
                engine=self._store.engine,
            )
            views.update((one.shard_id, ShardView(one, (), 0)) for one in newest if one is not None)
            snapshot = ReadSnapshot(base, tuple(views[shard_id] for shard_id in sorted(views)))
            # They are not listed any more if they have been merged and collected meanwhile.
            if all(is_complete(snapshot, views[shard_id]) for shard_id in behind if shard_id in views):
                return snapshot
        raise self._keeps_changing()

    def _behind_deletes(self, base: BaseTable, views: Mapping[UUID, ShardView]) -> list[UUID]:
        """Return the shards whose views lack generations for which the base table has only the deletes."""
        half = half_merged(base.details.merged_generations)
        for view in views.values() if half else ():
            if half.get(deletes_id(view.shard_id), 0) < view.manifest.current_generation:
                half.pop(deletes_id(view.shard_id), None)
        # There may be shards among them that have never been published.
        return [one for one in list_shards(self._store) if deletes_id(one) in half] if half else []

    def _keeps_changing(self) -> ConflictError:
        return ConflictError(
            f"the table changed during each of {_MAX_ATTEMPTS} attempts to read a consistent view of it",
            where=self._store.uri,
            hint="Read again, or merge less often",
        )


def base_is_ahead(base: BaseTable, view: ShardView) -> bool:
    """Whether the base table contains a generation that the view still shows as its tail, or its deletes."""
    return progress_is_ahead(base, view.manifest)


def progress_is_ahead(base: BaseTable, manifest: ShardManifest) -> bool:
    """Whether the base table contains a generation that a manifest of its shard does not know.

    Between the two commits of a merge it contains only the deletes of some: without all of these generations,
    rows that they have written again would be missing.
    """
    return _merged_or_deleted(base, manifest.shard_id) >= manifest.current_generation


def _merged_or_deleted(base: BaseTable, shard_id: UUID) -> int:
    merged = base.details.merged_generation
    return max(merged(shard_id), merged(deletes_id(shard_id)))


def refuse_foreign_progress(base: BaseTable, views: Iterable[ShardView]) -> None:
    """Refuse merge progress that is beyond what a shard has flushed.

    Parameters
    ----------
    base : BaseTable
        The base table.
    views : iterable of ShardView
        Shards with manifests that were read after it.

    Raises
    ------
    ShardConflictError
        Merged generations must have been flushed before, so the progress belongs to another table.
    """
    for view in views:
        if base_is_ahead(base, view):
            raise ShardConflictError(
                f"generation {_merged_or_deleted(base, view.shard_id)} of shard {view.shard_id} is recorded "
                f"as merged, but the shard has flushed {view.manifest.current_generation - 1}: the merge "
                "progress belongs to another table, from which this one was cloned or copied, or parts of "
                "two states were combined",
                where=base.uri,
                hint="weir repair --dry-run shows what can be done; weir.clone makes clones that can be "
                "written",
            )


def is_complete(snapshot: ReadSnapshot, view: ShardView) -> bool:
    """Whether every generation flushed so far is either merged or listed."""
    merged = snapshot.base.details.merged_generation(view.shard_id)
    unmerged = snapshot.unmerged(view)
    return len(unmerged) == max(view.manifest.current_generation - 1 - merged, 0)
