"""Every service on Spark does what it does in this process: the same table, bit for bit in content."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.service_tables import (
    KEY_KINDS,
    base_state,
    copy_of,
    live_rows,
    new_table,
    schema_of,
    write_more,
)
from tests.storage.s3 import S3Endpoint, s3_endpoint

import weir
from weir.engine.runner import Runner, ThreadRunner
from weir.format import layout
from weir.maintenance.garbage.report import GarbageReport
from weir.spark import SparkRunner

__all__ = ["s3_endpoint"]

AT_ONCE = timedelta(0)


def merged(table: weir.Table, runner: Runner) -> object:
    report = table.maintenance.merge(runner=runner)
    return report.shards, report.generations, report.rows_upserted, report.rows_deleted


def recovered(table: weir.Table, runner: Runner) -> object:
    return table.maintenance.recover(runner=runner)


def compacted(table: weir.Table, runner: Runner) -> object:
    report = table.maintenance.compact(rows_per_fragment=100, runner=runner)
    return report.fragments_removed > 1, report.tasks_lost


def caught_up(table: weir.Table, runner: Runner) -> object:
    report = table.maintenance.catch_up_indexes(runner=runner)
    return [(one.name, one.action, one.fragments > 0) for one in report.indexes]


def collected(table: weir.Table, runner: Runner) -> object:
    def told(report: GarbageReport) -> object:
        kinds = {item.kind for item in report.items}
        return {
            kind: sum(item.objects for item in report.items if item.kind == kind)
            for kind in kinds
            if "version" not in kind
        }

    marked = table.maintenance.collect_garbage(horizon=AT_ONCE, runner=runner)
    deleted = table.maintenance.collect_garbage(horizon=AT_ONCE, runner=runner)
    assert deleted.deleted_objects > 0
    return told(marked), told(deleted)


def verified(table: weir.Table, runner: Runner) -> object:
    report = table.maintenance.verify(runner=runner)
    assert report.passed
    return report.shards, report.generations, report.entries, report.findings


@pytest.mark.parametrize(
    "name", [pytest.param("composite", marks=pytest.mark.everywhere), "integer", "string", "binary"]
)
def test_services_do_the_same_on_spark(spark: SparkSession, tmp_path: Path, name: str) -> None:
    first = new_table(tmp_path, KEY_KINDS[name])
    second = copy_of(first, tmp_path / "copy")
    expected = live_rows(first)
    services: list[Callable[[weir.Table, Runner], object]] = [
        merged,
        recovered,
        merged,
        compacted,
        caught_up,
        collected,
        verified,
    ]
    for service in services:
        there = service(second, SparkRunner(spark))
        assert there == service(first, ThreadRunner()), service.__name__
        here, on_spark = base_state(first), base_state(second)
        assert here.keys() == on_spark.keys()
        for part in here:
            assert here[part] == on_spark[part], (service.__name__, part)
        assert live_rows(second).equals(expected), service.__name__
    uncovered = [lacks for _, _, lacks in base_state(second)["indexes"].values()]  # type: ignore[attr-defined]
    assert set(uncovered) == {0}


def test_maintenance_tells_how_far_it_is(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(tmp_path, KEY_KINDS["integer"])
    expected = live_rows(table)
    seen: list[tuple[str, int, int]] = []
    report = table.maintenance.run(
        horizon=AT_ONCE, runner=SparkRunner(spark), on_progress=lambda *step: seen.append(step)
    )
    assert report.merge.generations == 8
    assert seen[0][0] == "merge"
    assert [step for step in seen if step[0] == "merge"] == [("merge", n, 4) for n in range(1, 5)]
    assert {"merge", "catch up", "collect"} <= {what for what, _, _ in seen}
    assert live_rows(table).equals(expected)


@pytest.mark.everywhere
def test_damage_is_found_alike(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(tmp_path, KEY_KINDS["integer"])
    manifest = next(iter(table.internals.reader.take_newest().shards)).manifest
    flushed = manifest.flushed_generations[-1]
    broken = layout.generation_path(manifest.shard_id, flushed.path)
    (Path(table.uri) / broken / "bloom_filter.bin").write_bytes(b"nothing")
    (Path(table.uri) / "_mem_wal" / "no-shard").mkdir()
    (Path(table.uri) / "_mem_wal" / "no-shard" / "file").touch()
    here, on_spark = table.maintenance.verify(), table.maintenance.verify(runner=SparkRunner(spark))
    assert len(here.findings) >= 2
    assert not here.passed
    assert here == on_spark


@pytest.mark.everywhere
def test_executors_reach_an_object_store_with_what_the_tasks_bring(
    spark: SparkSession, s3_endpoint: S3Endpoint
) -> None:
    kind = KEY_KINDS["integer"]
    options: dict[str, Any] = {"storage_options": s3_endpoint.options}
    uri = s3_endpoint.new_uri()
    table = weir.create(uri, schema_of(kind), primary_key=kind.names, shard_by=kind.shard_by, **options)
    write_more(table, kind)
    expected = live_rows(table)
    runner = SparkRunner(spark)
    assert table.maintenance.recover(runner=runner).recovered == 4
    assert table.maintenance.merge(runner=runner).shards == 4
    table.maintenance.catch_up_indexes(runner=runner)
    table.maintenance.compact(runner=runner)
    assert table.maintenance.verify(runner=runner).passed
    table.maintenance.collect_garbage(horizon=AT_ONCE, runner=runner)
    assert table.maintenance.collect_garbage(horizon=AT_ONCE, runner=runner).deleted_objects > 0
    again = weir.open(uri, **options)
    assert live_rows(again).equals(expected)
    assert again.scan(consistency="snapshot").count() == expected.num_rows
