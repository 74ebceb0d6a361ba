"""Repairs of indexes of the base table: one whose files are out of reach is built anew from the rows."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from weir.base.index_list import existing_indexes
from weir.base.index_store import index_store
from weir.base.index_upkeep import RebuildTask, rebuild_of
from weir.base.table import BaseTable
from weir.indexing.describe import ExistingIndex

__all__ = ["IndexRepair", "repair_indexes"]


@dataclass(frozen=True, slots=True)
class IndexRepair:
    """An index, some of whose files are gone, is built anew from the rows of the base table.

    The library leaves such an index when it compacts a branch or a clone: what it moves along it writes
    below that table, and looks for it below the one it was made from.

    Parameters
    ----------
    where : str
        The first segment without files.
    message : str
        What is wrong with the index, and what is done.
    name : str
        The index.
    """

    kind: ClassVar[str] = "index"

    where: str
    message: str
    name: str

    def to_dict(self) -> dict[str, Any]:
        """Return the repair as plain values that JSON can hold."""
        return {"kind": self.kind, **asdict(self)}


def repair_indexes(base: BaseTable, *, dry_run: bool = False) -> list[IndexRepair]:
    """Build indexes anew whose files are gone, or say which would be.

    Parameters
    ----------
    base : BaseTable
        The newest version.
    dry_run : bool, default False
        Whether only to say what would be done.

    Raises
    ------
    ConflictError
        Concurrent commits got in the way of every attempt.
    StorageError
        The store failed.
    """
    repairs = []
    for index in existing_indexes(base.dataset):
        lost = _lost(base, index)
        # What Weir does not build can only be dropped, which is for its owner to decide.
        if lost is None or index.definition is None:
            continue
        if not dry_run:
            rebuild_of(RebuildTask.of(base, index))
        message = f"the files of index {index.name!r} are gone: it is built anew"
        repairs.append(IndexRepair(lost, message, index.name))
    return repairs


def _lost(base: BaseTable, index: ExistingIndex) -> str | None:
    for segment in index.segments:
        store = index_store(base, segment.uuid)
        path = f"_indices/{segment.uuid}"
        if not store.list(path):
            return f"{store.uri}/{path}"
    return None
