"""A Spark Connect server that is gone: a real server, killed with SIGKILL or stopped with SIGSTOP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.spark.connect_server import connect_server
from tests.spark.pipeline.feed import TRANSFORM, Feed, rows_of
from tests.spark.pipeline.progress import until
from tests.spark.pipeline.test_commands import FILE, Running

from weir.demo.patience import load
from weir.errors import TableNotFoundError

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

GONE = [
    pytest.param(signal.SIGKILL, id="killed"),
    pytest.param(signal.SIGSTOP, id="stopped"),
]

CLIENT = """
import json, os, signal, sys, time
from datetime import timedelta
from pathlib import Path
import pyarrow as pa
import weir
from tests.spark.pipeline.feed import Feed
from weir.spark import SparkRunner
from weir.spark.pipeline import FormatSource, Pipeline, TargetTable
from weir.spark.session import start_session
from weir.spark.silence import on_thread

url, place, server, how = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
spark = start_session(url, "test")
weir.spark.register(spark)

def pipeline(name):
    feed = Feed(place / name / "landing")
    feed.land(files=1)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("amount", pa.int64())])
    target = TargetTable(str(place / name / "t"), schema=schema, primary_key=("id",), fsync=False)
    checkpoint = str(place / name / "checkpoint")
    return Pipeline(source=FormatSource(**feed.source()), table=target, checkpoint=checkpoint)

def sleep(seconds):
    time.sleep(seconds)
    return seconds

running = pipeline("runs").start(spark)
assert list(SparkRunner(spark).run(sleep, [0.1, 0.2]))
calls = {"tasks": on_thread(lambda: list(SparkRunner(spark).run(sleep, [90.0, 91.0])))}
time.sleep(5.0)
os.killpg(server, how)
began = time.monotonic()
calls["wait"] = on_thread(running.wait)
calls["start"] = on_thread(lambda: pipeline("later").start(spark))
calls["session"] = on_thread(lambda: start_session(url, "later"))
for name, call in calls.items():
    error = call.exception(600)
    print(json.dumps([name, type(error).__name__, str(error), time.monotonic() - began]), flush=True)
os._exit(0)
"""
"""All that waits for a server and is not Spark's own, at once: each is to end with an error of Weir's."""


@pytest.mark.parametrize("how", GONE)
def test_a_pipeline_whose_server_is_gone_ends_with_an_error_that_says_so(
    tmp_path: Path, how: signal.Signals
) -> None:
    feed = Feed(tmp_path / "landing")
    feed.land(files=1)
    file = tmp_path / "pipeline.toml"
    table = tmp_path / "t"
    with connect_server(tmp_path) as (server, port):
        text = FILE.format(landing=feed.directory, transform=TRANSFORM, table=table, directory=tmp_path)
        head, _, _ = text.partition("[spark]")
        file.write_text(f'{head}[spark]\nmaster = "sc://127.0.0.1:{port}"\n', encoding="utf-8")

        def there() -> bool:
            assert running.process.poll() is None, running.said()
            try:
                return len(rows_of(table)) > 0
            except TableNotFoundError:
                return False

        with Running(file) as running:
            until(there, running.said)
            os.killpg(server.pid, how)
            began = time.monotonic()
            # A minute of silence, and what services that have begun are given.
            code = running.process.wait(150 * load())
            took = time.monotonic() - began
            said = running.said().splitlines()[-1]
    assert code == 2, said
    assert said.startswith("error: Spark does not answer any more: it has said nothing for 60 s")
    assert "its server cannot be reached" in said
    assert "started again, it goes on from its checkpoint" in said
    assert took > 30


@pytest.mark.parametrize("how", GONE)
def test_nobody_waits_for_a_server_that_is_gone(tmp_path: Path, how: signal.Signals) -> None:
    with connect_server(tmp_path) as (server, port):
        arguments = [f"sc://127.0.0.1:{port}", str(tmp_path), str(server.pid), str(int(how))]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", CLIENT, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300 * load(),
        )
    told = {name: rest for name, *rest in map(json.loads, done.stdout.splitlines())}
    assert set(told) == {"tasks", "wait", "start", "session"}, done.stderr
    assert {name: kind for name, (kind, *_) in told.items()} == {
        "tasks": "RunnerError",
        "wait": "PipelineError",
        "start": "RunnerError",
        "session": "RunnerError",
    }, told
    for name in ("tasks", "wait", "start"):
        assert "Spark does not answer any more: it has said nothing for 60 s" in told[name][1]
    assert "its server does not answer, or not within 60 s" in told["session"][1]
