"""Generations whose data files become data files of the base table, by a server-side copy.

A large generation with only live rows is what a merge would write, except for the column ``_tombstone``, in
which nothing is set. So its files are copied beside those of the base table: on a local disk by a hard link,
on an object store by a server-side copy, and of the rows only keys are read. The fragment does not map the
flags to a column, so they are never read; compaction drops them.

From then on neither refers to the other: the generation can be collected, and the base table compacted.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import uuid4

import pyarrow as pa

from weir.base.row_commit import fragments_with_files
from weir.base.schema import all_field_ids
from weir.base.table import BaseTable
from weir.engine.logs import get_logger
from weir.errors import StorageError
from weir.format import layout
from weir.format.shard_manifest import FlushedGeneration
from weir.format.wal_entry import TOMBSTONE
from weir.merge.plan import estimated_bytes
from weir.merge.rows import RunRows, WholeGeneration

__all__ = ["copied_generation", "copied_generations", "is_large"]

_log = get_logger(__name__)
_LEAST_ROWS = 100_000
_LEAST_BYTES = 32 * 1024 * 1024
"""Below both, rows of several generations are better in one fragment."""


def copied_generations(base: BaseTable, rows: RunRows) -> tuple[str, ...]:
    """Copy the data files of those generations of some runs that can be fragments as they are.

    Parameters
    ----------
    base : BaseTable
        The table.
    rows : RunRows
        The merged rows of the generations; copied ones are no longer among the rows to write.

    Returns
    -------
    tuple of str
        The library's descriptions of the fragments, which no version has yet.
    """
    found: list[str] = []

    def take(generation: WholeGeneration) -> bool:
        fragments = copied_generation(base, generation)
        found.extend(fragments or ())
        return fragments is not None

    rows.take_whole(take)
    return tuple(found)


def copied_generation(base: BaseTable, generation: WholeGeneration) -> tuple[str, ...] | None:
    """Copy the data files of a generation, if it is large and they can be those of fragments.

    Parameters
    ----------
    base : BaseTable
        The table.
    generation : WholeGeneration
        The generation, whose rows are all live.

    Returns
    -------
    tuple of str or None
        The library's descriptions of the fragments, which no version has yet; None where its rows have to be
        written.
    """
    if not (is_large(generation.flushed) and _can_be_copied(base, generation)):
        return None
    try:
        return _copied(base, generation)
    except StorageError as error:
        # A file too large to be copied, a disk without links. What was copied before it is deleted by the
        # library's cleanup.
        _log.warning("merge.not_copied", generation=generation.flushed.generation, error=str(error))
        return None


def is_large(flushed: FlushedGeneration) -> bool:
    """Whether a generation is worth a separate fragment."""
    return flushed.physical_rows >= _LEAST_ROWS or estimated_bytes(flushed) >= _LEAST_BYTES


def _can_be_copied(base: BaseTable, generation: WholeGeneration) -> bool:
    """Whether the files say the same as if the rows were written into the base table."""
    dataset = generation.dataset
    files = [file for one in dataset.get_fragments() for file in one.metadata.files]
    versions = {f"{file.file_major_version}.{file.file_minor_version}" for file in files}
    if versions != {base.dataset.data_storage_version}:
        return False
    if any(one.num_deletions for one in dataset.get_fragments()):
        return False
    names = base.schema.names
    ids = {path: number for path, number in all_field_ids(dataset.lance_schema).items() if path != TOMBSTONE}
    if ids != all_field_ids(base.dataset.lance_schema):
        return False
    wanted = base.dataset.schema
    same = all(_is_stored_alike(dataset.schema.field(name), wanted.field(name)) for name in names)
    schema = base.row_schema
    return same and generation.columns(schema.remove(schema.get_field_index(TOMBSTONE))).is_same(names)


def _is_stored_alike(one: pa.Field, other: pa.Field) -> bool:
    return one.type.equals(other.type, check_metadata=True) and _encoding(one) == _encoding(other)


def _encoding(field: pa.Field) -> Mapping[bytes, bytes]:
    return {
        name: value for name, value in (field.metadata or {}).items() if name.startswith(b"lance-encoding")
    }


def _copied(base: BaseTable, generation: WholeGeneration) -> tuple[str, ...]:
    directory = layout.generation_path(generation.task.shard_id, generation.flushed.path)

    def copy(name: str) -> str:
        # Another merge may copy the same file, and delete its useless copy.
        copied = f"{uuid4().hex}.lance"
        base.store.copy(f"{directory}/data/{name}", f"data/{copied}")
        return copied

    return fragments_with_files(generation.dataset, TOMBSTONE, copy)
