"""Repairs of base table indexes: one with missing or damaged files is rebuilt from the rows."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from weir.base.index_files import damaged_index_files
from weir.base.index_list import existing_indexes
from weir.base.index_upkeep import RebuildTask, rebuild_of
from weir.base.table import BaseTable
from weir.maintenance.verification.base_index import BaseIndexCheck, base_index_checks, check_base_index

__all__ = ["IndexRepair", "repair_indexes"]


@dataclass(frozen=True, slots=True)
class IndexRepair:
    """The rebuild of an index with missing or damaged files from the rows of the base table.

    The library leaves an index without files when it compacts a branch or a clone: it writes remapped files
    below that table, but looks for them below its source.

    Parameters
    ----------
    where : str
        The first segment that cannot be read.
    message : str
        The problem of the index, and the repair.
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
    """Rebuild indexes with missing or damaged files, or report which would be. Reads all index files.

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
    checks = base_index_checks(base, rows=False)
    repairs = []
    for index in existing_indexes(base.dataset, base.engine.cache):
        # What Weir does not build can only be dropped, which is for its owner to decide.
        if index.definition is None:
            continue
        lost = next(filter(None, (_lost(one) for one in checks if one.name == index.name)), None)
        lost = lost or _is_not_what_was_written(base, index.name)
        if lost is None:
            continue
        where, problem = lost
        if not dry_run:
            rebuild_of(RebuildTask.of(base, index))
        repairs.append(IndexRepair(where, f"{problem}: it is built anew", index.name))
    return repairs


def _lost(check: BaseIndexCheck) -> tuple[str, str] | None:
    """Return the location of an unreadable segment, and the problem of its index."""
    found = check_base_index(check)
    return (found[0].where, found[0].message) if found else None


def _is_not_what_was_written(base: BaseTable, name: str) -> tuple[str, str] | None:
    """Return the file of an index with a wrong checksum, and the problem of the index."""
    for damage in damaged_index_files(base, name):
        return f"{base.uri}/{damage.path}", f"index {name!r} is damaged: {damage.problem}"
    return None
