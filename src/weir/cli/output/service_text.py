"""The results of services, as sentences."""

from __future__ import annotations

from rich.console import Console
from rich.filesize import decimal

from weir.cli.output.phrases import counted, short_id
from weir.maintenance.compact import CompactReport
from weir.maintenance.maintain import MaintenanceReport
from weir.maintenance.recover import RecoverReport
from weir.maintenance.repair import RepairReport
from weir.merge.service import MergeReport

__all__ = ["print_compacted", "print_maintained", "print_merged", "print_recovered", "print_repaired"]


def print_merged(console: Console, report: MergeReport) -> None:
    """Print what was merged."""
    if report.in_conflict:
        shards = ", ".join(map(short_id, report.in_conflict))
        console.print(
            f"shards {shards} were left alone: they hold versions of the same keys; weir repair joins them",
            soft_wrap=True,
        )
    if report.rows_left:
        console.print(
            f"{counted(report.rows_left, 'row')} left to wait for more; "
            f"the base table has version {report.version}"
        )
        return
    if not report.generations:
        console.print(f"nothing to merge; the base table has version {report.version}")
        return
    console.print(
        f"{counted(report.generations, 'generation')} of {counted(report.shards, 'shard')} merged: "
        f"{counted(report.rows_upserted, 'row')} upserted, {report.rows_deleted:,} deleted; "
        f"the base table has version {report.version}"
    )


def print_compacted(console: Console, report: CompactReport) -> None:
    """Print what was compacted, and what a merge got in the way of."""
    if not report.tasks:
        console.print(f"nothing to compact; the base table has version {report.version}")
        return
    lost = f"; {counted(report.tasks_lost, 'rewrite')} lost to a merge" if report.tasks_lost else ""
    console.print(
        f"{counted(report.fragments_removed, 'fragment')} became {report.fragments_added:,}{lost}; "
        f"the base table has version {report.version}"
    )


def print_maintained(console: Console, report: MaintenanceReport, table: str | None) -> None:
    """Print one line of what a round did, after the name of the table if it is one of many."""
    merge, compact, garbage = report.merge, report.compact, report.garbage
    worked = sum(one.action != "nothing to do" for one in report.indexes.indexes)
    indexes = f"{worked} of {counted(len(report.indexes.indexes), 'index', 'indexes')} caught up"
    console.print(
        f"{'' if table is None else f'{table}: '}{counted(merge.generations, 'generation')} merged, "
        f"{counted(compact.fragments_removed, 'fragment')} compacted, {indexes}, "
        f"{counted(garbage.deleted_objects, 'object')} deleted ({decimal(garbage.deleted_bytes)}); "
        f"the base table has version {report.indexes.version}",
        soft_wrap=True,
    )


def print_recovered(console: Console, report: RecoverReport) -> None:
    """Print how many rows were flushed; then the shards that were left alone, and why."""
    if not report.shards:
        console.print("nothing to recover: every row is in a generation")
        return
    console.print(f"{counted(report.rows, 'row')} of {counted(report.recovered, 'shard')} flushed")
    for one in report.shards:
        if one.skipped:
            console.print(f"shard {short_id(one.shard_id)} was left alone: {one.skipped}", soft_wrap=True)


def print_repaired(console: Console, report: RepairReport) -> None:
    """Print what was repaired or would be."""
    if not report.repairs:
        console.print("nothing to repair")
    for one in report.repairs:
        prefix = "would repair" if report.dry_run else "repaired"
        console.print(f"{prefix} {one.kind}: {one.message} [{one.where}]", soft_wrap=True, markup=False)
