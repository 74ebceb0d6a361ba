"""Queries in parts: each part is read, selected and aggregated independently, wherever a runner executes it.

The parts are those of one scan of one snapshot. Aggregating queries return small results; sequences are
matched, and rows ordered, in the calling process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from weir.events.clock import HybridClock
from weir.events.cursors import Cursor, arrivals
from weir.events.query.few_groups import few_states
from weir.events.query.planner import QueryPlan
from weir.events.query.replaying import ReplayPlan, merged_rows
from weir.events.query.running import (
    finished_rows,
    first_rows,
    observe,
    run_frame,
    selected,
    sequence_rows,
    within_window,
)
from weir.events.query.sessions import frame_of
from weir.events.query.states import merged_states, of_states, states_of
from weir.read.plan import DatasetTask, ScanPlan, ScanTask
from weir.read.read_end import ReadEnd

__all__ = [
    "Fresh",
    "QueryRunner",
    "ReplayPart",
    "fresh_by_parts",
    "fresh_of",
    "replay_parts",
    "run_query_by_parts",
    "run_replay_by_parts",
    "run_replay_part",
    "scan_parts",
]

_ROWS = 1_000_000
_BYTES = 8 * 1024 * 1024

Task = TypeVar("Task")
Answer = TypeVar("Answer")


class QueryRunner(Protocol):
    """Runs independent tasks, each of which can be pickled."""

    def run(self, function: Callable[[Task], Answer], tasks: Sequence[Task]) -> Iterator[Answer]:
        """Yield ``function(task)`` for every task, in any order."""
        ...


@dataclass(frozen=True, slots=True)
class QueryPart:
    """A part of a query, as a value that can be pickled.

    Parameters
    ----------
    plan : QueryPlan
        The query, without the table.
    task : DatasetTask or RowsTask
        What to read.
    columns : Schema
        The columns that are read.
    """

    plan: QueryPlan
    task: ScanTask
    columns: pa.Schema


@dataclass(frozen=True, slots=True)
class PartAnswer:
    """The result of a part: the states of its groups, or the rows of every step; and its newest event."""

    tables: tuple[pa.Table, ...]
    newest: int


def scan_parts(plan: ScanPlan, rows: int = _ROWS) -> list[ScanTask]:
    """Return the parts of a scan: groups of fragments, generations, and pieces of rows in memory."""
    parts: list[ScanTask] = []
    for task in plan.tasks:
        if isinstance(task, DatasetTask):
            parts += [part for part, count in task.split(rows) if count]
        else:
            parts += task.split(_BYTES)
    return parts


def run_query_by_parts(plan: QueryPlan, clock: HybridClock, runner: QueryRunner) -> pa.Table:
    """Return the result of a query whose parts a runner runs.

    Parameters
    ----------
    plan : QueryPlan
        The query.
    clock : HybridClock
        Observes the events that are read.
    runner : QueryRunner
        Runs the parts.
    """
    scan = plan.read.scan().plan()
    portable = replace(plan, read=replace(plan.read, table=None))  # type: ignore[arg-type]
    tasks = [QueryPart(portable, task, scan.schema) for task in scan_parts(scan)]
    answers = list(runner.run(run_part, tasks))
    for answer in answers:
        if answer.newest:
            clock.observe(answer.newest)
    if _is_of_states(plan):
        assert plan.grouping is not None
        states = [answer.tables[0] for answer in answers if answer.tables]
        if not states:
            return run_frame(plan, frame_of(plan.read.named(scan.schema.empty_table())[0]), clock)
        return of_states(plan, merged_states(plan.grouping, states))
    empty = plan.read.named(scan.schema.empty_table())
    steps = [
        pa.concat_tables([none, *(answer.tables[step] for answer in answers)], promote_options="permissive")
        for step, none in enumerate(empty)
    ]
    frame = sequence_rows(plan, steps) if plan.scope.is_sequence else within_window(plan, frame_of(steps[0]))
    return run_frame(plan, frame, clock)


def _is_of_states(plan: QueryPlan) -> bool:
    windowed = plan.window.rows is not None or plan.window.age is not None
    return plan.grouping is not None and not plan.scope.is_sequence and not windowed


def run_part(part: QueryPart) -> PartAnswer:
    """Return the result of a part of a query."""
    plan = part.plan
    rows = _rows(part.task, part.columns)
    tables = plan.read.named(rows)
    newest = max((_newest(plan, step, table) for step, table in enumerate(tables)), default=0)
    frames = [selected(plan, step, frame_of(table)) for step, table in enumerate(tables)]
    if _is_of_states(plan):
        return PartAnswer((states_of(plan, frames[0]),) if rows.num_rows else (), newest)
    query = plan.query
    if not plan.scope.is_sequence and plan.grouping is None and query.limit is not None:
        # Of each part at most so many can be in the answer.
        frames = [first_rows(plan, frames[0])]
    return PartAnswer(
        tuple(finished_rows(frame, table.schema) for frame, table in zip(frames, tables, strict=True)), newest
    )


def _newest(plan: QueryPlan, step: int, table: pa.Table) -> int:
    name = plan.scope.core(step)[0].internal
    return (pc.max(table.column(name)).as_py() or 0) if name in table.column_names else 0


def _rows(task: ScanTask, columns: pa.Schema) -> pa.Table:
    batches = [batch.select(columns.names) for batch in task.batches()]
    if not batches:
        return columns.empty_table()
    return pa.Table.from_batches(batches).cast(columns)


# --- What has come since -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fresh:
    """The events after a cursor: the states of their groups, or their rows.

    Parameters
    ----------
    table : Table
        States, or rows with internal column names.
    events : int
        Number of events they include.
    cursor : Cursor
        The cursor after them.
    end : ReadEnd, optional
        How far the read of them came, in this process.
    """

    table: pa.Table
    events: int
    cursor: Cursor
    end: ReadEnd | None = None


@dataclass(frozen=True, slots=True)
class FreshPart:
    """A part of the events after a cursor, as a value that can be pickled."""

    part: QueryPart
    after: Cursor


def fresh_of(plan: QueryPlan, rows: pa.Table, after: Cursor) -> Fresh:
    """Return the events after a cursor, from the rows of a scan."""
    delta, cursor = plan.read.fresh_of(rows, after)
    if plan.grouping is None:
        frame = selected(plan, 0, frame_of(delta))
        return Fresh(finished_rows(frame, delta.schema), delta.num_rows, cursor)
    # All of the scan's events count, if it decides which do.
    states = few_states(plan.grouping, delta) if plan.read.is_decided_by_scan else None
    if states is None:
        states = states_of(plan, selected(plan, 0, frame_of(delta)))
    # Without groups nothing has a state too.
    return Fresh(states if delta.num_rows else states.slice(0, 0), delta.num_rows, cursor)


def run_fresh_part(part: FreshPart) -> Fresh:
    """Return the events after a cursor in a part."""
    return fresh_of(part.part.plan, _rows(part.part.task, part.part.columns), part.after)


def fresh_by_parts(plan: QueryPlan, after: Cursor, runner: QueryRunner) -> Fresh:
    """Return the events after a cursor, part by part."""
    scan = plan.read.scan(after).plan()
    portable = replace(plan, read=replace(plan.read, table=None))  # type: ignore[arg-type]
    parts = [FreshPart(QueryPart(portable, task, scan.schema), after) for task in scan_parts(scan)]
    found = [fresh_of(plan, scan.schema.empty_table(), after), *runner.run(run_fresh_part, parts)]
    tables = [one.table for one in found]
    table = pa.concat_tables(tables) if plan.grouping is None else merged_states(plan.grouping, tables)
    seen: dict[int, int] = {}
    for one in found:
        for shard, last in one.cursor.seen.items():
            seen[shard] = max(last, seen.get(shard, 0))
    return Fresh(table, sum(one.events for one in found), Cursor(seen))


# --- Replays -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReplayPart:
    """A part of a replay, as a value that can be pickled.

    Parameters
    ----------
    plan : ReplayPlan
        The replay, without the table.
    task : DatasetTask or RowsTask
        What to read.
    columns : Schema
        The columns that are read.
    """

    plan: ReplayPlan
    task: ScanTask
    columns: pa.Schema


def replay_parts(plan: ReplayPlan, rows: int | None = None, after: Cursor | None = None) -> list[ReplayPart]:
    """Return the parts of a replay: of all events, or of those after a cursor and a few before it.

    Parameters
    ----------
    plan : ReplayPlan
        The replay.
    rows : int, optional
        Rows of the base table after which a part ends. Default: a million.
    after : Cursor, optional
        Where to begin. Default: with the first event.
    """
    scan = plan.scan(after).plan()
    portable = replace(plan, table=None)  # type: ignore[arg-type]
    return [ReplayPart(portable, task, scan.schema) for task in scan_parts(scan, rows or _ROWS)]


def run_replay_by_parts(plan: ReplayPlan, clock: HybridClock, runner: QueryRunner) -> pa.Table:
    """Return the events of a replay, in id order, with parts run by a runner."""
    found = [plan.schema.empty_table(), *runner.run(run_replay_part, replay_parts(plan))]
    table = pa.concat_tables(found).sort_by("event_id")
    observe(clock, table.column("event_id"))
    return table


def run_replay_part(part: ReplayPart, after: Cursor | None = None, through: Cursor | None = None) -> pa.Table:
    """Return the events of a part of a replay that are after one cursor and up to another."""
    plan = part.plan
    rows = plan.bounded(_rows(part.task, part.columns))
    if after is not None and through is not None:
        arrived = arrivals(rows)
        rows = rows.filter(pa.array(after.beyond(arrived) & ~through.beyond(arrived)))
    return merged_rows(rows, plan.types, plan.columns)
