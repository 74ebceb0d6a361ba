"""The stand-in for the Lance library does what the library does, in all that Weir's protocols rest on.

Each test does the same to a table of the library, on a real file system, and to one of the stand-in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.dataset import serialize_row_addrs
from tests.simulation import library
from tests.simulation.substitution import substituted
from tests.simulation.world import KEY, SCHEMA, World

from weir.base import manifest as base_manifest
from weir.base import row_commit
from weir.base.create import create_base_table
from weir.base.library_errors import LIBRARY_ERRORS, classify
from weir.base.table import BaseTable
from weir.format.index_details import MergedGeneration
from weir.maintenance import compact
from weir.storage.open import open_store

SHARD = UUID("1c4e7a52-6f0b-4d38-9a11-0c2b3d4e5f60")
Rows = list[tuple[int, int]]
_optimize: Any = compact
"""Has the names of ``lance.optimize``, as Weir finds them."""


class _Table:
    """A table of either library, empty at first.

    Parameters
    ----------
    open_base : callable
        Opens it at its newest version.
    mark : type
        Merge progress, as the library takes it.
    blocklist : callable
        Makes a blocklist of row ids.
    """

    def __init__(
        self, open_base: Callable[[], BaseTable], mark: Any, blocklist: Callable[[list[int]], bytes]
    ) -> None:
        self._open_base = open_base
        self.mark = mark
        self.blocklist = blocklist

    def base(self) -> BaseTable:
        """Return the table at its newest version."""
        return self._open_base()

    def newest(self) -> Any:
        """Return a data set of its own at the newest version."""
        return self._open_base().dataset

    def rows(self, dataset: Any = None) -> Rows:
        """Return the rows, in order of key."""
        shown = self.newest() if dataset is None else dataset
        table = shown.scanner(columns=["id", "value"]).to_table()
        return sorted(zip(table["id"].to_pylist(), table["value"].to_pylist(), strict=True))

    def progress(self) -> int:
        """Return the merge progress of the shard."""
        return self._open_base().details.merged_generation(SHARD)


_Question = Callable[[_Table], Iterator[Any]]


def _upsert(dataset: Any, *rows: tuple[int, int]) -> Any:
    """Return a merge of rows that gives up when it conflicts, and what it is to merge."""
    keys, values = zip(*rows, strict=True)
    builder = dataset.merge_insert(["id"]).when_matched_update_all().when_not_matched_insert_all()
    return builder.conflict_retries(0), pa.table([pa.array(keys), pa.array(values)], schema=SCHEMA)


def _delete(dataset: Any, *keys: int) -> Any:
    builder = dataset.merge_insert(["id"]).when_matched_delete().conflict_retries(0)
    return builder, pa.table([pa.array(keys)], schema=pa.schema([SCHEMA.field("id")]))


def _outcome(merge: Any, marks: Any = ()) -> Any:
    """Return what a merge reports, or what kind of failure it is."""
    builder, rows = merge
    if marks:
        builder = builder.mark_sstables_as_compacted(list(marks))
    try:
        counts = builder.execute(rows)
    except LIBRARY_ERRORS as error:
        return classify(error).name
    return tuple(counts[name] for name in ("num_inserted_rows", "num_updated_rows", "num_deleted_rows"))


def merges_count_what_they_do(table: _Table) -> Iterator[Any]:
    yield _outcome(_upsert(table.newest(), (1, 10), (2, 20)))
    yield _outcome(_upsert(table.newest(), (2, 21), (3, 30)))
    yield _outcome(_delete(table.newest(), 1, 9))
    yield table.rows()


def merges_of_other_keys_pass_each_other(table: _Table) -> Iterator[Any]:
    yield _outcome(_upsert(table.newest(), (1, 10), (2, 20)))
    first, second = table.newest(), table.newest()
    yield _outcome(_upsert(first, (1, 11), (5, 50)))
    yield _outcome(_upsert(second, (2, 21), (6, 60)))
    yield second.version - first.version
    yield table.rows()


def merges_of_one_row_conflict(table: _Table) -> Iterator[Any]:
    yield _outcome(_upsert(table.newest(), (1, 10), (2, 20)))
    first, second, third = table.newest(), table.newest(), table.newest()
    yield _outcome(_upsert(first, (1, 11)))
    yield _outcome(_upsert(second, (1, 12), (7, 70)))
    yield _outcome(_delete(third, 1))
    yield table.rows()


def inserts_of_one_key_conflict(table: _Table) -> Iterator[Any]:
    yield _outcome(_upsert(table.newest(), (1, 10)))
    first, second = table.newest(), table.newest()
    yield _outcome(_upsert(first, (2, 20)))
    yield _outcome(_upsert(second, (2, 21)))
    yield table.rows()


def a_merge_that_may_try_again_sees_the_other(table: _Table) -> Iterator[Any]:
    yield _outcome(_upsert(table.newest(), (1, 10)))
    first, second = table.newest(), table.newest()
    yield _outcome(_upsert(first, (1, 11)))
    builder, rows = _upsert(second, (1, 12))
    yield _outcome((builder.conflict_retries(5), rows))
    yield table.rows()


def progress_only_goes_forward(table: _Table) -> Iterator[Any]:
    for number, generation in enumerate([2, 2, 1, 3]):
        marks = [table.mark(str(SHARD), generation)]
        yield _outcome(_upsert(table.newest(), (number, generation)), marks)
        yield table.progress()
    yield table.rows()


def progress_of_two_merges_that_overlap(table: _Table) -> Iterator[Any]:
    first, second = table.newest(), table.newest()
    yield _outcome(_upsert(first, (1, 10)), [table.mark(str(SHARD), 1)])
    yield _outcome(_upsert(second, (2, 20)), [table.mark(str(SHARD), 3)])
    third = table.newest()
    yield _outcome(_upsert(third, (3, 30)), [table.mark(str(SHARD), 3)])
    yield table.progress(), table.rows()


def old_versions_stay_until_they_are_removed(table: _Table) -> Iterator[Any]:
    begin = table.newest().version
    for value in range(4):
        yield _outcome(_upsert(table.newest(), (1, value)))
    for number in range(begin, begin + 5):
        yield table.rows(table.newest().checkout_version(number))
    table.newest().cleanup_old_versions(versions=[begin + 1, begin + 2], error_if_tagged_old_versions=False)
    for number in range(begin + 1, begin + 5):
        try:
            yield table.rows(table.newest().checkout_version(number))
        except LIBRARY_ERRORS:
            yield "gone"


def rows_are_found_and_left_out(table: _Table) -> Iterator[Any]:
    yield _outcome(_upsert(table.newest(), (1, 10), (2, 20), (3, 30)))
    yield _outcome(_delete(table.newest(), 2))
    dataset = table.newest()
    found = dataset.scanner(columns=["value"], filter="`id` IN (1, 2, 7)", with_row_id=True).to_table()
    yield found["value"].to_pylist()
    blocked = table.blocklist(found["_rowid"].to_pylist())
    yield dataset.scanner(columns=["id"], row_addr_blocklist=blocked).to_table()["id"].to_pylist()
    yield dataset.count_rows()
    yield dataset.take([1], columns=["id"])["id"].to_pylist()


def rows_are_committed_with_marks(table: _Table) -> Iterator[Any]:
    yield _outcome(_upsert(table.newest(), (1, 10), (2, 20), (3, 30)))
    base, early = table.base(), table.newest()
    (number,) = row_commit.fragments_of(base.dataset)
    left = row_commit.without_rows(base.dataset, number, np.array([0, 1]))
    none = row_commit.without_rows(base.dataset, number, np.array([0, 1, 2]))
    assert left is not None
    assert none is not None
    yield left.deleted, none.deleted, none.left, row_commit.without_rows(base.dataset, 77, np.array([0]))
    rows = pa.table([pa.array([1, 4]), pa.array([11, 40])], schema=SCHEMA)
    change = row_commit.RowChange(
        [left], row_commit.write_fragment_files(base.dataset, SCHEMA, rows.to_batches())
    )
    manifest = base_manifest.read_manifest(base.store, base.version)
    for generation in (5, 6):
        version = row_commit.commit_rows(base.store, manifest, change, [MergedGeneration(SHARD, generation)])
        yield None if version is None else version - base.version
    yield table.rows(), table.progress()
    yield sorted(row_commit.fragment_sizes(table.newest()).values())
    batches = list(row_commit.rows_by_address(table.newest(), [number], ["id"]))
    yield pa.Table.from_batches(batches).to_pydict()
    # It has read a row that is gone.
    yield _outcome(_upsert(early, (2, 21)))
    yield _outcome(_upsert(table.newest(), (2, 22)), [table.mark(str(SHARD), 5)])
    yield table.rows()


def compactions_give_way_to_what_has_touched_their_fragments(table: _Table) -> Iterator[Any]:
    yield _outcome(_upsert(table.newest(), (1, 10)))
    yield _outcome(_upsert(table.newest(), (2, 20)))
    early, results = table.newest(), _rewritten(table)
    # A new fragment is none of theirs.
    yield _outcome(_upsert(table.newest(), (3, 30)))
    yield _compacted(table, results), table.rows()
    yield _outcome(_upsert(early, (1, 11)))
    results = _rewritten(table)
    yield _outcome(_delete(table.newest(), 2))
    yield _compacted(table, results), table.rows()


def _rewritten(table: _Table) -> list[Any]:
    dataset = table.newest()
    return [task.execute(dataset) for task in _optimize.Compaction.plan(dataset, _together()).tasks]


def _compacted(table: _Table, results: list[Any]) -> Any:
    """Return what a commit of rewrites removes, or what kind of failure it is."""
    try:
        _optimize.Compaction.commit(table.newest(), results, _together())
    except LIBRARY_ERRORS as error:
        return classify(error).name
    return [(one.metrics.fragments_removed, one.metrics.fragments_added) for one in results]


def _together() -> Any:
    return _optimize.CompactionOptions(target_rows_per_fragment=1000, materialize_deletions_threshold=0.1)


_QUESTIONS = (
    merges_count_what_they_do,
    merges_of_other_keys_pass_each_other,
    merges_of_one_row_conflict,
    inserts_of_one_key_conflict,
    a_merge_that_may_try_again_sees_the_other,
    progress_only_goes_forward,
    progress_of_two_merges_that_overlap,
    old_versions_stay_until_they_are_removed,
    rows_are_found_and_left_out,
    rows_are_committed_with_marks,
    compactions_give_way_to_what_has_touched_their_fragments,
)


@pytest.mark.parametrize("ask", _QUESTIONS, ids=lambda ask: ask.__name__)
def test_the_stand_in_answers_as_the_library_does(ask: _Question, tmp_path: Path) -> None:
    assert _simulated(ask) == _real(ask, tmp_path)


def _real(ask: _Question, directory: Path) -> list[Any]:
    store = open_store(str(directory / "table"), fsync=False)
    create_base_table(store, SCHEMA, KEY)
    table = _Table(lambda: BaseTable.open(store), lance.CompactedSsTable, serialize_row_addrs)
    return list(ask(table))


def _simulated(ask: _Question) -> list[Any]:
    with substituted():
        world = World(0)

        def main() -> list[Any]:
            world.set_up()
            world.calm()
            return list(ask(_Table(world.open_base, library.Mark, library.serialize_row_addrs)))

        task = world.scheduler.spawn(world.control, "asks", main)
        world.scheduler.run()
        if task.error is not None:
            raise task.error
    answers: list[Any] = task.result
    return answers
