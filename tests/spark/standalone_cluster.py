"""A cluster of two workers on hosts of their own: Spark never runs a task twice at once on one host."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
from tests.spark.connect_server import free_port
from tests.spark.pipeline.progress import until

__all__ = ["standalone_cluster"]

_HOSTS = ("127.0.0.1", "127.0.0.2")


@contextmanager
def standalone_cluster(scratch: Path) -> Iterator[str]:
    """Start a master and two workers with one core each, and yield the master when both are known to it."""
    port = free_port()
    master = f"spark://{_HOSTS[0]}:{port}"
    with ExitStack() as ending:
        arguments = ["--host", _HOSTS[0], "--port", str(port), "--webui-port", "0"]
        log = ending.enter_context(_process(scratch, "master.Master", "master", arguments))
        until(lambda: "I have been elected leader" in log.read_text(), log.read_text)
        for host in _HOSTS:
            arguments = ["--host", host, "--cores", "1", "--memory", "600m", "--webui-port", "0"]
            arguments += ["--work-dir", str(scratch / host), master]
            ending.enter_context(_process(scratch, "worker.Worker", host, arguments))
        until(lambda: log.read_text().count("Registering worker") == len(_HOSTS), log.read_text)
        yield master


@contextmanager
def _process(scratch: Path, kind: str, name: str, arguments: list[str]) -> Iterator[Path]:
    log = scratch / f"{name}.log"
    environment = {
        **os.environ,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_DIRS": str(scratch / "local"),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYSPARK_PYTHON": sys.executable,
    }
    # It would be the address of both.
    environment.pop("SPARK_LOCAL_IP", None)
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class")]
    with log.open("wb") as written:
        process = subprocess.Popen(
            [*command, f"org.apache.spark.deploy.{kind}", *arguments],
            stdout=written,
            stderr=written,
            env=environment,
            start_new_session=True,
            cwd=scratch,
        )
    try:
        yield log
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
