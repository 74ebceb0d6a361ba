"""One round of maintenance: everything that keeps a table fast and small, each step preparing the next."""

from __future__ import annotations

from dataclasses import dataclass

from weir.maintenance.catch_up import CatchUpReport
from weir.maintenance.compact import CompactReport
from weir.maintenance.expire import ExpireReport
from weir.maintenance.garbage.report import GarbageReport
from weir.merge.service import MergeReport
from weir.notebook import ShownAsTable

__all__ = ["MaintenanceReport"]


@dataclass(frozen=True, slots=True)
class MaintenanceReport(ShownAsTable):
    """What one round of maintenance did.

    Parameters
    ----------
    merge : MergeReport
        The merge of generations into the base table.
    compact : CompactReport
        The compaction of the base table.
    indexes : CatchUpReport
        The index catch-up.
    expired : ExpireReport
        The removal of expired rows.
    garbage : GarbageReport
        The garbage collection.
    """

    merge: MergeReport
    compact: CompactReport
    indexes: CatchUpReport
    expired: ExpireReport
    garbage: GarbageReport
