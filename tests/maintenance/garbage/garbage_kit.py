"""A table on a real directory, a clock that is set by hand, and a look at what is stored."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pyarrow as pa

import weir
from weir.engine.runner import Runner, ThreadRunner
from weir.errors import InputError
from weir.format import layout
from weir.maintenance.garbage.garbage import DEFAULT_FENCE_HORIZON, collect_garbage
from weir.maintenance.garbage.report import GarbageReport
from weir.storage.interface import ObjectStore

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("value", pa.string())])
HORIZON = timedelta(minutes=15)


class Clock:
    """Tells the true time, plus whatever a test has let pass."""

    def __init__(self) -> None:
        self._passed = timedelta(0)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self._passed

    def advance(self, time: timedelta) -> None:
        """Let time pass."""
        self._passed += time


def create(path: Path, **options: object) -> weir.Table:
    """Return a new table."""
    return weir.create(path / "table", SCHEMA, primary_key="id", fsync=False, **options)  # type: ignore[arg-type]


def write(table: weir.Table, *ids: int, value: str = "x", flush: bool = True) -> None:
    """Upsert some keys with a writer of its own, which is gone afterwards."""
    with table.writer(flush_on_close=flush, takeover=True) as writer:
        writer.upsert([{"id": one, "value": value} for one in ids])


def collect(
    table: weir.Table,
    clock: Clock,
    *,
    horizon: timedelta = HORIZON,
    fence_horizon: timedelta = DEFAULT_FENCE_HORIZON,
    dry_run: bool = False,
    version_retention: timedelta | None = None,
    runner: Runner | None = None,
) -> GarbageReport:
    """Collect garbage at the time of a clock."""
    return collect_garbage(
        table.internals.base,
        runner or ThreadRunner(),
        horizon=horizon,
        fence_horizon=fence_horizon,
        version_retention=version_retention,
        dry_run=dry_run,
        clock=clock,
        fields_to_record=table.internals.sharding.catalog.fields_to_record,
    )


def collect_fully(table: weir.Table, clock: Clock, **options: object) -> GarbageReport:
    """Let the horizon pass since what was merged, mark, let it pass again, and delete."""
    clock.advance(HORIZON)
    collect(table, clock, **options)  # type: ignore[arg-type]
    clock.advance(HORIZON)
    return collect(table, clock, **options)  # type: ignore[arg-type]


def rows(table: weir.Table, **options: object) -> dict[int, str]:
    """Return what a strong read shows, every key once."""
    found = table.scan(**options).to_table()  # type: ignore[arg-type]
    ids = found.column("id").to_pylist()
    assert len(set(ids)) == len(ids)
    return dict(zip(ids, found.column("value").to_pylist(), strict=True))


def the_shard(table: weir.Table) -> UUID:
    """Return the only shard of a table."""
    (shard,) = table.status().shards
    return shard.shard_id


def stored(store: ObjectStore, shard_id: UUID) -> tuple[list[int], list[int], list[str]]:
    """Return positions, manifest versions and generation directories there are of a shard, in order."""
    log, manifests, directories = [], [], set()
    for meta in store.list(layout.shard_directory(shard_id)):
        first, *rest = meta.path.removeprefix(f"{layout.shard_directory(shard_id)}/").split("/")
        try:
            if first == "wal":
                log.append(layout.parse_wal_name(rest[0]))
            elif first == "manifest":
                manifests.append(layout.parse_manifest_name(rest[0]))
            elif rest:
                directories.add(first)
        except InputError:
            continue
    return sorted(log), sorted(manifests), sorted(directories)


def kinds(report: GarbageReport, *, deleted: bool) -> Counter[str]:
    """Return how many objects of each kind a report names."""
    counts: Counter[str] = Counter()
    for item in report.items:
        if item.deleted is deleted:
            counts[item.kind] += item.objects
    return counts


def everything(store: ObjectStore) -> dict[str, str]:
    """Return every object of a table and its version."""
    return {meta.path: meta.version for meta in store.list("")}
