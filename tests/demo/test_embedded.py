"""The demo without Spark as a whole, on a few thousand flights: real processes, a real SIGKILL."""

from __future__ import annotations

import json
from pathlib import Path

import lance
import pytest

import weir
from weir.cli.main import main
from weir.demo import embedded, source
from weir.demo.embedded import run_embedded_demo
from weir.demo.expected import ExpectedFlights, Value, expected_flights
from weir.demo.options import DemoOptions
from weir.demo.process import ListenedProcess
from weir.demo.source import flights_archive
from weir.demo.writer import Acknowledgement, WriterTask
from weir.errors import MissingDependencyError, TableExistsError, WriterError


def test_the_demo_survives_its_crash_and_finds_no_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = run_embedded_demo(DemoOptions(directory=tmp_path, flights=2_000, fsync=False))
    said = capsys.readouterr().out
    assert report.passed
    assert report.crash is not None
    assert report.crash.acknowledged_rows > 0
    assert report.crash.passed
    assert report.answers
    assert all(verdict.identical and verdict.rows > 1_900 for verdict in report.verdicts)
    assert "was killed with SIGKILL" in said
    assert "VERDICT: identical" in said
    # It is merged, and every shard has been claimed twice.
    status = weir.open(tmp_path / "flights").status()
    assert (status.unmerged_rows, status.unflushed_rows) == (0, 0)
    assert [shard.epoch for shard in status.shards] == [2] * 4
    assert lance.dataset(str(tmp_path / "flights")).count_rows() == report.verdicts[0].rows
    with pytest.raises(TableExistsError):
        run_embedded_demo(DemoOptions(directory=tmp_path, flights=10))


@pytest.mark.long
def test_a_difference_is_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def tampered(flights: int | None) -> ExpectedFlights:
        rows: dict[str, tuple[Value, ...]] = dict(expected_flights(flights).rows)
        del rows["2013-01-01/UA1545/EWR"]
        return ExpectedFlights(rows)

    monkeypatch.setattr(embedded, "expected_flights", tampered)
    assert main(["demo", "--embedded", "--flights", "600", "--no-fsync", "--json"]) == 1
    captured = capsys.readouterr()
    said = json.loads(captured.out)
    assert not said["passed"]
    assert [verdict["differences"] for verdict in said["verdicts"]] == [
        ["unexpected row 2013-01-01/UA1545/EWR"]
    ] * 2
    assert "VERDICT: DIFFERENT" in captured.err
    assert not Path(said["uri"]).exists()


def test_a_writer_that_fails_by_itself_is_an_error(tmp_path: Path) -> None:
    task = WriterTask(str(tmp_path / "none"), flights=10, batch_rows=10, memtable_rows=10)
    with ListenedProcess(task.command(), Acknowledgement.from_line) as writer:
        with pytest.raises(EOFError):
            writer.next(seconds=60)
        with pytest.raises(WriterError, match="there is no table"):
            writer.was_killed()


def test_without_the_flights_the_demo_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(source, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'weir-lance\[demo\]'"):
        flights_archive()
    assert main(["demo", "--embedded"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: the demo needs the flights")
    assert captured.err.count("\n") == 1
