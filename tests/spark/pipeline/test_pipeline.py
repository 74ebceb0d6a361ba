"""Whole pipelines in a session: rows against a dict, services beside the stream, stopping, failing."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pytest
from pyspark.sql import SparkSession
from tests.spark.pipeline.feed import TRANSFORM, Feed, rows_of, rows_of_table
from tests.spark.pipeline.progress import until
from tests.storage.s3 import S3Endpoint, s3_endpoint

import weir
from weir.errors import InputError, OptionError, PipelineError, SchemaError, WeirError
from weir.schema.text import parse_schema
from weir.spark.pipeline import (
    AVAILABLE_NOW,
    FormatSource,
    Metrics,
    MetricsSample,
    Pipeline,
    RunningPipeline,
    Services,
    TargetTable,
)

__all__ = ["s3_endpoint"]

# A micro-batch takes long where many others compute.
pytestmark = [pytest.mark.everywhere, pytest.mark.timeout(1800)]

OFF = Services(merge=None, index=None, compact=None, collect=None)
AT_THE_END = Services(
    merge=timedelta(days=1), index=timedelta(days=1), compact=timedelta(days=1), collect=timedelta(days=1)
)
"""Services that run once, when the stream has ended, however long that takes."""
OFTEN = timedelta(milliseconds=300)
EVERY_SECOND = timedelta(seconds=1)


def target(tmp_path: Path) -> TargetTable:
    return TargetTable(
        str(tmp_path / "t"),
        {},
        parse_schema("id: int64!, doubled: int64"),
        ("id",),
        (weir.bucket("id", 2),),
        fsync=False,
    )


def pipeline(feed: Feed, tmp_path: Path, **changes: Any) -> Pipeline:
    values: dict[str, Any] = {
        "source": FormatSource(**feed.source()),
        "transform": TRANSFORM,
        "table": target(tmp_path),
        "checkpoint": str(tmp_path / "checkpoint"),
        "services": OFF,
        "metrics": Metrics(every=EVERY_SECOND, log=False),
    }
    return Pipeline(**{**values, **changes})


def test_what_is_there_is_taken_and_the_services_close_the_run(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path / "landing")
    feed.land(files=2)
    metrics = Metrics(every=EVERY_SECOND, file=str(tmp_path / "metrics.jsonl"))
    once = pipeline(
        feed, tmp_path, trigger=AVAILABLE_NOW, services=replace(AT_THE_END, index=None), metrics=metrics
    )
    samples: list[MetricsSample] = []
    summary = once.run(spark, on_sample=samples.append)
    assert rows_of(tmp_path / "t") == feed.rows
    assert (summary.batches, summary.rows, summary.unfinished) == (2, 400, ())
    assert {name: state.runs for name, state in summary.services.items()} == {
        "recover": 1,
        "merge": 1,
        "compact": 1,
        "collect": 1,
    }
    assert lance.dataset(str(tmp_path / "t")).count_rows() == len(feed.rows)
    assert samples[-1].total_rows == 400
    assert samples[-1].unmerged_generations == 0
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["rows"] for line in lines] == [sample.rows for sample in samples]
    assert sum(line["rows"] for line in lines) == 400
    # The next run goes on where this one has ended.
    feed.land(files=1)
    assert once.run(spark).rows == 200
    assert rows_of(tmp_path / "t") == feed.rows


def test_table_and_services_may_be_on_an_object_store(
    spark: SparkSession, s3_endpoint: S3Endpoint, tmp_path: Path
) -> None:
    feed = Feed(tmp_path / "landing")
    feed.land(files=2)
    described = replace(target(tmp_path), uri=s3_endpoint.new_uri(), storage_options=s3_endpoint.options)
    once = pipeline(
        feed,
        tmp_path,
        table=described,
        trigger=AVAILABLE_NOW,
        services=replace(AT_THE_END, horizon=timedelta(0)),
    )
    assert not once.check(spark).exists
    summary = once.run(spark)
    assert (summary.batches, summary.rows, summary.unfinished) == (2, 400, ())
    assert all(state.runs == 1 for state in summary.services.values()), summary.services
    assert once.check(spark).exists
    table = weir.open(described.uri, storage_options=s3_endpoint.options)
    assert rows_of_table(table) == feed.rows
    assert table.status().unmerged_rows == 0
    assert not table.maintenance.verify().findings


def test_rows_may_be_clustered_by_shard(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    feed = Feed(tmp_path / "landing")
    feed.land(files=2)
    for clustered in (False, True):
        once = pipeline(feed, tmp_path, trigger=AVAILABLE_NOW, cluster_by_shard=clustered)
        with once.start(spark) as running:
            assert running.wait(timedelta(minutes=10))
            running.query.explain()
        assert ("Exchange " in capsys.readouterr().out) == clustered
        assert rows_of(tmp_path / "t") == feed.rows
        feed.land(files=1)


def test_services_run_beside_the_stream_and_a_stop_finishes_the_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed = Feed(tmp_path / "landing")
    feed.land(files=1)
    services = Services(merge=OFTEN, index=OFTEN, compact=EVERY_SECOND, collect=EVERY_SECOND)
    described = pipeline(feed, tmp_path, services=services, write={"flush": "true"})
    with described.start(spark) as running:
        until(lambda: rows_of(tmp_path / "t") == feed.rows, running)
        feed.land(files=2)

        def all_have_run() -> bool:
            latest = running.latest
            return latest is not None and all(state.runs for state in latest.services.values())

        until(all_have_run, running)
        until(lambda: rows_of(tmp_path / "t") == feed.rows, running)
        assert running.query.isActive
        summary = running.stop()
        assert running.stop() is summary
        assert not running.query.isActive
    assert summary.rows == 600
    assert set(summary.services) == {"merge", "index", "compact", "collect", "recover"}
    assert all(state.failures == 0 for state in summary.services.values()), summary.services
    assert lance.dataset(str(tmp_path / "t")).count_rows() > 0
    assert rows_of(tmp_path / "t") == feed.rows


def test_a_service_that_fails_does_not_stop_the_stream(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = Feed(tmp_path / "landing")
    feed.land(files=1)

    def broken(*_: object, **__: object) -> None:
        raise WeirError("the store is away")

    monkeypatch.setattr(weir.TableMaintenance, "merge", broken)
    services = Services(merge=timedelta(milliseconds=50), index=None, compact=None, collect=None)
    with pipeline(feed, tmp_path, services=services).start(spark) as running:
        until(
            lambda: running.latest is not None and running.latest.services["merge"].failures_in_a_row > 1,
            running,
        )
        feed.land(files=1)
        until(lambda: rows_of(tmp_path / "t") == feed.rows, running)
        summary = running.stop()
    assert summary.services["merge"].runs == 0
    assert summary.services["merge"].last_error == "the store is away"


def test_freshness_is_never_shorter_than_a_reader_waits(spark: SparkSession, tmp_path: Path) -> None:
    """A reader of its own looks all the time; nothing may be seen later than the pipeline says."""
    described = pipeline(
        Feed(tmp_path / "landing"),
        tmp_path,
        source=FormatSource("rate", {"rowsPerSecond": "20"}),
        transform="SELECT value AS id, unix_micros(timestamp) AS doubled FROM source",
    )
    samples: list[MetricsSample] = []
    seen: dict[int, float] = {}
    stop = threading.Event()

    def look() -> None:
        table = None
        while not stop.wait(0.005):
            table = table or weir.open(tmp_path / "t")
            found = table.scan().to_table()
            now = time.time()
            for key, arrived in zip(
                *(found.column(name).to_pylist() for name in ("id", "doubled")), strict=True
            ):
                seen.setdefault(key, now - arrived / 1e6)

    with described.start(spark, on_sample=samples.append) as running:
        reader = threading.Thread(target=look)
        reader.start()
        until(lambda: len(seen) > 60, running)
        running.stop()
        stop.set()
        reader.join()
    assert {sample.arrival for sample in samples} == {"timestamp"}
    assert sum(sample.rows for sample in samples) >= len(seen) > 60
    worst = max(sample.freshness_p99 or 0.0 for sample in samples)
    # A hundredth of the rows may be above; the reader needs a moment to look.
    waits = sorted(seen.values())
    assert waits[int(len(waits) * 0.95)] <= worst + 1.0
    median = [sample.freshness_p50 for sample in samples if sample.freshness_p50 is not None]
    assert 0 < min(median) <= worst


def test_a_stream_that_fails_says_why_and_goes_on_from_its_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed = Feed(tmp_path / "landing")
    feed.land(files=1, keys=300)
    failing = pipeline(
        feed, tmp_path, transform=TRANSFORM.replace("SELECT id", "SELECT if(id % 2 = 0, null, id) AS id")
    )
    with pytest.raises(PipelineError, match="the stream has failed") as caught:
        failing.run(spark)
    assert "'id'" in str(caught.value)
    assert caught.value.where == str(tmp_path / "t")
    assert rows_of(tmp_path / "t") == {}
    pipeline(feed, tmp_path, trigger=AVAILABLE_NOW).run(spark)
    assert rows_of(tmp_path / "t") == feed.rows


def test_a_stream_that_has_failed_by_the_time_it_is_stopped_says_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed = Feed(tmp_path / "landing")
    feed.land(files=1)
    nulls = TRANSFORM.replace("SELECT id", "SELECT if(id > 0, null, id) AS id")
    running = pipeline(feed, tmp_path, transform=nulls).start(spark)
    until(lambda: not running.query.isActive, running)
    with pytest.raises(PipelineError, match=r"the stream has failed: .*'id'"):
        running.stop()
    assert running.stop().rows == 0
    described = pipeline(feed, tmp_path, transform=nulls)
    with pytest.raises(PipelineError), described.start(spark) as running:
        until(lambda: not running.query.isActive, running)

    def fail_after(running: RunningPipeline) -> None:
        until(lambda: not running.query.isActive, running)
        raise ZeroDivisionError

    # What the block has raised is not hidden by it.
    with pytest.raises(ZeroDivisionError), described.start(spark) as running:
        fail_after(running)


def test_a_signal_leaves_the_rest_of_the_closing_round_away(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = Feed(tmp_path / "landing")
    feed.land(files=1)
    merge = weir.TableMaintenance.merge
    before = signal.getsignal(signal.SIGTERM)

    def merge_and_signal(*arguments: Any, **options: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        # The main thread receives it when it wakes up, and this round has its own. It puts the handler back.
        until(lambda: signal.getsignal(signal.SIGTERM) is before, lambda: "the signal is on its way")
        return merge(*arguments, **options)

    monkeypatch.setattr(weir.TableMaintenance, "merge", merge_and_signal)
    summary = pipeline(feed, tmp_path, trigger=AVAILABLE_NOW, services=AT_THE_END).run(spark)
    runs = {name: state.runs for name, state in summary.services.items()}
    assert runs == {"recover": 1, "merge": 1, "compact": 0, "index": 0, "collect": 0}
    assert rows_of(tmp_path / "t") == feed.rows


@pytest.mark.parametrize(
    ("transform", "says"),
    [
        ("SELECT id, amount AS doubled, 1 AS more FROM source", "more"),
        ("SELECT amount AS doubled FROM source", "id"),
        ("SELECT id, current_date() AS doubled FROM source", "doubled"),
    ],
)
def test_rows_that_cannot_be_the_tables_are_refused(
    spark: SparkSession, tmp_path: Path, transform: str, says: str
) -> None:
    feed = Feed(tmp_path / "landing")
    feed.land(files=1)
    with pytest.raises(InputError, match=f"'{says}'"):
        pipeline(feed, tmp_path, transform=transform).run(spark)
    assert rows_of(tmp_path / "t") == {}
    with pytest.raises(InputError, match=f"'{says}'"):
        pipeline(feed, tmp_path, transform=transform).check(spark)
    assert not (tmp_path / "checkpoint").exists()


def test_a_checkpoint_of_another_table_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path / "landing")
    feed.land(files=1)
    pipeline(feed, tmp_path, trigger=AVAILABLE_NOW).run(spark)
    feed.land(files=1)
    other = TargetTable(str(tmp_path / "other"), {}, parse_schema("id: int64!, doubled: int64"), ("id",))
    with pytest.raises(PipelineError, match="its checkpoint belongs to another table"):
        pipeline(feed, tmp_path, table=other, trigger=AVAILABLE_NOW).run(spark)
    assert rows_of(tmp_path / "other") == {}


def test_bad_input_is_refused_before_anything_is_written(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path / "landing")
    feed.land(files=1)
    with pytest.raises(SchemaError, match="nowhere"):
        pipeline(feed, tmp_path, transform="SELECT nowhere FROM source").run(spark)
    with pytest.raises(OptionError, match="no option 'flsh'"):
        pipeline(feed, tmp_path, write={"flsh": "true"}).run(spark)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["landing"]
