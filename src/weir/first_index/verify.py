"""Verification of a table with the first MemWAL index: its regions, their WALs, and the base table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from weir.engine.runner import Runner
from weir.errors import TableError, WeirError
from weir.first_index.flushed_rows import read_flushed
from weir.first_index.regions import named, unmerged
from weir.first_index.view import RegionView, base_of, base_only
from weir.first_index.wal import RegionWal, WalReader, read_entry
from weir.format.first_index_details import MemWal, MemWalState
from weir.format.newest import key_codes
from weir.maintenance.verification.finding import Findings
from weir.maintenance.verify import VerifyReport, verify_table
from weir.storage.interface import ObjectStore

__all__ = ["verify_regions"]

_MOST_UNREADABLE = 100


def verify_regions(
    store: ObjectStore,
    runner: Runner,
    *,
    base_rows: bool = True,
    on_progress: Callable[[int, int], None] | None = None,
) -> VerifyReport:
    """Check every MemWAL that is not merged, and the base table. Writes nothing.

    Parameters
    ----------
    store : ObjectStore
        Where the table is.
    runner : Runner
        Executes the tasks that read the base table.
    base_rows : bool
        Whether to read the rows of the base table too.
    on_progress : callable, optional
        Called with (tasks done, tasks in all).

    Returns
    -------
    VerifyReport
        The findings: its shards are regions, its generations MemWALs.

    Raises
    ------
    TableError
        The MemWAL index of the table is not, or no longer, of the first form.
    """
    view = base_only(store)
    if view is None:
        raise TableError("the table has been upgraded", where=store.uri, hint="Open it again")
    findings = Findings(store.uri)
    entries = _check_entries(findings, view, RegionWal(store))
    _check_order(findings, view.details.mem_wals)
    base = verify_table(base_of(view), runner, base_rows=base_rows, on_progress=on_progress)
    regions = {one.region for one in view.details.mem_wals}
    return replace(
        base,
        findings=(*findings.found, *base.findings),
        shards=len(regions),
        generations=len(view.details.mem_wals),
        entries=entries,
    )


def _check_entries(findings: Findings, view: RegionView, reader: WalReader) -> int:
    """Read what the index lists of every WAL; return how many entries there were."""
    count = 0
    keys: dict[str, list[pa.Table]] = {}
    base = base_of(view)
    for mem_wal in unmerged(view.details):
        unreadable = 0
        for entry in mem_wal.entries.ascending():
            try:
                rows = read_entry(reader, mem_wal, entry, base.row_schema, base.primary_key)
                keys.setdefault(mem_wal.region, []).append(rows.select(list(base.primary_key)))
            except (WeirError, KeyError, pa.ArrowException) as error:
                message = f"entry {entry} of {named(mem_wal)} cannot be read: {error}"
                findings.error("first_index.entry", mem_wal.wal_location, message)
                unreadable += 1
                if unreadable < _MOST_UNREADABLE:
                    continue
                # A damaged list may name more entries than can be checked.
                message = (
                    f"{unreadable} entries of {named(mem_wal)} cannot be read; those after them were not read"
                )
                findings.error("first_index.entry", mem_wal.wal_location, message)
                break
            count += 1
        if mem_wal.state is MemWalState.FLUSHED:
            try:
                read_flushed(RegionWal(view), base, mem_wal)
            except WeirError as error:
                message = f"the rows that a flush has written of {named(mem_wal)} cannot be read: {error}"
                findings.error("first_index.flushed", mem_wal.mem_table_location, message)
    _check_keys(findings, keys)
    return count


def _check_keys(findings: Findings, keys: Mapping[str, Sequence[pa.Table]]) -> None:
    tables = {region: pa.concat_tables(parts) for region, parts in keys.items()}
    if len(tables) < 2:
        return
    distinct = sum(_distinct(one) for one in tables.values())
    shared = distinct - _distinct(pa.concat_tables(tables.values()))
    if shared:
        findings.warning(
            "first_index.shared_keys",
            "",
            f"{shared} keys are in several regions, of which the index does not say which is the newer; "
            "the higher generation is taken for it, and of equal ones the region whose name comes later",
        )


def _distinct(keys: pa.Table) -> int:
    codes, _ = key_codes(keys.columns)
    return len(np.unique(codes))


def _check_order(findings: Findings, mem_wals: Iterable[MemWal]) -> None:
    """Look for a generation of a region that is ahead of an older one: its rows would count as older."""
    newest: dict[str, MemWal] = {}
    for one in sorted(mem_wals, key=lambda each: (each.region, each.generation)):
        older = newest.get(one.region)
        if older is not None and one.state.value > older.state.value:
            findings.error(
                "first_index.order",
                one.wal_location,
                f"{named(one)} is {one.state.name}, before generation {older.generation}, which is "
                f"{older.state.name}",
            )
        newest[one.region] = one
