"""Repair of a table: finds and fixes whatever can be fixed without losing a row.

Each kind of repair is a separate type and is planned without writing, so that a dry run can show it. Repairs
are made one after the other; a repair that another process made meanwhile is skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from weir.engine.logs import get_logger
from weir.maintenance.index_repairs import IndexRepair, repair_indexes
from weir.maintenance.log_repairs import SetAsideStrayEntries, repair_logs
from weir.maintenance.shard_repairs import ShardRepair, TableShards, repair_shards
from weir.maintenance.version_repairs import VersionRepair, repair_versions
from weir.notebook import ShownAsTable

__all__ = ["RepairReport", "repair_table"]

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RepairReport(ShownAsTable):
    """What was repaired, or would be in a dry run.

    Parameters
    ----------
    repairs : tuple of ShardRepair, VersionRepair, IndexRepair or SetAsideStrayEntries
        The repairs, in the order they are made.
    dry_run : bool
        Whether it was a dry run, which changes nothing.
    version : int
        The newest version of the base table.
    """

    repairs: tuple[ShardRepair | VersionRepair | IndexRepair | SetAsideStrayEntries, ...]
    dry_run: bool
    version: int

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values that JSON can hold."""
        return {
            "dry_run": self.dry_run,
            "version": self.version,
            "repairs": [one.to_dict() for one in self.repairs],
        }


def repair_table(
    shards: TableShards, *, dry_run: bool = False, prefer: UUID | None = None, as_clone: bool = False
) -> RepairReport:
    """Repair whatever can be repaired without losing a row. See :meth:`weir.TableMaintenance.repair`."""
    # Shards are checked against a base table that is sound.
    versions = repair_versions(shards.base.store, dry_run=dry_run)
    repairs: list[ShardRepair | VersionRepair | IndexRepair | SetAsideStrayEntries] = [*versions]
    strays = repair_logs(shards.base.store, shards.base.namespace, dry_run=dry_run)
    repairs += strays
    if not strays or not dry_run:
        # Until the stray entries are moved aside, the shards cannot be read.
        repairs += repair_shards(shards, dry_run=dry_run, prefer=prefer, as_clone=as_clone)
    repairs += repair_indexes(shards.base.latest(), dry_run=dry_run)
    report = RepairReport(tuple(repairs), dry_run, shards.base.latest().version)
    _log.info("table.repaired", dry_run=dry_run, repairs=len(repairs), version=report.version)
    return report
