"""EXPLAIN of a scan of events: per source the strategy of each field, and the zones it skips."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from weir.events.calendar import calendar_of
from weir.events.catalog import Catalog
from weir.events.event_types import EventType
from weir.events.zones import zone_rows
from weir.read.plan import DatasetTask, RowsTask, ScanPlan
from weir.read.scan import Scan

__all__ = ["described_scan"]

_NAMES = {"ZoneSuRF": "ZoneRange", "ZoneXorIndex": "ZoneBloom"}
_UNPRUNED = "FullScan"
_SCANNED = re.compile(r"rows_scanned=([\d.]+)(?: ([KMB]))?")
_UNITS = {None: 1, "K": 1_000, "M": 1_000_000, "B": 1_000_000_000}


def described_scan(scan: Scan, catalog: Catalog, types: Iterable[EventType]) -> list[str]:
    """Return the plan of a scan as text, one source per line, indented.

    Parameters
    ----------
    scan : Scan
        The scan.
    catalog : Catalog
        The catalog.
    types : iterable of EventType
        The types that are read, which give the columns their names.
    """
    fields = {column: name for kind in types for name, columns in kind.columns.items() for column in columns}
    days = {calendar_of(column): name for column, name in {**fields, "timestamp": "timestamp"}.items()}
    return ["  " + line for line in _described(scan.plan(), {**fields, **days}, days, zone_rows(catalog))]


def _described(plan: ScanPlan, fields: Mapping[str, str], days: Collection[str], of_zone: int) -> list[str]:
    """Return the plan of a scan as text, one source per line.

    Counts what the indexes leave of a source: the filter runs, but events are not kept.
    """
    lines = [plan.header]
    zones_read = zones = rows_read = rows = 0
    for task in plan.tasks:
        if isinstance(task, RowsTask):
            lines.append(f"  {task.describe()}")
            rows_read += task.considered
            rows += task.considered
            continue
        names = ", ".join(fields.get(name, name) for name in task.columns)
        ways = ", ".join(dict.fromkeys(_strategy(one, fields, days) for one in task.strategies)) or _UNPRUNED
        scanned, held, touched, divided = _read_of(task, of_zone)
        lines.append(
            f"  {task.label}: reads {names} by {ways}; "
            f"{touched} of {divided} zones, {scanned:,} of {held:,} rows"
        )
        zones_read, zones = zones_read + touched, zones + divided
        rows_read, rows = rows_read + scanned, rows + held
    for one in plan.pruned:
        lines.append(f"  {one.describe()}")
        rows += one.rows or 0
        if one.rows:
            zones += -(-one.rows // of_zone)
    lines.append(
        f"  zones: {zones_read} read, {zones - zones_read} pruned; rows: {rows_read:,} read, "
        f"{rows - rows_read:,} pruned"
    )
    return lines


def _strategy(one: Any, fields: Mapping[str, str], days: Collection[str]) -> str:
    name = _NAMES.get(one.strategy, str(one.strategy))
    if one.column in days and one.strategy != _UNPRUNED:
        name = "Calendar"
    return name if one.column is None else f"{name}({fields.get(one.column, one.column)})"


def _read_of(task: DatasetTask, of_zone: int) -> tuple[int, int, int, int]:
    """Return how many rows of a source are read, of how many, and the same for its zones."""
    dataset = task.source.opened()
    counts = [fragment.count_rows() for fragment in dataset.get_fragments()]
    held, zones = sum(counts), sum(-(-count // of_zone) for count in counts)
    if task.filter is None or task.resolution is not None or held == 0:
        return held, held, zones, zones
    analyzed = dataset.scanner(columns=list(task.columns), filter=task.filter).analyze_plan()
    scanned = [round(float(number) * _UNITS[unit or None]) for number, unit in _SCANNED.findall(analyzed)]
    rows = min(sum(scanned), held) if scanned else held
    if rows == held:
        return held, held, zones, zones
    found = dataset.scanner(columns=[], filter=task.filter, with_row_address=True).to_table()
    return rows, held, min(max(_zones_of(found, of_zone), -(-rows // of_zone)), zones), zones


def _zones_of(rows: pa.Table, of_zone: int) -> int:
    addresses = rows.column("_rowaddr").to_numpy().astype(np.uint64)
    in_fragment = (addresses & np.uint64(0xFFFFFFFF)) // np.uint64(of_zone)
    return len(np.unique((addresses >> np.uint64(32) << np.uint64(32)) | in_fragment))
