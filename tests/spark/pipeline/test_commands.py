"""`weir pipeline` as a process: stopped with SIGTERM, killed with SIGKILL, and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import lance
import pytest
from tests.spark.pipeline.feed import TRANSFORM, Feed, rows_of
from tests.spark.pipeline.progress import until

from weir.cli.main import main
from weir.errors import TableNotFoundError
from weir.spark.pipeline.checkpoint import read_checkpoint

pytestmark = pytest.mark.timeout(1800)

FILE = """
[source]
format = "json"
path = "{landing}"
schema = "id BIGINT, amount BIGINT"
options = {{ maxFilesPerTrigger = 1 }}
in_order = true

[transform]
sql = \"\"\"{transform}\"\"\"

[table]
uri = "{table}"
schema = "id: int64!, doubled: int64"
primary_key = "id"
shard_by = "bucket(id, 2)"
fsync = false

[stream]
checkpoint = "{directory}/checkpoint"

[write]
flush = true

[services]
merge = "3s"
index = "off"
compact = "10s"
collect = "10s"
grace = "5m"

[metrics]
every = "1s"
file = "{directory}/metrics.jsonl"

[spark]
master = "local[2]"
[spark.settings]
"spark.ui.enabled" = false
"spark.driver.host" = "127.0.0.1"
"spark.driver.bindAddress" = "127.0.0.1"
"spark.local.dir" = "{directory}/spark"
"spark.sql.warehouse.dir" = "{directory}/warehouse"
"spark.sql.shuffle.partitions" = 2
"""


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(tmp_path / "landing")


@pytest.fixture
def file(tmp_path: Path, feed: Feed) -> Path:
    path = tmp_path / "pipeline.toml"
    text = FILE.format(landing=feed.directory, transform=TRANSFORM, table=tmp_path / "t", directory=tmp_path)
    path.write_text(text, encoding="utf-8")
    return path


class Running:
    """The program, in a session of its own, so that its Java can be killed with it."""

    def __init__(self, file: Path) -> None:
        command = [sys.executable, "-m", "weir.cli.main", "pipeline", "run", str(file), "--json"]
        self.complaints = (file.parent / "complaints").open("w+b")
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self.complaints, text=True, start_new_session=True
        )

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.complaints.close()

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def told(self) -> Iterator[dict[str, object]]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield json.loads(line)

    def until_rows(self, rows: dict[int, int], table: Path) -> None:
        def there() -> bool:
            assert self.process.poll() is None, self.said()
            with suppress(TableNotFoundError):
                return rows_of(table) == rows
            return False

        def stands() -> str:
            with suppress(TableNotFoundError):
                return (
                    f"{read_checkpoint(table.parent / 'checkpoint').describe()}; {len(rows_of(table))} rows"
                )
            return f"there is no table; {self.said()}"

        until(there, stands)

    def said(self) -> str:
        self.complaints.seek(0)
        return self.complaints.read().decode()


def java_of(program: int) -> int:
    """Return the process of Java that a program starts, when there is one."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == program and b"java" in (process / "cmdline").read_bytes().split(b"\0")[0]:
                    return int(process.name)
        time.sleep(0.05)
    raise AssertionError("there is no Java")


@pytest.mark.long
def test_a_pipeline_is_killed_and_started_again_and_stopped(file: Path, feed: Feed, tmp_path: Path) -> None:
    table = tmp_path / "t"
    feed.land(files=1)
    with Running(file) as first:
        first.until_rows(feed.rows, table)
        # The next micro-batches are under way when it dies, with merges beside them.
        feed.land(files=2)
        next(sample for sample in first.told() if "sample" in sample)
        first.kill()
        assert first.process.returncode == -signal.SIGKILL
    feed.land(files=1)
    with Running(file) as second:
        second.until_rows(feed.rows, table)
        second.process.send_signal(signal.SIGTERM)
        *samples, last = second.told()
        assert second.process.wait(300) == 0, second.said()
        assert "Traceback" not in second.said()
    assert all("sample" in sample for sample in samples)
    summary = last["summary"]
    assert isinstance(summary, dict)
    assert summary["unfinished"] == []
    # At most what was on its way is taken in again.
    assert 200 <= summary["rows"] <= 800
    assert rows_of(table) == feed.rows
    assert lance.dataset(str(table)).count_rows() > 0
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert {"rows", "freshness_p50", "unmerged_generations"} <= json.loads(lines[-1]).keys()
    # Nothing of a stopped pipeline keeps the table from whoever comes next.
    assert main(["recover", str(table)]) == 0
    assert main(["merge", str(table)]) == 0
    assert lance.dataset(str(table)).count_rows() == len(feed.rows)


def test_a_pipeline_whose_java_is_killed_says_so(file: Path, feed: Feed, tmp_path: Path) -> None:
    feed.land(files=1)
    with Running(file) as running:
        running.until_rows(feed.rows, tmp_path / "t")
        os.kill(java_of(running.process.pid), signal.SIGKILL)
        assert running.process.wait(300) == 2
        # PySpark has complaints of its own.
        said = running.said().splitlines()[-1]
    assert said.startswith("error: Spark does not answer any more: ")
    assert "started again, it goes on from its checkpoint" in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_pipeline_at_once_while_spark_starts(
    file: Path, tmp_path: Path, number: signal.Signals
) -> None:
    with Running(file) as running:
        java_of(running.process.pid)
        running.process.send_signal(number)
        assert running.process.wait(60) == 128 + number
        assert "Traceback" not in running.said()
    assert not (tmp_path / "t").exists()


def test_a_check_starts_nothing(
    file: Path, feed: Feed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    feed.land(files=1)
    assert main(["pipeline", "check", str(file), "--no-spark"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 't'}: the table will be created\n"
    checked = subprocess.run(
        [sys.executable, "-m", "weir.cli.main", "pipeline", "check", str(file), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
    found = json.loads(checked.stdout)
    assert found["columns"] == {"id": "bigint", "doubled": "bigint", "_op": "string"}
    assert not (tmp_path / "t").exists()
    assert not (tmp_path / "checkpoint").exists()


def test_what_is_wrong_is_one_line_and_exit_code_2(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(file.read_text().replace("[services]", "[sevices]"))
    for command in (["check", "--no-spark"], ["check"], ["run"]):
        assert main(["pipeline", command[0], str(file), *command[1:]]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.startswith("error: unknown table or key 'sevices' [pipeline.toml: sevices].")
        assert said.err.count("\n") == 1
    assert main(["pipeline", "run", str(tmp_path / "none.toml")]) == 2
    assert "the file cannot be read" in capsys.readouterr().err


def test_without_java_the_program_says_what_to_install(
    file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert main(["pipeline", "run", str(file)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: Spark needs Java 17 or newer")
    assert "apt-get install openjdk-17-jre-headless" in said
