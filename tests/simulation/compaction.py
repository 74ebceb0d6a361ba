"""What stands in for ``lance.optimize``: rewriting fragments into fewer, without what is deleted of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from tests.simulation.library import Change, Dataset, Fragment, live_rows_of

__all__ = ["Compaction", "CompactionOptions"]


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """Stands in for ``lance.optimize.CompactionOptions``."""

    target_rows_per_fragment: int
    materialize_deletions_threshold: float
    excluded_fragment_ids: Sequence[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _File:
    path: str


@dataclass(frozen=True, slots=True)
class _DeletionFile:
    location: str

    def path(self, fragment_id: int) -> str:
        return self.location


@dataclass(frozen=True, slots=True)
class _Planned:
    """What the library says of a fragment that is to be rewritten."""

    id: int
    files: tuple[_File, ...]
    deletion_file: _DeletionFile | None


@dataclass(frozen=True, slots=True)
class _Metrics:
    fragments_removed: int
    fragments_added: int


@dataclass(frozen=True, slots=True)
class _Result:
    rewritten: frozenset[int]
    new: tuple[Fragment, ...]
    read_version: int

    @property
    def metrics(self) -> _Metrics:
        return _Metrics(len(self.rewritten), len(self.new))


@dataclass(frozen=True, slots=True)
class _Task:
    chosen: tuple[Fragment, ...]

    @property
    def fragments(self) -> list[_Planned]:
        return [
            _Planned(
                one.number,
                (_File(one.path.removeprefix("data/")),),
                None if one.deletions is None else _DeletionFile(one.deletions),
            )
            for one in self.chosen
        ]

    def execute(self, dataset: Dataset) -> _Result:
        """Write the rows that are left of the fragments as one."""
        library = dataset.library
        parts = [live_rows_of(one, library.read_rows(one.path)) for one in self.chosen]
        rows = pa.concat_tables(parts).drop_columns(["_rowid"])
        new: tuple[Fragment, ...] = ()
        if rows.num_rows:
            path = f"data/{library.new_name()}.lance"
            library.put(path, rows)
            new = (Fragment(-1, path, rows.num_rows),)
        return _Result(frozenset(one.number for one in self.chosen), new, dataset.version)


@dataclass(frozen=True, slots=True)
class _Plan:
    tasks: list[_Task]


class Compaction:
    """Stands in for ``lance.optimize.Compaction``."""

    @staticmethod
    def plan(dataset: Dataset, options: CompactionOptions) -> _Plan:
        """Plan to make one fragment of neighbours that are small, and to rewrite those with many deletes."""
        tasks: list[_Task] = []
        chosen: list[Fragment] = []

        def close() -> None:
            if len(chosen) > 1 or any(_is_worn(one, options) for one in chosen):
                tasks.append(_Task(tuple(chosen)))
            chosen.clear()

        for one in dataset.at.fragments:
            is_whole = one.rows >= options.target_rows_per_fragment and not _is_worn(one, options)
            if is_whole or one.number in options.excluded_fragment_ids:
                close()
                continue
            chosen.append(one)
            if sum(_left(each) for each in chosen) >= options.target_rows_per_fragment:
                close()
        close()
        return _Plan(tasks)

    @staticmethod
    def commit(dataset: Dataset, results: Sequence[Any], options: CompactionOptions) -> None:
        """Commit rewrites, all or none."""
        rewritten = frozenset[int]().union(*(one.rewritten for one in results))
        new = [fragment for one in results for fragment in one.new]
        read = min(one.read_version for one in results)
        dataset.commit(Change(rewritten=rewritten), new, read=read)


def _left(fragment: Fragment) -> int:
    return fragment.rows - len(fragment.deleted)


def _is_worn(fragment: Fragment, options: CompactionOptions) -> bool:
    return len(fragment.deleted) > options.materialize_deletions_threshold * fragment.rows
