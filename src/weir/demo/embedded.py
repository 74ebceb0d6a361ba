"""The demo without Spark: a writer process replays, and its parent queries, kills, merges and compares."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from dataclasses import replace
from types import TracebackType

import lance
import numpy as np
import pyarrow as pa

from weir.demo.console_report import tell_answer, tell_conclusion, tell_crash
from weir.demo.crash import CrashCheck, check_after_crash
from weir.demo.display import Display
from weir.demo.events import DEPARTED, FlightEvents, load_events
from weir.demo.expected import ExpectedFlights, expected_flights
from weir.demo.flights import NUM_SHARDS
from weir.demo.options import DemoOptions, create_table, location
from weir.demo.patience import Patience
from weir.demo.process import Heard, ListenedProcess
from weir.demo.questions import Answer, ask_about_delays, ask_about_flight, instant_text
from weir.demo.report import DemoReport, Latency, MergeTotals
from weir.demo.source import flights_archive
from weir.demo.verdict import compare
from weir.demo.writer import Acknowledgement, WriterTask
from weir.merge.service import MergeReport
from weir.table.table import Table

__all__ = ["run_embedded_demo"]

_MOST_BATCH_ROWS = 1_000
_MOST_MEMTABLE_ROWS = 10_000
_QUESTIONS = 8
_MERGE_PAUSE = 3.0
_RATE_WINDOW = 3.0


def run_embedded_demo(options: DemoOptions, *, to_standard_error: bool = False) -> DemoReport:
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
    with location(options) as directory, Display(to_standard_error=to_standard_error) as display:
        table = create_table(directory, options)
        report = replace(_Demo(table, options, display).run(), seconds=time.monotonic() - started)
        tell_conclusion(report, display)
        if options.directory is not None or options.keep:
            display.say(f"The table is in {report.uri}")
    return report


class _Demo:
    def __init__(self, table: Table, options: DemoOptions, display: Display) -> None:
        self._table = table
        self._display = display
        self._chance = random.Random(options.seed)
        self._task = WriterTask(
            table.uri, options.flights, _batch_rows(options), _memtable_rows(options), fsync=options.fsync
        )
        self._kill_after = int(
            options.about_events // self._task.batch_rows * self._chance.uniform(0.35, 0.6)
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
            with _writer(self._task, self._kill_after) as writer:
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
                with _writer(task) as second:
                    self._display.say(
                        f"writer process {second.pid} goes on after the last acknowledged batch"
                    )
                    self._follow(second, events, expected)
                    second.was_killed()
            stream_seconds = time.monotonic() - started
        self._display.move(1.0, f"{events.num_events:,} events are durable")
        self._merge_rest()
        return self._report(events, expected, stream_seconds, merging.totals)

    def _follow(
        self, writer: ListenedProcess[Acknowledgement], events: FlightEvents, expected: ExpectedFlights
    ) -> None:
        """Listen to a writer until it ends, and ask the table questions meanwhile."""
        between_questions = max(events.num_batches // (_QUESTIONS + 1), 1)
        patience = Patience(
            f"writer process {writer.pid}",
            lambda: f"{self._acknowledged + 1} of {events.num_batches} batches are acknowledged",
        )
        while True:
            patience.look(self._acknowledged)
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

    def _record(self, heard: Heard[Acknowledgement], events: FlightEvents) -> None:
        batch = heard.message
        self._acknowledged = batch.batch
        self._latencies.append(batch.seconds)
        self._recent.append((heard.at, batch.events))
        while heard.at - self._recent[0][0] > _RATE_WINDOW:
            self._recent.popleft()
        # The first of them only marks when counting began.
        counted = sum(count for _, count in self._recent) - self._recent[0][1]
        rate = f"{counted / (heard.at - self._recent[0][0]):,.0f} rows/s  " if counted else ""
        end = events.end_of(batch.batch)
        self._display.move(
            end / events.num_events,
            f"{instant_text(int(events.time[end - 1]))}  {end:,} events  {rate}{self._latency().describe()}",
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
            tell_answer(answer, self._display)

    def _check_crash(self, pid: int, events: FlightEvents) -> None:
        self._display.say(f"writer process {pid} was killed with SIGKILL while it was writing", style="bold")
        self._crash = check = check_after_crash(self._table, events, self._acknowledged)
        tell_crash(check, self._display)

    def _merge_rest(self) -> None:
        started = time.monotonic()
        if self._table.status().unflushed_rows:
            # A shard that got no event after the crash: its next writer flushes the rest.
            with self._table.writer() as writer:
                writer.upsert(self._table.scan().to_table())
        merged = MergeTotals()
        while (report := self._table.maintenance.merge()).generations:
            merged = _with(merged, report)
        self._display.say(
            f"final merge: {merged.generations} generations, {merged.rows_upserted:,} rows upserted, "
            f"{merged.rows_deleted:,} deleted ({time.monotonic() - started:.1f} s)"
        )

    def _latency(self) -> Latency:
        return Latency.of("ack_latency", "durable in", self._latencies)

    def _report(
        self,
        events: FlightEvents,
        expected: ExpectedFlights,
        stream_seconds: float,
        merged: MergeTotals,
    ) -> DemoReport:
        base: pa.Table = lance.dataset(self._table.uri).to_table()
        return DemoReport(
            uri=self._table.uri,
            flights=events.facts.num_rows,
            events=events.num_events,
            stream_seconds=stream_seconds,
            seconds=0.0,
            latency=self._latency(),
            crash=self._crash,
            answers=tuple(self._answers),
            merged_in_background=merged,
            verdicts=(
                compare("the table as Weir reads it", self._table.scan().to_table(), expected.rows),
                compare("the Lance table alone", base, expected.rows),
            ),
        )


class _BackgroundMerge:
    """Merges repeatedly while the stream runs, on a separate thread."""

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
                report = self._table.maintenance.merge()
                if report.generations:
                    self.totals = _with(self.totals, report)
                    self._display.say(
                        f"merged {report.generations} generations into the Lance table: "
                        f"{report.rows_upserted:,} rows upserted, {report.rows_deleted:,} deleted "
                        f"({time.monotonic() - started:.1f} s)"
                    )
        except Exception as error:
            self._error = error


def _with(totals: MergeTotals, report: MergeReport) -> MergeTotals:
    return totals.with_merge(report.generations, report.rows_upserted, report.rows_deleted)


def _writer(task: WriterTask, kill_after: int | None = None) -> ListenedProcess[Acknowledgement]:
    """Start a writer; it has other batches on their way when it is killed, so it dies while it is writing."""
    if kill_after is None:
        return ListenedProcess(task.command(), Acknowledgement.from_line)
    return ListenedProcess(task.command(), Acknowledgement.from_line, lambda batch: batch.batch >= kill_after)


def _batch_rows(options: DemoOptions) -> int:
    """Return the events of a batch: 1,000, or fewer if there are few, so that there is a stream at all."""
    return min(max(options.about_events // 60, 20), _MOST_BATCH_ROWS)


def _memtable_rows(options: DemoOptions) -> int:
    """Return the rows of a MemTable: 10,000, or fewer if there are few events, so that there are flushes."""
    return min(_batch_rows(options) * 10, _MOST_MEMTABLE_ROWS)
