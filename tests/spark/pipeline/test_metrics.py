"""Micro-batches as Spark reports them, percentiles against a plain model, and samples."""

from __future__ import annotations

import json
import logging
import random
import resource
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import weir
from weir.errors import StorageError
from weir.schema.text import parse_schema
from weir.spark.pipeline.freshness import percentiles
from weir.spark.pipeline.metrics import MetricsSample, Sampler, as_line_of, as_log_event, take_sample
from weir.spark.pipeline.micro_batch import OBSERVED, QUANTILES, MicroBatch
from weir.spark.pipeline.schedule import ServiceState

BEGAN = datetime(2013, 1, 1, 10, tzinfo=UTC)


def reported(**changes: Any) -> dict[str, Any]:
    return {
        "batchId": 7,
        "timestamp": "2013-01-01T10:00:00.250Z",
        "numInputRows": 20,
        "durationMs": {"addBatch": 400, "triggerExecution": 500},
        "sources": [
            {"numInputRows": 12, "metrics": {"avgOffsetsBehindLatest": "12.5"}},
            {"numInputRows": 8, "metrics": {"other": "NaN", "text": "x"}},
        ],
        "observedMetrics": {
            OBSERVED: {"rows": 10, "arrivals": [int((BEGAN.timestamp() - n) * 1e6) for n in (2, 1)]}
        },
        **changes,
    }


def test_a_micro_batch_is_read_from_what_spark_reports() -> None:
    batch = MicroBatch.of(reported())
    start = BEGAN.timestamp()
    assert (batch.number, batch.rows) == (7, 10)
    assert (batch.began, batch.ended) == (start + 0.25, start + 0.75)
    assert batch.seconds == pytest.approx(0.5)
    assert batch.waits == pytest.approx((2.75, 1.75))
    assert batch.behind == {"avgOffsetsBehindLatest": 12.5}


def test_spark_connect_reports_the_same_in_another_way() -> None:
    classic = reported()
    connect = reported(
        observedMetrics={
            OBSERVED: {
                "values": list(classic["observedMetrics"][OBSERVED].values()),
                "schema": {"type": "struct", "fields": [{"name": "rows"}, {"name": "arrivals"}]},
            }
        }
    )
    del connect["numInputRows"]
    assert MicroBatch.of(connect) == MicroBatch.of(classic)
    # A stream whose rows nobody has observed.
    assert MicroBatch.of({**connect, "observedMetrics": {}}).rows == 20


def test_without_arrivals_a_row_arrived_when_its_micro_batch_began() -> None:
    batch = MicroBatch.of(reported(observedMetrics={OBSERVED: {"rows": 10}}))
    assert batch.waits == pytest.approx((0.5,))
    # An aggregate over no row is null.
    empty = MicroBatch.of(reported(observedMetrics={OBSERVED: {"rows": 0, "arrivals": None}}))
    assert (empty.rows, empty.waits) == (0, ())


def test_rows_that_arrive_in_the_future_are_fresh_at_once() -> None:
    ahead = [int((BEGAN.timestamp() + 60) * 1e6)]
    assert MicroBatch.of(reported(observedMetrics={OBSERVED: {"rows": 1, "arrivals": ahead}})).waits == (0.0,)


def test_percentiles_are_those_of_all_rows_together() -> None:
    chance = random.Random(7)
    batches, waits = [], []
    for number in range(20):
        rows = chance.choice([1, 3, 500, 4_000])
        ended = 1_000.0 + number
        arrivals = sorted(ended - chance.expovariate(0.5) for _ in range(rows))
        waits += [ended - arrival for arrival in arrivals]
        quantiles = tuple(arrivals[min(int(share * rows), rows - 1)] for share in QUANTILES)
        batches.append(MicroBatch(number, rows, ended - 1, ended, quantiles))
    waits.sort()
    found = percentiles(batches, (0.5, 0.99))
    assert found is not None
    for share, value in zip((0.5, 0.99), found, strict=True):
        # A hundred quantiles of each micro-batch: off by one percent of the rows at most.
        low, high = (waits[int(min(max(share + by, 0.0), 0.9999) * len(waits))] for by in (-0.011, 0.011))
        assert low <= value <= high
    assert percentiles([], (0.5,)) is None


def test_a_sample_adds_up(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", parse_schema("id: int64!, v: int64"), primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert([{"id": n, "v": n} for n in range(5)])
    batches = [
        MicroBatch(1, 10, 0.0, 2.0, (0.0,), stages={"listing": 0.2, "commit": 1.0}),
        MicroBatch(2, 30, 2.0, 3.0, (2.5,), {"behind": 4.0}, stages={"listing": 0.2, "commit": 0.5}),
    ]
    services = {"merge": ServiceState(runs=1, seconds=0.12345)}
    first = take_sample(batches, table.status(), services, seconds=4.0, arrival="at", before=None)
    assert (first.batches, first.rows, first.rows_per_second) == (2, 40, 10.0)
    assert (first.freshness_p50, first.freshness_p99, first.batch_seconds) == (0.5, 2.0, 2.0)
    assert first.to_dict()["freshness_parts"] == {"trigger": 0.0, "listing": 0.2, "commit": 0.625}
    assert (first.unmerged_generations, first.unmerged_rows) == (1, 5)
    assert first.lag_seconds > 0
    assert first.behind == {"behind": 4.0}
    table.maintenance.merge()
    second = take_sample([], table.status(), {}, seconds=1.0, arrival="at", before=first)
    assert (second.rows, second.total_rows, second.total_batches) == (0, 40, 2)
    assert (second.freshness_p50, second.batch_seconds) == (None, None)
    assert (second.unmerged_generations, second.lag_seconds) == (0, 0.0)
    plain = json.loads(json.dumps(first.to_dict()))
    assert plain["services"]["merge"]["seconds"] == 0.123
    assert datetime.fromisoformat(plain["at"]).tzinfo is not None


def sample_of(number: int) -> MetricsSample:
    return MetricsSample(
        at=BEGAN,
        seconds=1.0,
        batches=1,
        rows=number,
        total_batches=1,
        total_rows=number,
        rows_per_second=0.0,
        batch_seconds=None,
        freshness_p50=None,
        freshness_p99=None,
        arrival="micro-batch",
        lag_seconds=0.0,
        unmerged_generations=0,
        unmerged_rows=0,
        services={"merge": ServiceState(failures=1, failures_in_a_row=1)},
    )


def test_samples_are_lines_of_json_and_log_events(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "new" / "metrics.jsonl"
    append = as_line_of(path)
    for number in (1, 2):
        append(sample_of(number))
    assert [json.loads(line)["rows"] for line in path.read_text().splitlines()] == [1, 2]
    with caplog.at_level(logging.INFO, logger="weir"):
        as_log_event(sample_of(3))
    (record,) = caplog.records
    fields = record.event_fields  # type: ignore[attr-defined]
    assert (fields["event"], fields["rows"], fields["failing"]) == ("pipeline.metrics", 3, ["merge"])


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="metrics cannot be written"):
        as_line_of(tmp_path / "file" / "metrics.jsonl")


def test_a_line_that_finds_no_room_leaves_nothing_of_it(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    append = as_line_of(path)
    append(sample_of(1))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, limits[1]))
    try:
        with pytest.raises(StorageError, match="metrics cannot be written") as caught:
            append(sample_of(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.where == str(path)
    append(sample_of(3))
    assert [json.loads(line)["rows"] for line in path.read_text().splitlines()] == [1, 3]


def test_a_sampler_goes_on_whatever_fails_and_takes_a_last_sample(caplog: pytest.LogCaptureFixture) -> None:
    taken: list[int] = []
    enough = threading.Event()
    fails = True

    def take(seconds: float, before: MetricsSample | None) -> MetricsSample:
        nonlocal fails
        assert seconds > 0
        if fails:
            fails = False
            raise RuntimeError("the table is away")
        return sample_of(0 if before is None else before.rows + 1)

    def broken(_: MetricsSample) -> None:
        raise OSError("the disk is full")

    def keep(sample: MetricsSample) -> None:
        taken.append(sample.rows)
        if len(taken) == 3:
            enough.set()

    sampler = Sampler(take, [broken, keep], timedelta(milliseconds=1), watch=lambda: None)
    sampler.start()
    assert enough.wait(60)
    last = sampler.stop()
    assert last is not None
    assert taken == list(range(len(taken)))
    assert last.rows == taken[-1] >= 3
    messages = [record.getMessage() for record in caplog.records]
    assert "pipeline.metrics_failed error=the table is away" in messages
    assert "pipeline.metrics_failed error=the disk is full" in messages
