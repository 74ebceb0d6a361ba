"""The indexes of a Lance dataset, as definitions from which the same index can be built elsewhere."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import lance

from weir.engine.cache import ByteBudgetCache
from weir.indexing.definition import METRICS, IndexDefinition
from weir.indexing.kinds import IndexKind

if TYPE_CHECKING:
    from lance.lance import IndexDescription

__all__ = ["ExistingIndex", "ExistingSegment", "describe_indexes"]

# What a build takes under another name, or not at all, of what the library reports.
_NOT_PARAMETERS = {"lance_tokenizer", "document_granularity"}
_CODE_FEATURES = {"split_identifiers", "split_on_numerics", "preserve_original", "index_operators"}
_ZONES_BYTES = 512
"""What it counts for in the cache how an index is divided into zones."""


@dataclass(frozen=True, slots=True)
class ExistingSegment:
    """One piece of an index.

    Parameters
    ----------
    uuid : str
        The name of its directory below ``_indices``.
    fragment_ids : frozenset of int
        The fragments it covers.
    is_borrowed : bool
        Whether it lies below another table: the source of a branch or a shallow clone.
    """

    uuid: str
    fragment_ids: frozenset[int]
    is_borrowed: bool = False


@dataclass(frozen=True, slots=True)
class ExistingIndex:
    """An index of a Lance dataset.

    Parameters
    ----------
    name : str
        Its name.
    column : str
        The indexed column; the first of several.
    library_kind : str
        Its kind as the library calls it.
    definition : IndexDefinition or None
        How to build the same index; None if Weir builds none of this kind. It is maintained all the
        same, by Lance.
    segments : tuple of ExistingSegment
        Its pieces, oldest first.
    num_rows : int
        The rows it covers.
    """

    name: str
    column: str
    library_kind: str
    definition: IndexDefinition | None
    segments: tuple[ExistingSegment, ...]
    num_rows: int

    @property
    def fragment_ids(self) -> frozenset[int]:
        """The fragments it covers."""
        return frozenset().union(*(segment.fragment_ids for segment in self.segments))

    def declared_with(self, parameters: Mapping[str, Any]) -> ExistingIndex:
        """Return it with parameters that the library does not keep added to its definition.

        Of an index without rows it tells some, which are its own defaults.
        """
        if self.definition is None:
            return self
        told = self.definition.parameters
        every = {**parameters, **told} if self.num_rows else {**told, **parameters}
        return replace(self, definition=replace(self.definition, parameters=MappingProxyType(every)))


def describe_indexes(
    dataset: lance.LanceDataset, listed: Iterable[IndexDescription], cache: ByteBudgetCache
) -> tuple[ExistingIndex, ...]:
    """Return the indexes of a dataset by name, without the library's own tables, such as the MemWAL index.

    Reads zone maps and Bloom filters of which the cache knows no segment yet.

    Parameters
    ----------
    dataset : LanceDataset
        The dataset.
    listed : iterable of IndexDescription
        Its indexes, as the library lists them.
    cache : ByteBudgetCache
        Keeps what is read for it.
    """
    found = [index for index in listed if index.field_names]
    return tuple(_existing(dataset, index, cache) for index in sorted(found, key=lambda one: one.name))


def _existing(dataset: lance.LanceDataset, index: Any, cache: ByteBudgetCache) -> ExistingIndex:
    kind = IndexKind.of_library(index.index_type)
    column = index.field_names[0]
    definition = None
    # An index over several columns, or into a struct, is not one that Weir builds.
    if kind is not None and len(index.field_names) == 1 and column in dataset.schema.names:
        parameters = _parameters(dataset, index, kind, cache)
        if parameters is not None:
            definition = IndexDefinition(index.name, column, kind, MappingProxyType(parameters))
    return ExistingIndex(
        name=index.name,
        column=column,
        library_kind=index.index_type,
        definition=definition,
        segments=tuple(
            ExistingSegment(
                str(segment.uuid), frozenset(segment.fragment_ids), is_borrowed=segment.base_id is not None
            )
            for segment in index.segments
        ),
        num_rows=index.num_rows_indexed,
    )


def _parameters(
    dataset: lance.LanceDataset, index: Any, kind: IndexKind, cache: ByteBudgetCache
) -> dict[str, Any] | None:
    details: Mapping[str, Any] = index.details
    if kind.is_vector:
        compression = details.get("compression") or {}
        hnsw = details.get("hnsw") or {}
        found = {
            "metric": str(details.get("metric_type", "l2")).lower(),
            "num_sub_vectors": compression.get("num_sub_vectors"),
            "num_bits": compression.get("num_bits") if kind is IndexKind.IVF_PQ else None,
            "m": hnsw.get("max_connections"),
            "ef_construction": hnsw.get("construction_ef"),
        }
        if found["metric"] not in METRICS:
            return None
        return {name: value for name, value in found.items() if value is not None}
    if kind is IndexKind.INVERTED:
        if any(details.get(feature) for feature in _CODE_FEATURES):
            return None
        return {
            name: copy.copy(value)
            for name, value in details.items()
            if name not in _NOT_PARAMETERS | _CODE_FEATURES
        }
    if kind in (IndexKind.ZONEMAP, IndexKind.BLOOMFILTER):
        return dict(_zones_of(dataset, index, kind, cache))
    return {}


def _zones_of(
    dataset: lance.LanceDataset, index: Any, kind: IndexKind, cache: ByteBudgetCache
) -> dict[str, Any]:
    """Return how a zone map or a Bloom filter is divided into zones: the same in all of its segments.

    To tell it, the library reads all of the index, and keeps it. Segments never change.
    """
    keys = [("zones", str(segment.uuid)) for segment in index.segments]
    known: dict[str, Any] | None = next(filter(None, map(cache.get, keys)), None)
    if known is None:
        names = ("rows_per_zone",) if kind is IndexKind.ZONEMAP else ("number_of_items", "probability")
        first = dataset.stats.index_stats(index.name)["indices"][0]
        known = {name: first[name] for name in names if name in first}
    for key in keys:
        cache.put(key, known, _ZONES_BYTES)
    return known
