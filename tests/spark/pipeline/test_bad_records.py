"""Pipelines that go on: bad records are in quarantine with reason and place, and the others in the table."""

from __future__ import annotations

import json
import logging
import urllib.request
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import weir
from weir.errors import OptionError, PipelineError
from weir.schema.text import parse_schema
from weir.spark.pipeline import (
    AVAILABLE_NOW,
    FormatSource,
    Metrics,
    MetricsSample,
    Pipeline,
    PipelineSummary,
    PrometheusSamples,
    Quarantine,
    Services,
    ServiceState,
    TargetTable,
    ValueFormat,
)
from weir.spark.pipeline.prometheus import parse_address

pytestmark = pytest.mark.timeout(1800)

_OFF = Services(merge=None, index=None, compact=None, collect=None)
_SCHEMA = "id: int64!, name: string!, vec: vector(2)"
_COLUMNS = "id BIGINT, name STRING, vec ARRAY<FLOAT>"


def _land(directory: Path, number: int, lines: Sequence[str]) -> None:
    directory.mkdir(exist_ok=True)
    (directory / f"{number}.json").write_text("".join(f"{line}\n" for line in lines))


def _pipeline(tmp_path: Path, source: FormatSource, **settings: Any) -> Pipeline:
    return Pipeline(
        source=source,
        table=TargetTable(str(tmp_path / "t"), {}, parse_schema(_SCHEMA), ("id",), fsync=False),
        checkpoint=str(tmp_path / "checkpoint"),
        trigger=AVAILABLE_NOW,
        services=_OFF,
        metrics=Metrics(every=timedelta(days=1)),
        **{"on_bad_record": "quarantine", **settings},
    )


def _ids(uri: Path) -> list[int]:
    return sorted(weir.open(uri).scan(["id"]).to_table().column("id").to_pylist())


def _quarantined(uri: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = weir.open(uri).scan().to_table().to_pylist()
    return sorted(rows, key=lambda row: str(row["record"]))


def _files(directory: Path) -> FormatSource:
    return FormatSource("json", {"maxFilesPerTrigger": "1"}, str(directory), _COLUMNS)


def test_files(spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    landing = tmp_path / "landing"
    _land(landing, 1, ['{"id": 1, "name": "a", "vec": [1, 2]}', '{"id": ', '{"id": "x", "name": "b"}'])
    pipeline = _pipeline(tmp_path, _files(landing))
    with caplog.at_level(logging.WARNING, logger="weir"):
        first = pipeline.run(spark)
    assert (first.rows, first.bad_records) == (3, 2)
    assert first.quarantine == f"{tmp_path / 't'}-quarantine"
    assert _ids(tmp_path / "t") == [1]
    assert [one for one in caplog.messages if one.startswith("pipeline.bad_records")]
    # It goes on, also with rows that can be read and are none of the table's.
    _land(
        landing,
        2,
        [
            '{"id": 2, "name": "c"}',
            '{"id": null, "name": "d"}',
            '{"id": 4}',
            '{"id": 5, "name": "e", "vec": [1, 2, 3]}',
        ],
    )
    second = pipeline.run(spark)
    assert (second.rows, second.bad_records) == (4, 3)
    assert _ids(tmp_path / "t") == [1, 2]
    found = _quarantined(Path(first.quarantine))
    assert [(row["record"], row["reason"]) for row in found] == [
        ('{"id": ', "the record cannot be read with the schema of the source"),
        ('{"id": "x", "name": "b"}', "the record cannot be read with the schema of the source"),
        ('{"id":4}', "column 'name' is null, and cannot be null"),
        ('{"id":5,"name":"e","vec":[1.0,2.0,3.0]}', "column 'vec' has not 2 values"),
        ('{"name":"d"}', "primary-key column 'id' is null"),
    ]
    assert {json.loads(row["place"])["file"].rpartition("/")[2] for row in found} == {"1.json", "2.json"}
    assert {row["pipeline"] for row in found} == {"weir-pipeline"}


@pytest.mark.long
def test_values_and_a_transform(spark: SparkSession, tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    lines = ['{"id": 1, "name": "a"}', "rubbish", '{"id": 2, "name": null}', '{"id": 3, "name": "c"}']
    (landing / "1.txt").write_text("\n".join(lines) + "\n")
    source = FormatSource(
        "text", {}, str(landing), None, ValueFormat("json", "id BIGINT, name STRING"), in_order=True
    )
    pipeline = _pipeline(
        tmp_path,
        source,
        transform="""
            SELECT value.id + 10 AS id, value.name, IF(value.id = 3, 'delte', null) AS _op FROM source
        """,
        quarantine=Quarantine(uri=str(tmp_path / "bad")),
    )
    checked = pipeline.check(spark)
    assert set(checked.source_columns) == {"value"}
    assert set(checked.columns) == {"id", "name", "_op"}
    summary: PipelineSummary = pipeline.run(spark)
    assert (summary.rows, summary.bad_records) == (4, 3)
    assert _ids(tmp_path / "t") == [11]
    found = _quarantined(tmp_path / "bad")
    assert [row["reason"] for row in found] == [
        "the record cannot be read with the schema of the source",
        "column 'name' is null, and cannot be null",
        "_op is neither 'upsert' nor 'delete'",
    ]
    assert json.loads(found[2]["record"]) == {"id": 13, "name": "c", "_op": "delte"}
    assert found[0]["record"] == "rubbish"
    # Where a transform does not carry it along, the place of its rows is not known.
    assert [row["place"] is None for row in found] == [False, True, True]


def test_without_quarantine_a_bad_record_stops_the_stream(spark: SparkSession, tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    _land(landing, 1, ['{"id": null, "name": "a"}'])
    with pytest.raises(PipelineError, match="primary-key column 'id'"):
        _pipeline(tmp_path, _files(landing), on_bad_record="fail").run(spark)


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="'fail' or 'quarantine'"):
        _pipeline(tmp_path, _files(tmp_path), on_bad_record="drop")
    with pytest.raises(OptionError, match="from 0 to 1"):
        Quarantine(alarm_share=2)


def test_prometheus_reads_the_newest_sample() -> None:
    samples = PrometheusSamples("flights")
    with samples.served("127.0.0.1", 0) as port:
        assert "weir_pipeline" not in _scraped(port)
        samples.note(
            MetricsSample(
                at=datetime(2026, 1, 1, tzinfo=UTC),
                seconds=1.0,
                batches=2,
                rows=30,
                total_batches=4,
                total_rows=70,
                rows_per_second=30.0,
                batch_seconds=None,
                freshness_p50=0.5,
                freshness_p99=1.5,
                arrival="timestamp",
                lag_seconds=2.5,
                unmerged_generations=3,
                unmerged_rows=60,
                behind={"maxOffsetsBehindLatest": 9.0},
                services={"merge": ServiceState(runs=2, failures=1)},
                total_bad_records=5,
            )
        )
        lines = _scraped(port).splitlines()
    assert {
        'weir_pipeline_rows_total{pipeline="flights"} 70.0',
        'weir_pipeline_bad_records_total{pipeline="flights"} 5.0',
        'weir_pipeline_lag_seconds{pipeline="flights"} 2.5',
        'weir_pipeline_freshness_seconds{pipeline="flights",quantile="0.99"} 1.5',
        'weir_pipeline_source_behind{figure="maxOffsetsBehindLatest",pipeline="flights"} 9.0',
        'weir_pipeline_service_failures_total{pipeline="flights",service="merge"} 1.0',
    } <= set(lines)
    assert not [line for line in lines if line.startswith("weir_pipeline_batch_seconds{")]


def _scraped(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize("text", ["", "x", "70000", "host:", "-1"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="a port is a number"):
        parse_address(text)
