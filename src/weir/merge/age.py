"""The age of unmerged rows, from the write time of the objects that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from weir.engine.concurrent_map import concurrent_map
from weir.format import layout
from weir.format.shard_manifest import FlushedGeneration
from weir.merge.plan import MergeTask
from weir.storage.interface import ObjectStore

__all__ = ["age_of_generation", "age_of_object", "oldest_age"]


def age_of_object(store: ObjectStore, path: str) -> timedelta:
    """Return how long ago an object was written; 0 if it is not there. One round trip."""
    meta = store.head(path)
    return timedelta(0) if meta is None else max(datetime.now(UTC) - meta.last_modified, timedelta(0))


def age_of_generation(store: ObjectStore, shard_id: UUID, generation: FlushedGeneration) -> timedelta:
    """Return how long ago a generation was flushed. One round trip."""
    return age_of_object(store, layout.bloom_filter_path(shard_id, generation.path))


def oldest_age(tasks: Sequence[MergeTask]) -> timedelta:
    """Return how long ago the oldest generation of some tasks was flushed. A round trip for each shard.

    Parameters
    ----------
    tasks : sequence of MergeTask
        The tasks of one table, by shard and ascending generation.
    """
    first: dict[UUID, MergeTask] = {}
    for task in tasks:
        first.setdefault(task.shard_id, task)
    oldest = list(first.values())
    if not oldest:
        return timedelta(0)
    ages = concurrent_map(
        lambda task: age_of_generation(task.store, task.shard_id, task.generations[0]),
        oldest,
        is_local=oldest[0].store.is_local,
        engine=oldest[0].store.engine,
    )
    return max(ages)
