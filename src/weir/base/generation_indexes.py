"""Which indexes the generations of a table get, according to its base table."""

from __future__ import annotations

from weir.base.index_changes import base_indexes
from weir.base.index_upkeep import model_of
from weir.base.maintained_indexes import maintained_indexes
from weir.base.table import BaseTable
from weir.engine.logs import get_logger
from weir.errors import CorruptionError
from weir.indexing.build_plan import GenerationIndex
from weir.indexing.describe import ExistingIndex

__all__ = ["generation_indexes"]

_log = get_logger(__name__)


def generation_indexes(base: BaseTable) -> tuple[GenerationIndex, ...]:
    """Return the maintained indexes of the newest version of a table, with their models.

    Read once per process for each version.
    """
    base = base.latest()
    return base.engine.cache.get_or_load(
        ("generation indexes", base.namespace, base.version_key),
        lambda: _found(base),
        lambda _: 1024,
        base.lifetime,
    )


def _found(base: BaseTable) -> tuple[GenerationIndex, ...]:
    maintained = set(maintained_indexes(base))
    found = (_generation_index(base, index) for index in base_indexes(base) if index.name in maintained)
    return tuple(one for one in found if one is not None)


def _generation_index(base: BaseTable, index: ExistingIndex) -> GenerationIndex | None:
    if index.definition is None:
        return None
    try:
        return GenerationIndex(
            index.definition, model_of(base, index), base.field_ids.get(index.definition.column)
        )
    except CorruptionError as error:
        # A generation without an index is slower to search; without a generation, writing would stop.
        _log.warning("index.damaged", index=index.name, where=error.where, error=error.message)
        return None
