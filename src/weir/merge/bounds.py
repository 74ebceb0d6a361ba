"""The key range of a merge: if the base table has no keys in it, nothing is replaced."""

from __future__ import annotations

from collections.abc import Sequence

from weir.base.table import BaseTable
from weir.engine.concurrent_map import concurrent_map
from weir.format.generation_catalog import GenerationCatalog
from weir.lsm.held_values import held_in_base
from weir.merge.plan import MergeTask
from weir.merge.rows import catalog_of
from weir.sharding.value_set import ValueSet, ordinal

__all__ = ["have_new_keys"]


def have_new_keys(base: BaseTable, tasks: Sequence[MergeTask]) -> bool:
    """Whether the key ranges of some runs and the base table are disjoint, as far as known.

    It decides how they are merged, and never what comes of it: a key that is there all the same is found.

    Parameters
    ----------
    base : BaseTable
        The base table. Composite keys are not supported.
    tasks : sequence of MergeTask
        The runs.
    """
    if len(base.primary_key) != 1:
        return False
    (name,) = base.primary_key
    there = held_in_base(base)(name)
    if there is None:
        return False
    asked = [(task, flushed) for task in tasks for flushed in task.generations]
    catalogs = concurrent_map(
        lambda one: catalog_of(*one), asked, is_local=base.store.is_local, engine=base.engine
    )
    return all(_lies_beside(there, name, catalog) for catalog in catalogs)


def _lies_beside(there: ValueSet, name: str, catalog: GenerationCatalog | None) -> bool:
    column = None if catalog is None else catalog.columns.get(name)
    if column is None or column.minimum is None or column.maximum is None:
        return False
    own = ValueSet(lower=ordinal(column.minimum), upper=ordinal(column.maximum))
    return there.intersect(own).is_empty
