"""Which indexes of the base table are maintained: generations get them, and collection waits for them.

The details of the MemWAL index name them, or say that all are maintained. The released library supports both.
LanceDB uses only the names, and ignores vector and text indexes that are not named: so all are always named,
and the list follows the existing indexes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import lance

from weir.base.index_list import list_indexes
from weir.base.table import BaseTable
from weir.format.index_details import IndexDetails

__all__ = ["lacking_indexes", "maintained_indexes", "with_maintained_named", "without_lacking"]


def maintained_indexes(base: BaseTable) -> tuple[str, ...]:
    """Return the indexes of this version that have to catch up with merged generations, by name.

    A maintained index that does not exist has nothing to catch up with.
    """
    details = base.details
    if not details.maintain_all_indexes and not details.maintained_indexes:
        return ()
    existing = _existing(base.dataset)
    return tuple(
        sorted(existing if details.maintain_all_indexes else existing & set(details.maintained_indexes))
    )


def with_maintained_named(
    details: IndexDetails, dataset: lance.LanceDataset, dropped: Collection[str] = ()
) -> IndexDetails:
    """Return details that name every index of a version that they have maintained, but those to be dropped.

    For the commit directly after that version: an older one may lack some of its indexes. A named index that
    does not exist stays in the list: it may be about to be built, and does no harm.
    """
    if not details.maintain_all_indexes:
        return details
    missing = _existing(dataset).difference(details.maintained_indexes, dropped)
    if not missing:
        return details
    return replace(details, maintained_indexes=tuple(sorted({*details.maintained_indexes, *missing})))


def without_lacking(
    details: IndexDetails, names: Collection[str], dataset: lance.LanceDataset
) -> IndexDetails:
    """Return details that do not name some indexes that a version lacks.

    For the commit directly after that version: another process may have built one of them meanwhile.
    """
    gone = set(names).intersection(details.maintained_indexes) - _existing(dataset) if names else ()
    if not gone:
        return details
    return replace(
        details, maintained_indexes=tuple(one for one in details.maintained_indexes if one not in gone)
    )


def lacking_indexes(base: BaseTable) -> frozenset[str]:
    """Return which indexes a version has named as maintained and does not have."""
    return frozenset(base.details.maintained_indexes) - _existing(base.dataset)


def _existing(dataset: lance.LanceDataset) -> set[str]:
    # An index over no columns is one of the library's own tables, such as the MemWAL index itself.
    return {index.name for index in list_indexes(dataset) if index.field_names}
