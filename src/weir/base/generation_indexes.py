"""Which indexes the generations of a table are to have, as its base table says."""

from __future__ import annotations

from weir.base.index_changes import base_indexes
from weir.base.index_upkeep import model_of
from weir.base.table import BaseTable
from weir.base.versions import maintained_indexes
from weir.cache import process_cache
from weir.indexing.generation import GenerationIndex

__all__ = ["generation_indexes"]


def generation_indexes(base: BaseTable) -> tuple[GenerationIndex, ...]:
    """Return the maintained indexes of the newest version of a table, with their models.

    Read once per process for each version.
    """
    base = base.latest()
    return process_cache().get_or_load(
        ("generation indexes", base.namespace, base.version), lambda: _found(base), lambda _: 1024
    )


def _found(base: BaseTable) -> tuple[GenerationIndex, ...]:
    maintained = set(maintained_indexes(base))
    return tuple(
        GenerationIndex(index.definition, model_of(base, index))
        for index in base_indexes(base)
        if index.name in maintained and index.definition is not None
    )
