"""Where the files of an index are: below the table, or below its source if it is a branch or clone."""

from __future__ import annotations

from weir.base.index_list import list_indexes
from weir.base.table import BaseTable
from weir.storage.interface import ObjectStore
from weir.storage.metered import MeteredStore
from weir.storage.open import open_store

__all__ = ["index_store"]

_NOMINAL_BYTES = 256


def index_store(base: BaseTable, uuid: str) -> ObjectStore:
    """Return the store that has a segment of an index, at ``_indices/<uuid>``.

    Parameters
    ----------
    base : BaseTable
        The table, at a version that has the segment.
    uuid : str
        The segment.

    Raises
    ------
    CorruptionError
        The part of the manifest that lists the indexes cannot be decoded.
    StorageError
        The store failed.
    """
    places = base.dataset.base_paths()
    if not places:
        return base.store

    def find() -> ObjectStore:
        segments = (segment for index in list_indexes(base.dataset) for segment in index.segments)
        base_id = next((one.base_id for one in segments if str(one.uuid) == uuid), None)
        if base_id is None:
            return base.store
        return MeteredStore(open_store(places[base_id].path, base.store.storage_options), base.store.engine)

    return base.engine.cache.get_or_load(
        ("index store", base.namespace, uuid), find, lambda _: _NOMINAL_BYTES
    )
