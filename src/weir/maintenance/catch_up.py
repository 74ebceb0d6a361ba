"""Index catch-up: adds merged rows to the base table's indexes.

Lance MemWAL spec, "Index Catch-up". One machine plans what each index lacks; tasks build segments for it
wherever the runner executes them; the segments of each index are committed together. Until then searches of
the base table read the fragments that an index lacks, which is correct but slower.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from weir.base.details_commit import update_details
from weir.base.index_changes import base_indexes
from weir.base.index_upkeep import (
    MAX_SEGMENTS,
    BuiltSegment,
    RebuildTask,
    SegmentTask,
    build_segment_of,
    commit_segments,
    gone_fragments,
    has_values,
    model_imbalance,
    rebuild_of,
    record_catchup,
    uncovered_fragments,
    unite_segments,
)
from weir.base.maintained_indexes import lacking_indexes, maintained_indexes, with_maintained_named
from weir.base.table import BaseTable
from weir.config import RETRAIN_IMBALANCE_THRESHOLD
from weir.engine.logs import get_logger
from weir.engine.runner import Runner
from weir.errors import CorruptionError, IndexNotFoundError, OptionError, StorageError
from weir.format.index_details import IndexDetails
from weir.indexing.describe import ExistingIndex
from weir.notebook import ShownAsTable

__all__ = ["CatchUpReport", "IndexCaughtUp", "catch_up_indexes"]

_log = get_logger(__name__)

_ROWS_PER_TASK = 1_000_000
"""At least this many if there are enough: every segment is one more for a search to read."""

Action = Literal["extended", "built", "retrained", "nothing to do"]


@dataclass(frozen=True, slots=True)
class IndexCaughtUp:
    """What was done for one index.

    Parameters
    ----------
    name : str
        The index.
    action : str
        ``"extended"`` by segments for new rows, ``"built"`` for the first time or to drop deleted rows,
        ``"retrained"`` because its partitions had become unequal, or ``"nothing to do"``.
    fragments : int
        Fragments of the base table that it covers now but did not before.
    segments : int
        Segments it has now.
    imbalance : float or None
        For a trained vector index, how many times larger its largest partition was than its smallest
        non-empty one.
    """

    name: str
    action: Action
    fragments: int
    segments: int
    imbalance: float | None = None


@dataclass(frozen=True, slots=True)
class CatchUpReport(ShownAsTable):
    """What a catch-up did.

    Parameters
    ----------
    indexes : tuple of IndexCaughtUp
        Every index that is maintained, by name.
    version : int
        Version of the base table afterwards.
    """

    indexes: tuple[IndexCaughtUp, ...]
    version: int


@dataclass(frozen=True, slots=True)
class _Work:
    index: ExistingIndex
    uncovered: tuple[int, ...]
    imbalance: float | None
    action: Action


@dataclass(frozen=True, slots=True)
class _Failure:
    name: str
    error: StorageError | CorruptionError


class _Failures:
    """The indexes that could not catch up: each is left as it is, and the others go on."""

    def __init__(self, base: BaseTable) -> None:
        self._where = base.uri
        self.by_name: dict[str, StorageError | CorruptionError] = {}

    def add(self, name: str, error: StorageError | CorruptionError) -> None:
        if name not in self.by_name:
            self.by_name[name] = error
            _log.warning("table.index_not_caught_up", table=self._where, index=name, error=str(error))

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        try:
            yield
        except (StorageError, CorruptionError) as error:
            self.add(name, error)


def catch_up_indexes(
    base: BaseTable,
    runner: Runner,
    *,
    names: Collection[str] | None = None,
    retrain_imbalance_threshold: float = RETRAIN_IMBALANCE_THRESHOLD,
    without_gone: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
) -> CatchUpReport:
    """Add the rows of the newest version of the base table to its indexes.

    Safe to run concurrently with merges, compaction, readers and other calls of this function: what was built
    for an outdated state of an index is discarded. An index that cannot catch up is left as it is, and all
    others catch up.

    Parameters
    ----------
    base : BaseTable
        The base table.
    runner : Runner
        Builds the segments, and rebuilds each index that needs it as one task.
    names : collection of str, optional
        The indexes. Default: all that the table maintains.
    retrain_imbalance_threshold : float, default 5.0
        A vector index with new rows is retrained when its largest partition is more than this many times
        larger than its smallest non-empty one.
    without_gone : bool, default False
        Whether to rebuild an index of removed fragments: no search finds their rows, but its files contain
        their values.
    on_progress : callable, optional
        Called with (steps done, steps in all).

    Raises
    ------
    IndexNotFoundError
        There is no index of that name.
    OptionError
        The threshold is below 1.
    ConflictError
        Concurrent commits got in the way of every attempt.
    StorageError, CorruptionError
        An index could not catch up, the first by name of those; all others have.
    """
    if not retrain_imbalance_threshold >= 1:
        raise OptionError(
            f"the threshold is a ratio of at least 1, got {retrain_imbalance_threshold!r}",
            where="retrain_imbalance_threshold",
        )
    base = base.latest()
    failures = _Failures(base)
    work = []
    for index in _wanted(base, names):
        with failures.of(index.name):
            work.append(_plan(base, index, retrain_imbalance_threshold, without_gone=without_gone))
    tasks = [task for one in work if one.action == "extended" for task in _tasks(base, one)]
    rebuilt = [one for one in work if one.action in ("built", "retrained")]
    steps, total = 0, len(tasks) + len(rebuilt)

    def step() -> None:
        nonlocal steps
        steps += 1
        if on_progress is not None:
            on_progress(steps, total)

    built = []
    for segment in runner.run(_built_or_failed, tasks):
        if isinstance(segment, _Failure):
            failures.add(segment.name, segment.error)
        else:
            built.append(segment)
        step()
    by_name = {one.index.name: one for one in work}
    built.sort(key=lambda one: (one.task.name, one.task.fragment_ids))
    after = base
    for name, own in groupby(built, key=lambda one: one.task.name):
        with failures.of(name):
            after = commit_segments(after, by_name[name].index, list(own))
    for one in work:
        if one.action == "extended" and one.index.definition is None:
            # Of a field of a struct the library indexes new rows only together with a segment's.
            is_nested = one.index.column not in after.dataset.schema.names
            with failures.of(one.index.name):
                after = unite_segments(after, one.index.name, 1 if is_nested else 0)
    for failed in runner.run(_rebuilt_or_failed, [RebuildTask.of(base, one.index) for one in rebuilt]):
        if failed is not None:
            failures.add(failed.name, failed.error)
        step()
    after = record_catchup(_with_few_segments(after.latest(), by_name, failures), by_name)
    # Plain Lance and LanceDB may have made and dropped indexes.
    after = _with_names(after)
    for name in sorted(failures.by_name):
        raise failures.by_name[name]
    report = CatchUpReport(tuple(_reports(after, work)), after.version)
    _log.info(
        "table.indexes_caught_up",
        extended=sum(one.action == "extended" for one in report.indexes),
        built=sum(one.action == "built" for one in report.indexes),
        retrained=sum(one.action == "retrained" for one in report.indexes),
        version=report.version,
    )
    return report


def _with_names(base: BaseTable) -> BaseTable:
    """Make the details name the existing maintained indexes. Commits nothing if they do."""

    def named(details: IndexDetails) -> IndexDetails:
        return with_maintained_named(details, base.dataset)

    lacking = lacking_indexes(base)
    if not lacking and named(base.details) == base.details:
        return base
    return update_details(base, named, lacking=lacking)


def _wanted(base: BaseTable, names: Collection[str] | None) -> list[ExistingIndex]:
    existing = {index.name: index for index in base_indexes(base)}
    if names is None:
        return [existing[name] for name in maintained_indexes(base)]
    if isinstance(names, str):
        raise OptionError("names must be a list of names, not a text", where="names")
    for name in names:
        if name not in existing:
            raise IndexNotFoundError(
                f"the table has no index {name!r}",
                where=base.uri,
                hint=f"Its indexes are {', '.join(existing)}" if existing else "It has none",
            )
    return [existing[name] for name in sorted(set(names))]


def _plan(base: BaseTable, index: ExistingIndex, threshold: float, *, without_gone: bool) -> _Work:
    uncovered = uncovered_fragments(base, index)
    if without_gone and index.definition is not None and gone_fragments(base, index):
        return _Work(index, uncovered, None, "built")
    if index.definition is None or not index.definition.kind.is_vector:
        return _Work(index, uncovered, None, "extended" if uncovered else "nothing to do")
    if not index.num_rows:
        learns = bool(uncovered) and has_values(base, index.column)
        return _Work(index, uncovered if learns else (), None, "built" if learns else "nothing to do")
    unequal = model_imbalance(base, index)
    # With rows that it has not learnt from: learning from the same again would make the same partitions.
    if unequal > threshold and (uncovered or len(index.segments) > 1):
        return _Work(index, uncovered, unequal, "retrained")
    return _Work(index, uncovered, unequal, "extended" if uncovered else "nothing to do")


def _tasks(base: BaseTable, work: _Work) -> Iterator[SegmentTask]:
    """Divide what an index lacks into tasks of about equal numbers of rows, each over consecutive fragments.

    Few enough that their segments need not be combined right afterwards.
    """
    if work.index.definition is None:
        return
    rows = {one.fragment_id: one.count_rows() for one in base.dataset.get_fragments()}
    room = max(MAX_SEGMENTS - len(work.index.segments), MAX_SEGMENTS // 2)
    rows_per_task = max(_ROWS_PER_TASK, -(-sum(rows[one] for one in work.uncovered) // room))
    group: list[int] = []
    for fragment_id in work.uncovered:
        group.append(fragment_id)
        if sum(rows[one] for one in group) >= rows_per_task:
            yield SegmentTask(base.store, base.version, work.index.name, tuple(group))
            group = []
    if group:
        yield SegmentTask(base.store, base.version, work.index.name, tuple(group))


def _built_or_failed(task: SegmentTask) -> BuiltSegment | _Failure:
    # A task that raises ends the run of all others.
    try:
        return build_segment_of(task)
    except (StorageError, CorruptionError) as error:
        return _Failure(task.name, error)


def _rebuilt_or_failed(task: RebuildTask) -> _Failure | None:
    try:
        rebuild_of(task)
    except (StorageError, CorruptionError) as error:
        return _Failure(task.name, error)
    return None


def _with_few_segments(base: BaseTable, work: dict[str, _Work], failures: _Failures) -> BaseTable:
    for index in base_indexes(base):
        if index.name in failures.by_name:
            continue
        if index.name in work and len(index.segments) > MAX_SEGMENTS:
            with failures.of(index.name):
                base = unite_segments(base, index.name, len(index.segments))
    return base


def _reports(after: BaseTable, work: Sequence[_Work]) -> Iterator[IndexCaughtUp]:
    now = {index.name: index for index in base_indexes(after)}
    for one in work:
        index = now.get(one.index.name)
        if index is None:
            continue
        yield IndexCaughtUp(
            name=one.index.name,
            action=one.action,
            fragments=len(index.fragment_ids & set(one.uncovered)),
            segments=len(index.segments),
            imbalance=one.imbalance,
        )
