"""The Spark driver of the demo: runs a pipeline over the files of flights, and answers SQL meanwhile.

It is started by :mod:`weir.demo.on_spark`, and killed by it. It writes one JSON object on each line of
standard output, and reads one from each line of standard input:

==============================================  ====================================================
``{"kind": "starting", "what": "Spark"}``        what happens until then
``{"kind": "started", "files": 17, ...}``       the pipeline runs; a driver before it has taken 17 files in
``{"kind": "batch", "files": 18, ...}``         a micro-batch is over: 18 files are visible to a strong reader
                                                after so many seconds, and what these went into
``{"kind": "service", "event": ..., ...}``      a service has run, or failed
``{"kind": "answer", "rows": ..., ...}``        what a question was answered with
``{"kind": "ended", "rows": 1000, ...}``        all is merged, the last thing it says
``{"ask": "SELECT ..."}``                       to be asked of the view ``flights``
``{"finish": "/some/file"}``                    end, merge, and leave the table as Spark reads it there
==============================================  ====================================================
"""

from __future__ import annotations

import json
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from weir.demo.flights import FLIGHT_SCHEMA
from weir.demo.landing import CANCELLED
from weir.spark.pipeline import (
    FormatSource,
    Metrics,
    Pipeline,
    RunningPipeline,
    Services,
    SessionSettings,
    TargetTable,
)
from weir.spark.pipeline.checkpoint import read_checkpoint
from weir.spark.pipeline.own_session import own_session
from weir.spark.pipeline.stream import MicroBatches

__all__ = ["DriverTask", "main"]

_MEMTABLE_ROWS = 20_000
_LOOK_EVERY = timedelta(milliseconds=20)
_KINDS = {"string": "STRING", "int32": "INT", "timestamp[us, tz=UTC]": "TIMESTAMP"}


@dataclass(frozen=True, slots=True)
class DriverTask:
    """What a driver is to do.

    Parameters
    ----------
    uri : str
        The table.
    landing : str
        Where files of events land.
    scratch : str
        Where the checkpoint, and what Spark needs for itself, may be.
    fsync : bool
        Whether a micro-batch that is over is on the disk.
    """

    uri: str
    landing: str
    scratch: str
    fsync: bool = True

    def command(self) -> list[str]:
        """Return the command that starts a process with this task."""
        return [sys.executable, "-m", "weir.demo.driver", json.dumps(asdict(self))]

    @property
    def checkpoint(self) -> Path:
        """Where Spark notes how far it has got."""
        return Path(self.scratch, "checkpoint")

    def pipeline(self) -> Pipeline:
        """Return the pipeline: files of events in, one in most micro-batches, and services beside them.

        The first micro-batch after a crash may take two, so they are kept in order.
        """
        names = ", ".join(FLIGHT_SCHEMA.names)
        columns = ", ".join(f"{field.name} {_KINDS[str(field.type)]}" for field in FLIGHT_SCHEMA)
        return Pipeline(
            name="flights",
            source=FormatSource(
                "parquet",
                {"maxFilesPerTrigger": "1"},
                self.landing,
                f"{columns}, {CANCELLED} BOOLEAN",
                in_order=True,
            ),
            transform=f"SELECT {names}, IF({CANCELLED}, 'delete', 'upsert') AS _op FROM source",
            table=TargetTable(self.uri, fsync=self.fsync),
            checkpoint=str(self.checkpoint),
            write={"max_memtable_rows": str(_MEMTABLE_ROWS)},
            services=Services(
                merge=timedelta(seconds=8),
                index=None,
                compact=timedelta(seconds=45),
                collect=timedelta(seconds=60),
            ),
            metrics=Metrics(log=False),
        )

    def session(self) -> SessionSettings:
        """Return how Spark runs: on two cores of this machine, and leaving nothing elsewhere on it."""
        return SessionSettings(
            "local[2]",
            {
                "spark.ui.enabled": "false",
                # It lives for a minute: what the second compiler of Java takes would come back later.
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.local.dir": str(Path(self.scratch, "spark")),
                "spark.sql.warehouse.dir": str(Path(self.scratch, "warehouse")),
                "spark.sql.session.timeZone": "UTC",
                "spark.sql.shuffle.partitions": "2",
                "spark.sql.streaming.minBatchesToRetain": "10",
            },
        )


def run_driver(task: DriverTask) -> None:
    """Run the pipeline until it is asked to finish."""
    commands: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(commands,), daemon=True).start()
    _tell_of_services()
    _tell({"kind": "starting", "what": "Spark"})
    with own_session(task.session(), "weir demo") as spark:
        _tell({"kind": "starting", "what": "the pipeline"})
        before = read_checkpoint(task.checkpoint)
        with task.pipeline().start(spark) as running, ThreadPoolExecutor(1) as answering:
            _tell({"kind": "started", "spark": spark.version, "files": _files(before.ends)})
            batches = _Batches(MicroBatches(running.query))
            answers: list[Future[None]] = []
            while not running.wait(_LOOK_EVERY):
                batches.tell()
                while answers and answers[0].done():
                    answers.pop(0).result()
                try:
                    command = commands.get_nowait()
                except queue.Empty:
                    continue
                if "finish" in command:
                    wait(answers)
                    _finish(running, spark, Path(command["finish"]), batches)
                    return
                # An answer may take longer than a micro-batch.
                answers.append(answering.submit(_answer, spark, task.uri, command["ask"]))


def _finish(running: RunningPipeline, spark: SparkSession, path: Path, batches: _Batches) -> None:
    summary = running.stop(closing_round=True)
    batches.tell()
    _tell({"kind": "starting", "what": "a read of the table by Spark"})
    uri = running.table.uri
    pq.write_table(_flights(spark, uri).select(*FLIGHT_SCHEMA.names).toArrow(), path)
    runs = {name: state.runs for name, state in summary.services.items()}
    _tell({"kind": "ended", "rows": summary.rows, "services": runs})


def _answer(spark: SparkSession, uri: str, sql: str) -> None:
    began = time.monotonic()
    _flights(spark, uri).createOrReplaceTempView("flights")
    rows = [list(row) for row in spark.sql(sql).collect()]
    _tell({"kind": "answer", "rows": rows, "seconds": time.monotonic() - began})


def _flights(spark: SparkSession, uri: str) -> Any:
    return spark.read.format("weir").load(uri)


class _Batches:
    """Reports micro-batches as they end."""

    def __init__(self, batches: MicroBatches) -> None:
        self._batches = batches
        self._first_ended: float | None = None

    def tell(self) -> None:
        for batch in self._batches.ended():
            if self._first_ended is None:
                self._first_ended = batch.ended
            _tell(
                {
                    "kind": "batch",
                    "files": _files(batch.ends),
                    "rows": batch.rows,
                    "seconds": round(batch.seconds, 4),
                    "waits": [round(wait, 4) for wait in sorted(set(batch.waits))],
                    "parts": {name: round(seconds, 4) for name, seconds in batch.parts.items()},
                    "at_start": min(batch.arrivals) <= self._first_ended,
                }
            )


def _files(ends: Sequence[Any]) -> int:
    """Return how many files a stream has taken in: each is an entry of the source's log, from 0."""
    return int(ends[0]["logOffset"]) + 1 if ends else 0


class _Services(logging.Handler):
    """Reports services as they appear in the log."""

    def emit(self, record: logging.LogRecord) -> None:
        fields = getattr(record, "event_fields", {})
        if fields.get("event") in ("pipeline.service_ran", "pipeline.service_failed"):
            _tell({"kind": "service", **fields})


def _tell_of_services() -> None:
    logger = logging.getLogger("weir.spark.pipeline")
    logger.setLevel(logging.INFO)
    logger.addHandler(_Services())


_one_line = threading.Lock()


def _tell(message: dict[str, Any]) -> None:
    with _one_line:
        print(json.dumps(message), flush=True)


def _listen(commands: queue.SimpleQueue[dict[str, Any]]) -> None:
    for line in sys.stdin:
        commands.put(json.loads(line))
    # The process that started this is gone.
    os._exit(1)


def main(arguments: Sequence[str]) -> None:
    """Run the driver; its one argument is a :class:`DriverTask` as JSON."""
    run_driver(DriverTask(**json.loads(arguments[0])))


if __name__ == "__main__":
    main(sys.argv[1:])
    # Threads of Arrow may outlive the end of Python, and would abort a process that has done its work.
    sys.stdout.flush()
    os._exit(0)
