"""A Lance dataset at a version as a value, which is opened once in every process that reads it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import lance

from weir.engine.context import EngineContext
from weir.storage.interface import ObjectStore

__all__ = ["DatasetHandle"]

_NBYTES = 64 * 1024
"""What an open dataset counts for in the cache: its manifest, roughly."""


@dataclass(frozen=True, slots=True)
class DatasetHandle:
    """Where a dataset is, and how to reach it. Can be pickled.

    Parameters
    ----------
    uri : str
        The dataset.
    version : int
        Its version.
    storage_options : tuple of (str, str)
        How to reach it.
    engine : EngineContext
        Whose cache holds it; in another process, that of this one.
    """

    uri: str
    version: int
    storage_options: tuple[tuple[str, str], ...]
    engine: EngineContext = field(repr=False, compare=False)

    @classmethod
    def of(cls, dataset: lance.LanceDataset, store: ObjectStore) -> DatasetHandle:
        """Return an open dataset as a value; in this process it is not opened again."""
        kept = cls(dataset.uri, dataset.version, tuple(sorted(store.storage_options.items())), store.engine)
        store.engine.cache.put(kept._key, dataset, _NBYTES)
        return kept

    @property
    def _key(self) -> Hashable:
        return ("open", self.uri, self.version, self.storage_options)

    def opened(self) -> lance.LanceDataset:
        """Return the dataset."""
        options = dict(self.storage_options) or None
        return self.engine.cache.get_or_load(
            self._key,
            lambda: lance.dataset(self.uri, version=self.version, storage_options=options),
            lambda _: _NBYTES,
        )
