"""One round of everything that keeps a table fast and small, in the order in which each helps the next."""

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
        Generations into the base table.
    compact : CompactReport
        Fragments of the base table into larger ones.
    indexes : CatchUpReport
        Indexes up to the merged rows.
    expired : ExpireReport
        Rows of the base table that had expired.
    garbage : GarbageReport
        What nothing needs any more.
    """

    merge: MergeReport
    compact: CompactReport
    indexes: CatchUpReport
    expired: ExpireReport
    garbage: GarbageReport
