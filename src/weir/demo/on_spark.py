"""The demo on Spark: flights land as files, a driver streams them into a table, dies, and continues.

Here is who lets the files land, asks, kills, and compares; :mod:`weir.demo.driver` is who is killed.
"""

from __future__ import annotations

import json
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from weir.demo.console_report import tell_answer, tell_conclusion, tell_crash
from weir.demo.crash import CrashCheck, check_after_crash
from weir.demo.display import Display
from weir.demo.driver import DriverTask
from weir.demo.events import DEPARTED, FlightEvents, load_events
from weir.demo.expected import ExpectedFlights, expected_flights
from weir.demo.flights import FLIGHT_SCHEMA, NUM_SHARDS
from weir.demo.freshness import Freshness
from weir.demo.landing import Landing
from weir.demo.options import DemoOptions, create_table, location
from weir.demo.patience import Patience
from weir.demo.process import Heard, ListenedProcess
from weir.demo.questions import (
    Answer,
    ask_about_delays,
    ask_about_flight,
    delays_in_sql,
    instant_text,
    judge_delays,
)
from weir.demo.report import DemoReport, MergeTotals
from weir.demo.verdict import compare
from weir.spark.pipeline.checkpoint import CheckpointState, read_checkpoint
from weir.table.table import Table

__all__ = ["run_spark_demo"]

_MOST_FILE_ROWS = 25_000
_LEAST_FILES = 8
_FILES_AHEAD = 1
"""Files that are not visible yet, at any time. Were it more, each would wait for those before it."""
_KILL_PATIENCE = 20.0
"""Seconds to wait for a driver to begin with a file before it is killed in any case."""
_QUESTIONS = 6
_LOOK_SECONDS = 0.002

_Message = dict[str, Any]


def run_spark_demo(options: DemoOptions, *, to_standard_error: bool = False) -> DemoReport:
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
        If a driver fails by itself.
    """
    started = time.monotonic()
    with location(options) as directory, Display(to_standard_error=to_standard_error) as display:
        table = create_table(directory, options)
        demo = _SparkDemo(table, directory, options, display)
        report = replace(demo.run(), seconds=time.monotonic() - started)
        tell_conclusion(report, display)
        if options.directory is not None or options.keep:
            display.say(f"The table is in {report.uri}")
    return report


class _SparkDemo:
    def __init__(self, table: Table, directory: Path, options: DemoOptions, display: Display) -> None:
        self._table = table
        self._flights = options.flights
        self._display = display
        self._file_rows = min(max(options.about_events // _LEAST_FILES, 1), _MOST_FILE_ROWS)
        files = -(-options.about_events // self._file_rows)
        self._kill_after = int(files * random.Random(options.seed).uniform(0.35, 0.6))
        self._as_spark_reads = directory / "as-spark-reads-it.parquet"
        self._landing = directory / "landing"
        self._task = DriverTask(table.uri, str(self._landing), str(directory / "driver"), fsync=options.fsync)
        self._visible_files = 0
        self._last_question = 1
        self._doing = "starting"
        self._finishing: list[str] = []
        self._asked: list[int] = []
        self._freshness = Freshness()
        self._answers: list[Answer] = []
        self._merged = MergeTotals()
        self._crash: CrashCheck | None = None

    def run(self) -> DemoReport:
        started = time.monotonic()
        # The driver may read it before the first file lands.
        self._landing.mkdir(exist_ok=True)
        with self._driver(self._kill_after) as driver:
            self._display.say(f"Spark driver {driver.pid} starts")
            # That takes a while; meanwhile the right answer is computed here, and files land.
            expected = expected_flights(self._flights)
            events = load_events(self._flights, self._file_rows)
            landing = Landing(self._landing, events)
            self._display.say(
                f"{events.facts.num_rows:,} flights make {events.num_events:,} events, "
                f"which land in {events.num_batches} files for {NUM_SHARDS} shards"
            )
            streamed = self._follow(driver, events, expected, landing)
            killed = driver.was_killed()
        if killed:
            self._check_crash(driver.pid, events)
            with self._driver(None) as second:
                self._display.say(f"Spark driver {second.pid} goes on from the checkpoint")
                streamed = self._follow(second, events, expected, landing)
                second.was_killed()
        return self._report(events, expected, streamed - started)

    def _driver(self, kill_after: int | None) -> ListenedProcess[_Message]:
        def reached(message: _Message) -> bool:
            if kill_after is None or message["kind"] != "batch" or message["files"] <= kill_after:
                return False
            # Who hears of this one lets the next file land: it dies while it is writing that.
            give_up = time.monotonic() + _KILL_PATIENCE
            while not read_checkpoint(self._task.checkpoint).is_under_way and time.monotonic() < give_up:
                time.sleep(_LOOK_SECONDS)
            return True

        self._freshness.begin()
        return ListenedProcess(
            self._task.command(),
            json.loads,
            reached if kill_after is not None else None,
            whole_group=True,
        )

    def _follow(
        self,
        driver: ListenedProcess[_Message],
        events: FlightEvents,
        expected: ExpectedFlights,
        landing: Landing,
    ) -> float:
        """Listen to a driver until it ends; return when all events were visible."""
        between_questions = max(events.num_batches // (_QUESTIONS + 1), 1)
        streamed = time.monotonic()
        finishing = False
        patience = Patience(
            f"Spark driver {driver.pid}",
            lambda: self._standing(events, read_checkpoint(self._task.checkpoint)),
        )
        self._doing = "starting"
        while True:
            landing.land_up_to(self._visible_files - 1 + _FILES_AHEAD)
            landing.prepare_up_to(self._visible_files + _FILES_AHEAD)
            patience.look((self._doing, self._visible_files, len(self._finishing)))
            try:
                heard = driver.next(seconds=0.5)
            except EOFError:
                return streamed
            if heard is None:
                continue
            self._hear(heard, events, expected)
            if finishing:
                self._finishing.append(heard.message["kind"])
            elif heard.message["kind"] not in ("batch", "started"):
                continue
            elif self._visible_files == events.num_batches:
                streamed, finishing = heard.at, True
                self._doing = "merging what is left"
                self._display.move(1.0, f"{events.num_events:,} events are visible; {self._doing}")
                driver.say(json.dumps({"finish": str(self._as_spark_reads)}))
            elif self._visible_files >= self._last_question + between_questions:
                self._last_question = self._visible_files
                self._ask(driver, events, expected)

    def _standing(self, events: FlightEvents, checkpoint: CheckpointState) -> str:
        end = events.end_of(self._visible_files - 1)
        return (
            f"{self._doing}, {end:,} of {events.num_events:,} events are visible, "
            f"{self._visible_files} of {events.num_batches} files; "
            f"of the checkpoint: {checkpoint.describe()}"
        )

    def _hear(self, heard: Heard[_Message], events: FlightEvents, expected: ExpectedFlights) -> None:
        message = heard.message
        if message["kind"] == "batch":
            self._visible_files = message["files"]
            end = events.end_of(self._visible_files - 1)
            reader = self._read(events, end - 1)
            self._freshness.note(message["waits"], message["parts"], reader, at_start=message["at_start"])
            self._display.move(
                end / events.num_events,
                f"{instant_text(int(events.time[end - 1]))}  {end:,} events  "
                f"{message['rows'] / message['seconds']:,.0f} rows/s  {self._freshness.latency().describe()}",
            )
        elif message["kind"] == "answer":
            now = self._asked.pop(0)
            found = dict(message["rows"])
            answer = judge_delays(found, expected, now, message["seconds"], "in Spark SQL, ")
            self._answers.append(answer)
            tell_answer(answer, self._display)
        elif message["kind"] == "service":
            self._hear_of_service(message)
        elif message["kind"] == "starting":
            self._doing = f"starting {message['what']}"
        elif message["kind"] == "started":
            self._doing = "streaming"
            # A driver that was killed may have made more visible than it had the time to say.
            self._visible_files = max(self._visible_files, message["files"])
            self._display.say(f"Spark {message['spark']} streams")

    def _hear_of_service(self, message: _Message) -> None:
        if message["event"] == "pipeline.service_failed":
            self._display.say(f"{message['service']} failed, to be tried again: {message['error']}", "yellow")
        elif message["service"] == "merge" and message["generations"]:
            self._merged = self._merged.with_merge(
                message["generations"], message["rows_upserted"], message["rows_deleted"]
            )
            self._display.say(
                f"merged {message['generations']} generations on Spark: "
                f"{message['rows_upserted']:,} rows upserted, {message['rows_deleted']:,} deleted "
                f"({message['seconds']:.1f} s)"
            )

    def _ask(
        self, driver: ListenedProcess[_Message], events: FlightEvents, expected: ExpectedFlights
    ) -> None:
        end = events.end_of(self._visible_files - 1) - 1
        now = int(events.time[end])
        # The driver answers when it has time; meanwhile more may have come in, of later instants.
        self._asked.append(now)
        driver.say(json.dumps({"ask": delays_in_sql(now)}))
        delays = ask_about_delays(self._table, expected, now)
        flight = delays.flight
        answers = [delays]
        if flight is None:
            departed = np.flatnonzero(events.kind[:end] == DEPARTED)
            if len(departed):
                flight = events.facts.column("id")[int(events.flight[departed[-1]])].as_py()
        if flight is not None:
            answers.append(ask_about_flight(self._table, expected, flight))
        for answer in answers:
            self._answers.append(answer)
            tell_answer(answer, self._display)

    def _check_crash(self, pid: int, events: FlightEvents) -> None:
        # Its last request will not be answered.
        self._asked.clear()
        self._display.say(
            f"Spark driver {pid} was killed with SIGKILL, Java and all, while it was writing", style="bold"
        )
        self._crash = check = check_after_crash(
            self._table, events, self._visible_files - 1, in_flight=_FILES_AHEAD
        )
        tell_crash(check, self._display)

    def _read(self, events: FlightEvents, event: int) -> float:
        """Return how long a strong reader takes to read the flight of an event."""
        began = time.monotonic()
        self._table.get([events.facts.column("id")[int(events.flight[event])].as_py()])
        return time.monotonic() - began

    def _report(self, events: FlightEvents, expected: ExpectedFlights, stream_seconds: float) -> DemoReport:
        base: pa.Table = lance.dataset(self._table.uri).to_table()
        on_spark = pq.read_table(self._as_spark_reads).cast(FLIGHT_SCHEMA)
        return DemoReport(
            uri=self._table.uri,
            flights=events.facts.num_rows,
            events=events.num_events,
            stream_seconds=stream_seconds,
            seconds=0.0,
            latency=self._freshness.latency(),
            at_starts=self._freshness.at_starts(),
            parts=self._freshness.parts(),
            crash=self._crash,
            answers=tuple(self._answers),
            merged_in_background=self._merged,
            verdicts=(
                compare("the table as Weir reads it", self._table.scan().to_table(), expected.rows),
                compare("the table as Spark reads it", on_spark, expected.rows),
                compare("the Lance table alone", base, expected.rows),
            ),
        )
