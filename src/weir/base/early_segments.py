"""Segments of the key indexes over fragments that no version has yet.

The library builds an index over fragments of a version. While a merge looks for the rows that its new
fragments replace, there is none that has them. So a task makes one for itself, in a scratch directory: the
version that the merge is based on, and above it the new fragments, whose files stay where they are. There
they get the numbers that they get in the merge's commit, unless another commit comes first.

So a segment is a guess until then. :func:`usable_segments` compares it with the version that was committed:
the fragments with its numbers must have the very data files that it was built from. The files of others are
unreferenced, as those of a lost task are; the library's cleanup removes them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import lance
import pyarrow as pa
from lance import DatasetBasePath
from lance.dataset import Index, LanceOperation
from lance.fragment import FragmentMetadata

from weir.base.dataset import library_options
from weir.base.key_index import MAX_SEGMENTS, key_index_names, segments_of_extensible
from weir.base.library_errors import LIBRARY_ERRORS, storage_failure
from weir.base.row_commit import fragment_sizes
from weir.base.scratch import scratch_directory
from weir.base.table import BaseTable
from weir.engine.logs import get_logger
from weir.errors import WeirError

__all__ = [
    "EarlySegment",
    "EarlySegmentTask",
    "build_early_segment",
    "early_segment_tasks",
    "usable_segments",
]

_log = get_logger(__name__)
_INDEXES = "_indices"
_BASE_NAME = "weir-merge"
_LEAST_ROWS = 100_000
"""Fewer are indexed as fast after the commit."""
_ROWS_PER_SEGMENT = 500_000
_MOST_TASKS = 4
"""For each column: every lookup asks all segments."""


@dataclass(frozen=True, slots=True)
class EarlySegmentTask:
    """Build a segment over some new fragments. Picklable and stateless.

    Parameters
    ----------
    base : BaseTable
        The version that they will be added to.
    new : tuple of str
        The library's descriptions of all new fragments, in the order in which they will be added.
    first, end : int
        Which of them: from ``first`` to before ``end``.
    column : str
        The key column.
    name : str
        Its index.
    """

    base: BaseTable
    new: tuple[str, ...]
    first: int
    end: int
    column: str
    name: str


@dataclass(frozen=True, slots=True)
class EarlySegment:
    """A segment that was built over fragments no version had. Can be pickled.

    Parameters
    ----------
    index : Index
        The library's description.
    fragments : dict of int to tuple of str
        By the number that it has for a fragment, the names of the data files it was built from.
    """

    index: Index
    fragments: dict[int, tuple[str, ...]]

    @property
    def files(self) -> list[str]:
        """Paths of its files, relative to the table."""
        return [f"{_INDEXES}/{self.index.uuid}/{file.path}" for file in self.index.files or ()]


def early_segment_tasks(base: BaseTable, new: Sequence[str], rows: int) -> tuple[EarlySegmentTask, ...]:
    """Return the tasks that build segments over all new fragments; none if that is left for later.

    Large merges get several segments, which are built in parallel. But each has at least a sixteenth of the
    table's rows: after about sixteen of them all become one, which must not cost more than building them.

    Parameters
    ----------
    base : BaseTable
        The version that they will be added to.
    new : sequence of str
        The library's descriptions of all new fragments, in the order in which they will be added.
    rows : int
        How many rows they have.
    """
    existing = segments_of_extensible(base) if rows >= _LEAST_ROWS else None
    if existing is None:
        return ()
    sizes = [int(json.loads(text)["physical_rows"]) for text in new]
    least = max(_ROWS_PER_SEGMENT, (sum(fragment_sizes(base.dataset).values()) + rows) // MAX_SEGMENTS)
    tasks: list[EarlySegmentTask] = []
    for column, name in key_index_names(base.dataset, base.primary_key).items():
        count = max(1, min(rows // least, _MOST_TASKS, MAX_SEGMENTS - existing[name]))
        for first, end in _parts(sizes, count):
            tasks.append(EarlySegmentTask(base, tuple(new), first, end, column, name))
    return tuple(tasks)


def _parts(sizes: Sequence[int], count: int) -> list[tuple[int, int]]:
    """Cut a sequence into at most so many stretches of about the same sum."""
    parts: list[tuple[int, int]] = []
    first = done = 0
    total = sum(sizes)
    for end, size in enumerate(sizes, 1):
        done += size
        if done * count >= total * (len(parts) + 1):
            parts.append((first, end))
            first = end
    return parts


def build_early_segment(task: EarlySegmentTask) -> EarlySegment | None:
    """Build a segment over some new fragments, in files that no version refers to.

    Returns
    -------
    EarlySegment or None
        None if that failed: the index is then extended after the commit, as it is otherwise.
    """
    try:
        with scratch_directory() as scratch:
            return _built(task, scratch)
    except WeirError as error:
        failure = error
    except LIBRARY_ERRORS as error:
        failure = storage_failure(error, "indexing the rows of a merge", where=task.base.uri)
    _log.warning("merge.not_indexed_early", where=task.base.uri, error=str(failure))
    return None


def _built(task: EarlySegmentTask, scratch: Path) -> EarlySegment:
    base, store = task.base, task.base.store
    manifest = base.manifest()
    copied = scratch / manifest.path
    copied.parent.mkdir()
    copied.write_bytes(manifest.data)
    options = library_options(store)
    dataset = lance.dataset(str(scratch), storage_options=options)
    there = dataset.base_paths()
    dataset.add_bases([DatasetBasePath(store.uri, name=_BASE_NAME, is_dataset_root=True)])
    dataset = lance.dataset(str(scratch), storage_options=options)
    (own,) = dataset.base_paths().keys() - there.keys()
    operation = LanceOperation.Append([_below(text, own) for text in task.new])
    before = {one.fragment_id for one in dataset.get_fragments()}
    dataset = lance.LanceDataset.commit(
        str(scratch), operation, read_version=dataset.version, storage_options=options
    )
    added = [one for one in dataset.get_fragments() if one.fragment_id not in before]
    chosen = added[task.first : task.end]
    # "replace", for the library refuses a name otherwise that segments have already.
    index = dataset.create_index_uncommitted(
        task.column, "BTREE", name=task.name, replace=True, fragment_ids=[one.fragment_id for one in chosen]
    )
    segment = EarlySegment(index, {one.fragment_id: _data_files(one.metadata) for one in chosen})
    for path in segment.files:
        with pa.memory_map(str(scratch / path)) as file:
            store.put(path, file.read_buffer())
    return segment


def _below(text: str, base_id: int) -> FragmentMetadata:
    """Return a new fragment whose files are in another place than the dataset."""
    described = json.loads(text)
    for file in described["files"]:
        file["base_id"] = base_id
    return FragmentMetadata.from_json(json.dumps(described))


def _data_files(fragment: FragmentMetadata) -> tuple[str, ...]:
    return tuple(file.path for file in fragment.files)


def usable_segments(base: BaseTable, early: Sequence[EarlySegment]) -> list[Index]:
    """Return those segments that are right for a version, as if they had been built from it.

    Parameters
    ----------
    base : BaseTable
        The version.
    early : sequence of EarlySegment
        What was built before it was committed.
    """
    if not early:
        return []
    files = {one.fragment_id: _data_files(one.metadata) for one in base.dataset.get_fragments()}
    return [
        replace(one.index, dataset_version=base.version)
        for one in early
        if all(files.get(number) == names for number, names in one.fragments.items())
    ]
