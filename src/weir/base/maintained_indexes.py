"""Which indexes of the base table are maintained: generations get them, and collection waits for them.

The details of the MemWAL index name them, or say that all are maintained. The released library goes by
either. LanceDB goes by the names alone, and searches by no vector or text index that is not named: so all are
named in any case, and what is named follows the indexes that there are.
"""

from __future__ import annotations

from dataclasses import replace

from weir.base.details_commit import update_details
from weir.base.index_list import list_indexes
from weir.base.table import BaseTable
from weir.format.index_details import IndexDetails

__all__ = ["maintained_indexes", "name_maintained_indexes", "with_names"]


def maintained_indexes(base: BaseTable) -> tuple[str, ...]:
    """Return the indexes of this version that have to catch up with merged generations, by name.

    An index that is to be maintained and does not exist has nothing to catch up with.
    """
    return tuple(sorted(_maintained(base, base.details)))


def _maintained(base: BaseTable, details: IndexDetails) -> set[str]:
    if not details.maintain_all_indexes and not details.maintained_indexes:
        return set()
    # An index over no columns is one of the library's own tables, such as the MemWAL index itself.
    existing = {index.name for index in list_indexes(base.dataset) if index.field_names}
    return existing if details.maintain_all_indexes else existing & set(details.maintained_indexes)


def with_names(details: IndexDetails, base: BaseTable) -> IndexDetails:
    """Return details that name the indexes of a version that they have maintained, and no others."""
    names = _maintained(base, details)
    if names == set(details.maintained_indexes):
        return details
    return replace(details, maintained_indexes=tuple(sorted(names)))


def name_maintained_indexes(base: BaseTable) -> BaseTable:
    """Have the details name the maintained indexes. Commits nothing where they do.

    Returns
    -------
    BaseTable
        The version passed in where there is nothing to change; else the newest.

    Raises
    ------
    ConflictError
        Concurrent commits got in the way of every attempt.
    """
    if with_names(base.details, base) is base.details:
        return base
    return update_details(base, lambda details: with_names(details, base))
