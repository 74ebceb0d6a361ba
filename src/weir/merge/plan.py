"""The merge plan: which generations to merge, in tasks that fit into memory.

Lance MemWAL spec, section "Merging MemTable to Base Table": within a shard lower generations are
older and are merged first. Shards are independent of each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from uuid import UUID

from weir.base.merge_guard import deletes_id
from weir.errors import OptionError
from weir.format.index_details import IndexDetails
from weir.format.shard_manifest import FlushedGeneration, ShardManifest
from weir.storage.interface import ObjectStore

__all__ = ["DEFAULT_MAX_TASK_BYTES", "MergeTask", "estimated_bytes", "plan_merge"]

DEFAULT_MAX_TASK_BYTES = 256 * 1024 * 1024
"""Arrow bytes of the generations in one task, unless a single generation is larger."""

_BYTES_PER_ROW_UNTOLD = 1024


@dataclass(frozen=True, slots=True)
class MergeTask:
    """A run of generations of one shard to merge into the base table. Picklable, stateless.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    shard_id : UUID
        The shard.
    generations : tuple of FlushedGeneration
        The run, ascending, at least one.
    after_generation : int
        What has to be merged before: the generation before the run. The tasks of one shard run in
        order.
    """

    store: ObjectStore
    shard_id: UUID
    generations: tuple[FlushedGeneration, ...]
    after_generation: int

    def __post_init__(self) -> None:
        """Check that the run is one."""
        numbers = [one.generation for one in self.generations]
        if not numbers or numbers != sorted(set(numbers)) or numbers[0] <= self.after_generation:
            raise OptionError(
                f"a merge task needs ascending generations above {self.after_generation}, not {numbers}",
                where=f"shard {self.shard_id}",
            )

    @property
    def last_generation(self) -> int:
        """The generation the shard is merged up to once the task is done."""
        return self.generations[-1].generation

    @property
    def rows(self) -> int:
        """Rows of the run, deletes and rows that later ones replace among them."""
        return sum(one.physical_rows for one in self.generations)

    @property
    def nbytes(self) -> int:
        """Estimate of the run's rows as Arrow data, in bytes."""
        return sum(map(estimated_bytes, self.generations))


def estimated_bytes(flushed: FlushedGeneration) -> int:
    """Return the size of a generation's rows as Arrow data, guessed where its writer has not told."""
    if flushed.in_memory_bytes is not None:
        return flushed.in_memory_bytes
    return flushed.physical_rows * _BYTES_PER_ROW_UNTOLD


def plan_merge(
    store: ObjectStore,
    details: IndexDetails,
    manifests: Iterable[ShardManifest],
    *,
    max_task_bytes: int = DEFAULT_MAX_TASK_BYTES,
) -> tuple[MergeTask, ...]:
    """Return the tasks that merge everything the manifests list and the base table lacks.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    details : IndexDetails
        Details of the MemWAL index, with the merge progress.
    manifests : iterable of ShardManifest
        The newest manifest of every shard to merge.
    max_task_bytes : int, default 256 MiB
        Arrow bytes per task. A larger generation has its own task; generations whose deletes an interrupted
        merge has applied stay together.

    Returns
    -------
    tuple of MergeTask
        By ascending shard id and generation. The tasks of one shard depend on each other in that
        order; tasks of different shards may run at the same time.

    Raises
    ------
    OptionError
        ``max_task_bytes`` is not positive.
    """
    if max_task_bytes < 1:
        raise OptionError(f"a merge task cannot have at most {max_task_bytes} bytes", where="max_task_bytes")
    tasks: list[MergeTask] = []
    for manifest in sorted(manifests, key=lambda one: one.shard_id):
        after = details.merged_generation(manifest.shard_id)
        unmerged = sorted(
            (one for one in manifest.flushed_generations if one.generation > after),
            key=lambda one: one.generation,
        )
        deleted = details.merged_generation(deletes_id(manifest.shard_id))
        for run in _cut(unmerged, max_task_bytes, together_up_to=deleted):
            tasks.append(MergeTask(store, manifest.shard_id, run, after))
            after = run[-1].generation
    return tuple(tasks)


def _cut(
    generations: Iterable[FlushedGeneration], max_bytes: int, *, together_up_to: int
) -> Iterator[tuple[FlushedGeneration, ...]]:
    run: list[FlushedGeneration] = []
    size = 0
    for one in generations:
        if run and one.generation > together_up_to and size + estimated_bytes(one) > max_bytes:
            yield tuple(run)
            run, size = [], 0
        run.append(one)
        size += estimated_bytes(one)
    if run:
        yield tuple(run)
