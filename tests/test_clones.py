"""Tables whose base came from another table: clones, branches, copies of Lance, and what was left behind."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import weir
from weir.base.table import BaseTable
from weir.engine import failpoint
from weir.errors import InputError, LeaseHeldError, ShardConflictError, TableExistsError
from weir.storage.open import open_store

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
KEY = {"lance-schema:unenforced-primary-key": "true"}
BUCKET_0 = "4a388480-a25b-59a8-b058-24217f980256"


def rows(*ids: int, name: str) -> pa.Table:
    return pa.Table.from_pylist([{"id": n, "name": name} for n in ids], SCHEMA)


def names(table: weir.Table) -> dict[int, str]:
    found = table.scan().to_table().to_pylist()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row["name"] for row in found}


def write(table: weir.Table, *ids: int, name: str) -> None:
    with table.writer() as writer:
        writer.upsert(rows(*ids, name=name))


def source(place: Path) -> weir.Table:
    """Make a table of several merged generations, with rows that are not merged."""
    table = weir.create(place, SCHEMA, primary_key="id", shard_by=weir.bucket("id", 2), fsync=False)
    for n in range(3):
        write(table, *range(10), name=f"merged {n}")
        table.maintenance.merge()
    write(table, 0, 1, name="unmerged")
    return table


def source_of_the_library(place: Path) -> weir.Table:
    schema = SCHEMA.set(0, SCHEMA.field("id").with_metadata(KEY))
    dataset = lance.write_dataset(schema.empty_table(), str(place))
    dataset.initialize_mem_wal(bucket_column="id", num_buckets=1)
    table = weir.open(place, fsync=False)
    for n in range(3):
        write(table, *range(10), name=f"merged {n}")
        table.maintenance.merge()
    return table


def shallow(table: weir.Table, place: Path) -> str:
    dataset = lance.dataset(table.uri)
    dataset.shallow_clone(str(place), dataset.version)
    return str(place)


def deep(table: weir.Table, place: Path) -> str:
    dataset = lance.dataset(table.uri)
    dataset.deep_clone(str(place), dataset.version)
    return str(place)


def copy(table: weir.Table, place: Path) -> str:
    shutil.copytree(table.uri, place, ignore=shutil.ignore_patterns("_mem_wal"))
    return str(place)


def branch(table: weir.Table, place: Path) -> str:
    return str(lance.dataset(table.uri).create_branch(place.name).uri)


def of_a_tag(table: weir.Table, place: Path) -> str:
    dataset = lance.dataset(table.uri)
    dataset.tags.create("before", dataset.version)
    dataset.shallow_clone(str(place), "before")
    return str(place)


CLONES = [shallow, deep, copy, branch, of_a_tag]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("make_source", [source, source_of_the_library])
@pytest.mark.parametrize("make", CLONES)
def test_a_clone_begins_its_shards_anew(
    tmp_path: Path, make: Callable[[weir.Table, Path], str], make_source: Callable[[Path], weir.Table]
) -> None:
    original = make_source(tmp_path / "source")
    before = names(original)
    clone = weir.open(make(original, tmp_path / "clone"), fsync=False)
    expected = dict.fromkeys(range(10), "merged 2")
    assert names(clone) == expected
    assert clone.scan(consistency="snapshot").count() == len(expected)
    identity = clone.identity
    for n in range(5):
        write(clone, n, 100 + n, name=f"clone {n}")
        expected |= {n: f"clone {n}", 100 + n: f"clone {n}"}
        assert names(clone) == names(weir.open(clone.uri)) == expected
        if n % 2:
            clone.maintenance.merge()
            assert names(clone) == expected
    assert clone.identity == weir.open(clone.uri).identity != identity
    assert clone.maintenance.verify().findings == ()
    assert clone.get([100], at=clone.snapshot()).num_rows == 1
    with pytest.raises(InputError, match="belongs to table"):
        clone.get([1], at=original.snapshot())
    assert names(original) == names(weir.open(original.uri)) == before


def test_two_writers_begin_a_clone_anew_once(tmp_path: Path) -> None:
    original = source(tmp_path / "source")
    place = deep(original, tmp_path / "clone")
    one, other = weir.open(place, fsync=False), weir.open(place, fsync=False)
    version = lance.dataset(place).version
    write(one, 1, name="one")
    assert names(other)[1] == "one"
    write(other, 2, name="other")
    assert lance.dataset(place).version == version + 1
    assert names(one) == names(other) == {**dict.fromkeys(range(10), "merged 2"), 1: "one", 2: "other"}


def test_a_whole_copy_goes_its_own_way_with_what_it_has(tmp_path: Path) -> None:
    original = source(tmp_path / "source")
    expected = names(original)
    moved = weir.open(shutil.copytree(original.uri, tmp_path / "copy"), fsync=False)
    assert names(moved) == expected
    write(moved, 1, name="copy")
    assert names(moved) == {**expected, 1: "copy"}
    assert names(original) == expected


@pytest.mark.parametrize("sort_by", ["", "id"])
def test_a_copy_of_the_directory_of_a_branch_is_merged_and_compacted(tmp_path: Path, sort_by: str) -> None:
    # Of these the library says that it cannot find the branch wherever it needs more than the address.
    weir.create(tmp_path / "t", SCHEMA, primary_key=None if sort_by else "id", sort_by=sort_by or ())
    branch = lance.dataset(str(tmp_path / "t")).create_branch("other").uri
    shutil.copytree(str(branch).removeprefix("file://"), tmp_path / "copy")
    table = weir.open(tmp_path / "copy")
    for number in (3, 1, 2):
        write(table, number, name="a")
        table.maintenance.merge(divided=True)
    table.maintenance.compact()
    assert names(table) == {1: "a", 2: "a", 3: "a"}
    assert len(BaseTable.open(open_store(table.uri)).dataset.get_fragments()) == 1
    assert table.maintenance.verify().passed


def test_half_a_copy_is_not_written(tmp_path: Path) -> None:
    original = source(tmp_path / "source")
    half = weir.open(shutil.copytree(original.uri, tmp_path / "copy"), fsync=False)
    shutil.rmtree(next((tmp_path / "copy" / "_mem_wal").iterdir()))
    with pytest.raises(ShardConflictError, match="part of a copy"):
        half.writer()


def test_a_clone_that_the_library_has_written_is_refused_by_name(tmp_path: Path) -> None:
    """It begins the shard of the same id at generation 1, and the details say that 3 is merged."""
    original = source_of_the_library(tmp_path / "source")
    place = deep(original, tmp_path / "clone")
    with lance.dataset(place).mem_wal_writer(BUCKET_0) as writer:
        writer.put(rows(1, name="library").cast(lance.dataset(place).schema))
    clone = weir.open(place, fsync=False)
    for read in (
        lambda: clone.scan().to_table(),
        lambda: clone.get([1]),
        clone.snapshot,
        clone.maintenance.merge,
    ):
        with pytest.raises(ShardConflictError, match="belongs to another table"):
            read()
    with pytest.raises(ShardConflictError, match="If it is a clone"):
        clone.maintenance.repair()
    (repair,) = clone.maintenance.repair(as_clone=True).repairs
    assert repair.kind == "foreign progress"
    assert names(clone) == {**dict.fromkeys(range(10), "merged 2"), 1: "library"}
    clone.maintenance.merge()
    write(clone, 2, name="weir")
    assert names(clone) == {**dict.fromkeys(range(10), "merged 2"), 1: "library", 2: "weir"}


def overwritten(place: Path) -> str:
    """Overwrite a table with Lance, and return where it is."""
    table = source(place)
    new = pa.table({"id": pa.array([0, 1000]), "name": ["new", "new"]}, schema=SCHEMA)
    lance.write_dataset(new, table.uri, mode="overwrite")
    return table.uri


def without_index(place: Path) -> str:
    table = source(place)
    table.snapshot(retain=timedelta(hours=1))
    lance.dataset(table.uri).drop_index("__lance_mem_wal")
    return table.uri


class TestLeftovers:
    """A place where a former table has left its shards."""

    @pytest.mark.parametrize("leave", [overwritten, without_index])
    def test_they_are_refused_or_set_aside(self, tmp_path: Path, leave: Callable[[Path], str]) -> None:
        place = leave(tmp_path / "t")
        expected = {row["id"]: row["name"] for row in lance.dataset(place).to_table().to_pylist()}
        files = [path for path in Path(place, "_mem_wal").rglob("*") if path.is_file()]
        # An object that was swapped is moved as it is now, not with the versions it had.
        left = {path.name for path in files if ".weir-swaps" not in path.parts}
        version = lance.dataset(place).version
        with pytest.raises(TableExistsError, match="set_aside=True"):
            weir.adopt(place, primary_key="id", shard_by=weir.bucket("id", 2), fsync=False)
        assert lance.dataset(place).version == version
        options = {"primary_key": "id", "shard_by": weir.bucket("id", 2), "fsync": False}
        table = weir.adopt(place, set_aside=True, **options)  # type: ignore[arg-type]
        assert names(table) == expected
        write(table, 1, name="adopted")
        table.maintenance.merge()
        assert names(table) == names(weir.open(place)) == {**expected, 1: "adopted"}
        assert table.maintenance.verify().findings == ()
        kept = {path.name for path in Path(place, "_weir/set_aside").rglob("*") if path.is_file()}
        assert kept >= left
        with pytest.raises(TableExistsError, match="already"):
            weir.adopt(place, set_aside=True, **options)  # type: ignore[arg-type]

    def test_nothing_is_moved_while_somebody_writes(self, tmp_path: Path) -> None:
        table = source(tmp_path / "t")
        writer = table.writer(flush_on_close=False)
        writer.upsert(rows(1, name="at work"))
        lance.write_dataset(rows(1, name="new"), table.uri, mode="overwrite")
        with pytest.raises(LeaseHeldError, match="is writing shard"):
            weir.adopt(table.uri, primary_key="id", set_aside=True, fsync=False)
        writer.upsert(rows(2, name="goes on"))
        writer.close()
        assert names(weir.adopt(table.uri, primary_key="id", set_aside=True, fsync=False)) == {1: "new"}

    def test_a_move_that_was_interrupted_goes_on(self, tmp_path: Path) -> None:
        place = overwritten(tmp_path / "t")
        with failpoint.armed("leftovers.before_delete", "raise"), pytest.raises(failpoint.FailpointError):
            weir.adopt(place, primary_key="id", set_aside=True, fsync=False)
        table = weir.adopt(place, primary_key="id", set_aside=True, fsync=False)
        assert names(table) == {0: "new", 1000: "new"}
        assert len(list(Path(place, "_weir/set_aside").iterdir())) == 1


def test_a_table_at_its_place_costs_no_look_at_its_shards(tmp_path: Path) -> None:
    table = source(tmp_path / "source")
    assert BaseTable.open(open_store(table.uri)).is_at_its_place
