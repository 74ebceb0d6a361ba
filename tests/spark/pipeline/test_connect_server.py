"""A Spark Connect server that dies under a pipeline: a real server, killed with SIGKILL."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest
from tests.spark.pipeline.feed import TRANSFORM, Feed, rows_of
from tests.spark.pipeline.progress import until
from tests.spark.pipeline.test_commands import FILE, Running

from weir.demo.patience import load
from weir.errors import TableNotFoundError

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@contextmanager
def connect_server(scratch: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start a server, and yield it with its port when it listens."""
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(scratch / "spark"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    home = Path(pyspark.__file__).parent
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYSPARK_PYTHON": sys.executable}
    with (scratch / "server.log").open("wb") as log:
        server = subprocess.Popen(
            command, stdout=log, stderr=log, env=environment, start_new_session=True, cwd=scratch
        )

    def listens() -> bool:
        assert server.poll() is None, (scratch / "server.log").read_text()
        with socket.socket() as asking:
            return asking.connect_ex(("127.0.0.1", port)) == 0

    try:
        until(listens, lambda: (scratch / "server.log").read_text())
        yield server, port
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
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
