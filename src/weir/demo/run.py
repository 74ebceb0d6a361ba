"""The demo: replay the flights, ask, kill, go on, merge, and compare every row at the end."""

from __future__ import annotations

import random
import shutil
import statistics
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

import lance
import numpy as np
import pyarrow as pa

import weir
from weir.demo.crash import CrashCheck, check_after_crash
from weir.demo.display import Display
from weir.demo.events import DEPARTED, FlightEvents, load_events
from weir.demo.expected import ExpectedFlights, expected_flights
from weir.demo.flights import FLIGHT_SCHEMA, NUM_SHARDS, PRIMARY_KEY
from weir.demo.process import Heard, WriterProcess
from weir.demo.questions import Answer, ask_about_delays, ask_about_flight, instant_text
from weir.demo.report import DemoReport, MergeTotals
from weir.demo.source import flights_archive
from weir.demo.verdict import compare
from weir.demo.writer import WriterTask
from weir.services.merge import MergeReport
from weir.table import Table

__all__ = ["DemoOptions", "run_demo"]

_ALL_FLIGHTS = 336_776
_EVENTS_PER_FLIGHT = 3
_MOST_BATCH_ROWS = 1_000
_MOST_MEMTABLE_ROWS = 10_000
_QUESTIONS = 8
_MERGE_PAUSE = 3.0
_RATE_WINDOW = 3.0


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What the demo is to do.

    Parameters
    ----------
    directory : Path, optional
        Where to build the table, which is then kept. Default: a temporary directory.
    flights : int, optional
        Only so many flights, from the beginning of the year. Default: all.
    seed : int
        Decides when the writer is killed.
    keep : bool
        Whether to keep a temporary directory.
    fsync : bool
        Whether an acknowledgement means that the disk has the rows.
    """

    directory: Path | None = None
    flights: int | None = None
    seed: int = 2013
    keep: bool = False
    fsync: bool = True

    @property
    def batch_rows(self) -> int:
        """Events of a batch: 1,000, and fewer if there are few, so that there is a stream at all."""
        events = (self.flights or _ALL_FLIGHTS) * _EVENTS_PER_FLIGHT
        return min(max(events // 60, 20), _MOST_BATCH_ROWS)

    @property
    def memtable_rows(self) -> int:
        """Rows of a MemTable: 10,000, and fewer if there are few events, so that there are flushes."""
        return min(self.batch_rows * 10, _MOST_MEMTABLE_ROWS)


def run_demo(options: DemoOptions, *, to_standard_error: bool = False) -> DemoReport:
    """Run the demo.

    Parameters
    ----------
    options : DemoOptions
        What to do.
    to_standard_error : bool
        Whether to show progress there, and leave standard output to the caller.

    Raises
    ------
    MissingDependencyError
        If the package that carries the flights is not installed.
    TableExistsError
        If the directory has a table already.
    WriterError
        If a writer process fails by itself.
    """
    flights_archive()
    started = time.monotonic()
    with _location(options) as directory, Display(to_standard_error=to_standard_error) as display:
        table = weir.create(
            directory / "flights",
            FLIGHT_SCHEMA,
            primary_key=PRIMARY_KEY,
            shard_by=weir.bucket(PRIMARY_KEY, NUM_SHARDS),
            fsync=options.fsync,
        )
        report = replace(_Demo(table, options, display).run(), seconds=time.monotonic() - started)
        _conclude(report, display)
        if options.directory is not None or options.keep:
            display.say(f"The table is in {report.uri}")
    return report


@contextmanager
def _location(options: DemoOptions) -> Iterator[Path]:
    if options.directory is not None:
        yield options.directory
        return
    directory = Path(tempfile.mkdtemp(prefix="weir-demo-"))
    try:
        yield directory
    finally:
        if not options.keep:
            shutil.rmtree(directory, ignore_errors=True)


class _Demo:
    def __init__(self, table: Table, options: DemoOptions, display: Display) -> None:
        self._table = table
        self._display = display
        self._chance = random.Random(options.seed)
        self._task = WriterTask(
            table.uri, options.flights, options.batch_rows, options.memtable_rows, fsync=options.fsync
        )
        self._latencies: list[float] = []
        self._recent: deque[tuple[float, int]] = deque()
        self._acknowledged = -1
        self._answers: list[Answer] = []
        self._last_question = 0
        self._crash: CrashCheck | None = None

    def run(self) -> DemoReport:
        started = time.monotonic()
        merging = _BackgroundMerge(self._table, self._display)
        with merging:
            with WriterProcess(self._task, self._kill_after()) as writer:
                self._display.say(f"writer process {writer.pid} streams the flights")
                # It takes a while to start; meanwhile the right answer is computed here.
                expected = expected_flights(self._task.flights)
                events = load_events(self._task.flights, self._task.batch_rows)
                self._display.say(
                    f"{events.facts.num_rows:,} flights make {events.num_events:,} events, "
                    f"written to {NUM_SHARDS} shards in batches of {self._task.batch_rows:,}"
                )
                self._follow(writer, events, expected)
                killed = writer.was_killed()
            if killed:
                self._check_crash(writer.pid, events)
                task = replace(self._task, first_batch=self._acknowledged + 1)
                with WriterProcess(task) as second:
                    self._display.say(
                        f"writer process {second.pid} goes on after the last acknowledged batch"
                    )
                    self._follow(second, events, expected)
                    second.was_killed()
            stream_seconds = time.monotonic() - started
        self._display.move(1.0, f"{events.num_events:,} events are durable")
        self._merge_rest()
        return self._report(events, expected, stream_seconds, merging.totals)

    def _kill_after(self) -> int:
        flights = self._task.flights or _ALL_FLIGHTS
        batches = flights * _EVENTS_PER_FLIGHT // self._task.batch_rows
        return int(batches * self._chance.uniform(0.35, 0.6))

    def _follow(self, writer: WriterProcess, events: FlightEvents, expected: ExpectedFlights) -> None:
        """Listen to a writer until it ends, and ask the table questions meanwhile."""
        between_questions = max(events.num_batches // (_QUESTIONS + 1), 1)
        while True:
            try:
                heard = writer.next(seconds=0.5)
            except EOFError:
                return
            if heard is None:
                continue
            self._record(heard, events)
            if self._acknowledged >= self._last_question + between_questions:
                self._last_question = self._acknowledged
                self._ask(events, expected)

    def _record(self, heard: Heard, events: FlightEvents) -> None:
        batch = heard.acknowledgement
        self._acknowledged = batch.batch
        self._latencies.append(batch.seconds)
        self._recent.append((heard.at, batch.events))
        while heard.at - self._recent[0][0] > _RATE_WINDOW:
            self._recent.popleft()
        # The first of them only marks when counting began.
        counted = sum(count for _, count in self._recent) - self._recent[0][1]
        rate = f"{counted / (heard.at - self._recent[0][0]):,.0f} rows/s  " if counted else ""
        end = events.end_of(batch.batch)
        p50, p99 = _percentiles(self._latencies)
        self._display.move(
            end / events.num_events,
            f"{instant_text(int(events.time[end - 1]))}  {end:,} events  {rate}"
            f"durable in {p50 * 1e3:.1f} ms (p50), {p99 * 1e3:.1f} ms (p99)",
        )

    def _ask(self, events: FlightEvents, expected: ExpectedFlights) -> None:
        end = events.end_of(self._acknowledged) - 1
        delays = ask_about_delays(self._table, expected, int(events.time[end]))
        flight = delays.flight
        if flight is None:
            departed = np.flatnonzero(events.kind[:end] == DEPARTED)
            if not len(departed):
                return
            flight = events.facts.column("id")[int(events.flight[departed[-1]])].as_py()
        for answer in (delays, ask_about_flight(self._table, expected, flight)):
            self._answers.append(answer)
            self._display.say(
                f"? {answer.question}: {answer.answer}  "
                f"[{answer.seconds * 1e3:.0f} ms, {'right' if answer.right else 'WRONG'}]",
                style=None if answer.right else "bold red",
            )

    def _check_crash(self, pid: int, events: FlightEvents) -> None:
        self._display.say(f"writer process {pid} was killed with SIGKILL while it was writing", style="bold")
        self._crash = check = check_after_crash(self._table, events, self._acknowledged)
        self._display.say(
            f"after the crash: {check.acknowledged_events:,} events were acknowledged, "
            f"{check.acknowledged_rows:,} rows must be there, {check.lost:,} are lost, "
            f"{check.undeleted:,} deleted ones are back; {check.ahead:,} rows are newer than acknowledged",
            style=None if check.passed else "bold red",
        )

    def _merge_rest(self) -> None:
        started = time.monotonic()
        if self._table.status().unflushed_rows:
            # A shard that got no event after the crash: whoever writes to it next flushes what is left.
            with self._table.writer() as writer:
                writer.upsert(self._table.scan().to_table())
        merged = MergeTotals()
        while (report := self._table.merge()).generations:
            merged = _added(merged, report)
        self._display.say(
            f"final merge: {merged.generations} generations, {merged.rows_upserted:,} rows upserted, "
            f"{merged.rows_deleted:,} deleted ({time.monotonic() - started:.1f} s)"
        )

    def _report(
        self,
        events: FlightEvents,
        expected: ExpectedFlights,
        stream_seconds: float,
        merged: MergeTotals,
    ) -> DemoReport:
        p50, p99 = _percentiles(self._latencies)
        base: pa.Table = lance.dataset(self._table.uri).to_table()
        return DemoReport(
            uri=self._table.uri,
            flights=events.facts.num_rows,
            events=events.num_events,
            stream_seconds=stream_seconds,
            seconds=0.0,
            latency_p50=p50,
            latency_p99=p99,
            crash=self._crash,
            answers=tuple(self._answers),
            merged_in_background=merged,
            verdicts=(
                compare("the table as Weir reads it", self._table.scan().to_table(), expected.rows),
                compare("the Lance table alone", base, expected.rows),
            ),
        )


class _BackgroundMerge:
    """Merges again and again while the stream runs, on a thread of its own."""

    def __init__(self, table: Table, display: Display) -> None:
        self.totals = MergeTotals()
        self._table = table
        self._display = display
        self._stop = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="weir-demo-merge")

    def __enter__(self) -> _BackgroundMerge:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        if error is None and self._error is not None:
            raise self._error

    def _work(self) -> None:
        try:
            while not self._stop.wait(_MERGE_PAUSE):
                started = time.monotonic()
                report = self._table.merge()
                if report.generations:
                    self.totals = _added(self.totals, report)
                    self._display.say(
                        f"merged {report.generations} generations into the Lance table: "
                        f"{report.rows_upserted:,} rows upserted, {report.rows_deleted:,} deleted "
                        f"({time.monotonic() - started:.1f} s)"
                    )
        except Exception as error:
            self._error = error


def _added(totals: MergeTotals, report: MergeReport) -> MergeTotals:
    return MergeTotals(
        totals.merges + 1,
        totals.generations + report.generations,
        totals.rows_upserted + report.rows_upserted,
        totals.rows_deleted + report.rows_deleted,
    )


def _percentiles(latencies: list[float]) -> tuple[float, float]:
    if len(latencies) < 2:
        return (latencies[0], latencies[0]) if latencies else (0.0, 0.0)
    cuts = statistics.quantiles(latencies, n=100, method="inclusive")
    return cuts[49], cuts[98]


def _conclude(report: DemoReport, display: Display) -> None:
    merged = report.merged_in_background
    right = sum(answer.right for answer in report.answers)
    display.say(
        f"{report.events:,} events durable in {report.stream_seconds:.1f} s "
        f"({report.events_per_second:,.0f} rows/s, start and crash included), "
        f"p50 {report.latency_p50 * 1e3:.1f} ms, p99 {report.latency_p99 * 1e3:.1f} ms; "
        f"{merged.generations} generations in {merged.merges} merges meanwhile; "
        f"{right} of {len(report.answers)} answers right"
    )
    if report.crash is None:
        display.say("the stream was over before the writer could be killed", style="yellow")
    for verdict in report.verdicts:
        display.say(verdict.describe(), style=None if verdict.identical else "bold red")
    if report.passed:
        display.say(f"VERDICT: identical, row for row ({report.seconds:.1f} s in all)", style="bold green")
    else:
        display.say(f"VERDICT: DIFFERENT ({report.seconds:.1f} s in all)", style="bold red")
