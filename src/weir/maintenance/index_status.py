"""How far the indexes of the base table are behind its rows, in figures for operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from weir.base.index_list import list_indexes
from weir.base.merge_guard import without_guards
from weir.base.table import BaseTable
from weir.format.index_details import IndexDetails
from weir.indexing.kinds import IndexKind

__all__ = ["IndexReport", "index_reports"]


@dataclass(frozen=True, slots=True)
class IndexReport:
    """One index of the base table.

    Parameters
    ----------
    name : str
        The index.
    kind : str
        Its kind, as for :meth:`weir.TableIndexes.create`, or the library's name for a kind that Weir does not
        build.
    column : str
        The indexed column; the first of several.
    segments : int
        Number of its segments; every search reads each of them.
    rows : int
        Rows it covers.
    unindexed_rows : int
        Rows of the base table that it lacks and that searches scan instead.
    is_maintained : bool
        Whether it is caught up with merged rows.
    behind : mapping of UUID to int
        For every shard, the merged generations that it is not recorded to cover; fully covered shards are
        omitted. Lance MemWAL spec, "Index Catch-up".
    """

    name: str
    kind: str
    column: str
    segments: int
    rows: int
    unindexed_rows: int
    is_maintained: bool
    behind: Mapping[UUID, int]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values that JSON can hold."""
        return {
            "name": self.name,
            "kind": self.kind,
            "column": self.column,
            "segments": self.segments,
            "rows": self.rows,
            "unindexed_rows": self.unindexed_rows,
            "is_maintained": self.is_maintained,
            "behind": {str(shard): generations for shard, generations in self.behind.items()},
        }


def index_reports(base: BaseTable) -> tuple[IndexReport, ...]:
    """Describe the indexes of a version of the base table, by name.

    Reads the manifest of that version alone, which a handle has: no index is opened, no row counted.
    """
    fragments = [fragment.metadata for fragment in base.dataset.get_fragments()]
    rows = {one.id: one.num_rows for one in fragments}
    details = base.details
    reports = []
    # An index over no columns is one of the library's own tables, such as the MemWAL index itself.
    for index in list_indexes(base.dataset):
        if not index.field_names:
            continue
        covered = frozenset().union(*(segment.fragment_ids for segment in index.segments))
        is_maintained = details.maintain_all_indexes or index.name in details.maintained_indexes
        reports.append(
            IndexReport(
                name=index.name,
                kind=str(IndexKind.of_library(index.index_type) or index.index_type),
                column=index.field_names[0],
                segments=len(index.segments),
                rows=sum(count for fragment, count in rows.items() if fragment in covered),
                unindexed_rows=sum(count for fragment, count in rows.items() if fragment not in covered),
                is_maintained=is_maintained,
                behind=_behind(details, index.name) if is_maintained else {},
            )
        )
    return tuple(sorted(reports, key=lambda one: one.name))


def _behind(details: IndexDetails, name: str) -> dict[UUID, int]:
    recorded = next((one.caught_up for one in details.index_catchup if one.index_name == name), ())
    # An index without a record covers nothing of a shard that has merged generations.
    caught_up = {one.shard_id: one.generation for one in recorded}
    behind = {
        one.shard_id: one.generation - caught_up.get(one.shard_id, 0)
        for one in without_guards(details.merged_generations)
    }
    return {shard: generations for shard, generations in sorted(behind.items()) if generations > 0}
