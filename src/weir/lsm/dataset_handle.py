"""A Lance dataset at a version as a value, which another process opens once."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import lance

from weir.base.dataset import library_options
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
        Whose cache holds it once it was opened; in another process, that of this one.
    dataset : LanceDataset, optional
        The open dataset. Kept here and not in the cache, since the library's files and memory for a version
        should be kept only while it is read. Not pickled.
    """

    uri: str
    version: int
    storage_options: tuple[tuple[str, str], ...]
    engine: EngineContext = field(repr=False, compare=False)
    dataset: lance.LanceDataset | None = field(default=None, repr=False, compare=False)

    def __reduce__(self) -> tuple[type[DatasetHandle], tuple[object, ...]]:
        return DatasetHandle, (self.uri, self.version, self.storage_options, self.engine)

    @classmethod
    def of(cls, dataset: lance.LanceDataset, store: ObjectStore) -> DatasetHandle:
        """Return an open dataset as a value; in this process it is not opened again."""
        options = tuple(sorted((library_options(store) or {}).items()))
        return cls(dataset.uri, dataset.version, options, store.engine, dataset)

    @property
    def is_gone(self) -> bool:
        """Whether a local dataset is there no more; an object store is not asked."""
        return "://" not in self.uri and not os.path.isdir(self.uri)

    def opened(self) -> lance.LanceDataset:
        """Return the dataset."""
        if self.dataset is not None:
            return self.dataset
        options = dict(self.storage_options) or None
        return self.engine.cache.get_or_load(
            ("open", self.uri, self.version, self.storage_options),
            lambda: lance.dataset(self.uri, version=self.version, storage_options=options),
            lambda _: _NBYTES,
        )
