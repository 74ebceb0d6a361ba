"""The services of a table that a pipeline runs beside ingestion."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from weir.engine.runner import Runner
from weir.spark.pipeline.schedule import ScheduledService
from weir.spark.pipeline.settings import Services
from weir.table.table import Table

__all__ = ["closing_services", "ending_services", "table_services"]


def table_services(table: Table, settings: Services, runner: Runner) -> tuple[ScheduledService, ...]:
    """Return the enabled services, in an order in which each prepares the next.

    Parameters
    ----------
    table : Table
        The table.
    settings : Services
        Which services, and how often.
    runner : Runner
        Runs their tasks.
    """

    def merge() -> Mapping[str, Any]:
        report = table.maintenance.merge(runner=runner, policy=settings.merge_policy)
        return {
            "generations": report.generations,
            "rows_upserted": report.rows_upserted,
            "rows_deleted": report.rows_deleted,
        }

    def compact() -> Mapping[str, Any]:
        report = table.maintenance.compact(runner=runner)
        return {
            "fragments_removed": report.fragments_removed,
            "fragments_added": report.fragments_added,
            "tasks_lost": report.tasks_lost,
        }

    def index() -> Mapping[str, Any]:
        report = table.maintenance.catch_up_indexes(runner=runner)
        return {"indexes": len(report.indexes), "version": report.version}

    def collect() -> Mapping[str, Any]:
        report = table.maintenance.collect_garbage(
            horizon=settings.horizon, runner=runner, version_retention=settings.version_retention
        )
        return {"deleted_objects": report.deleted_objects, "deleted_bytes": report.deleted_bytes}

    runs: dict[str, Callable[[], Mapping[str, Any]]] = {
        "merge": merge,
        "compact": compact,
        "index": index,
        "collect": collect,
    }
    return tuple(
        ScheduledService(name, every, run)
        for name, run in runs.items()
        if (every := getattr(settings, name)) is not None
    )


def closing_services(
    table: Table, services: tuple[ScheduledService, ...], settings: Services, runner: Runner
) -> tuple[ScheduledService, ...]:
    """Return the services to run after a stream that is not followed by another at once.

    The rows that the stream left in the log are flushed first, so that the merge finds them.
    """
    return services if settings.merge is None else (*ending_services(table, runner), *services)


def ending_services(table: Table, runner: Runner) -> tuple[ScheduledService, ...]:
    """Return the services to run after every orderly end of a stream: rows left in the log are flushed.

    Its shards may not be written again soon, and a merge finds only flushed rows.
    """

    def recover() -> Mapping[str, Any]:
        report = table.maintenance.recover(runner=runner)
        return {"rows": report.rows}

    return (ScheduledService("recover", timedelta(0), recover),)
