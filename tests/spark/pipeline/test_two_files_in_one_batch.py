"""A crash between what the source notes and what the query notes: one micro-batch then takes two files."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.pipeline.feed import rows_of

from weir.errors import OptionError, PipelineError
from weir.schema.text import parse_schema
from weir.spark.pipeline import (
    FormatSource,
    Metrics,
    Pipeline,
    Services,
    TargetTable,
)
from weir.spark.pipeline.checkpoint import CheckpointState, read_checkpoint

KEYS = range(20)


def land(landing: Path, number: int) -> None:
    """Let a file arrive that has a newer value for every key, in a longer line than the file before."""
    landing.mkdir(exist_ok=True)
    path = landing / f"{number}.json"
    filling = "x" * 100 * number
    path.write_text("".join(json.dumps({"id": key, "v": number, "x": filling}) + "\n" for key in KEYS))
    os.utime(path, (1_500_000_000 + number, 1_500_000_000 + number))


def described(tmp_path: Path, *, in_order: bool) -> Pipeline:
    return Pipeline(
        source=FormatSource(
            "json",
            {"maxFilesPerTrigger": "1"},
            str(tmp_path / "landing"),
            "id BIGINT, v BIGINT",
            in_order=in_order,
        ),
        transform="SELECT id, v AS doubled FROM source",
        table=TargetTable(
            str(tmp_path / "t"), {}, parse_schema("id: int64!, doubled: int64"), ("id",), fsync=False
        ),
        checkpoint=str(tmp_path / "checkpoint"),
        services=Services(merge=None, index=None, compact=None, collect=None),
        metrics=Metrics(every=timedelta(seconds=1), log=False),
    )


def crash_between_the_logs(spark: SparkSession, pipeline: Pipeline) -> None:
    """Run until the source has noted its third file, and the query cannot note that it takes it."""
    checkpoint = Path(pipeline.checkpoint)
    with pipeline.start(spark) as running:
        running.query.processAllAvailable()
        (checkpoint / "offsets" / "2").mkdir()
        land(checkpoint.parent / "landing", 2)
        with pytest.raises(PipelineError):
            running.wait(timedelta(seconds=60))
    (checkpoint / "offsets" / "2").rmdir()
    assert read_checkpoint(checkpoint) == CheckpointState(1, 1, 2, ({"logOffset": 1},))


@pytest.mark.everywhere
def test_the_last_change_of_a_key_wins_though_a_batch_takes_two_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    pipeline = described(tmp_path, in_order=True)
    for number in (0, 1):
        land(tmp_path / "landing", number)
    crash_between_the_logs(spark, pipeline)
    # It lands last, and Spark would read it before the shorter one.
    land(tmp_path / "landing", 3)
    with pipeline.start(spark) as running:
        running.query.processAllAvailable()
        assert running.stop().rows == 2 * len(KEYS)
    state = read_checkpoint(tmp_path / "checkpoint")
    assert state == CheckpointState(2, 2, 3, ({"logOffset": 3},))
    assert rows_of(tmp_path / "t") == dict.fromkeys(KEYS, 3)


def test_spark_itself_keeps_no_order(spark: SparkSession, tmp_path: Path) -> None:
    """What the option is for; where this fails, Spark has learnt it, and it may go."""
    pipeline = described(tmp_path, in_order=False)
    for number in (0, 1):
        land(tmp_path / "landing", number)
    crash_between_the_logs(spark, pipeline)
    land(tmp_path / "landing", 3)
    with pipeline.start(spark) as running:
        running.query.processAllAvailable()
    assert rows_of(tmp_path / "t") == dict.fromkeys(KEYS, 2)


def test_what_cannot_keep_an_order_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"'rate' is not one of files.*source\.in_order"):
        FormatSource("rate", in_order=True)
    with pytest.raises(OptionError, match="lose the order of their files"):
        Pipeline(
            source=FormatSource("json", path="landing", schema="id BIGINT", in_order=True),
            table=TargetTable("t"),
            checkpoint="c",
            cluster_by_shard=True,
        )


def test_a_checkpoint_is_read_while_spark_writes_it(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path / "none") == CheckpointState(-1, -1, -1)
    for name in ("offsets/9", "offsets/10", "commits/9", "sources/0/9.compact", "sources/0/11"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('v1\n{}\n{"logOffset":9}\n-')
    (tmp_path / "offsets" / ".11.x.tmp").write_text("v1")
    state = read_checkpoint(tmp_path)
    assert state == CheckpointState(10, 9, 11, ({"logOffset": 9}, None))
    assert state.describe() == "micro-batch 9 is over, 10 is planned, the log of the source is at 11"
