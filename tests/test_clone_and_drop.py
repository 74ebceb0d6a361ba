"""A table copied to another place by ``weir.clone``, and removed by ``weir.drop``."""

from __future__ import annotations

import os
import re
import shutil
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import weir
from tests.storage.s3 import S3Endpoint, s3_endpoint
from weir.engine import failpoint
from weir.errors import (
    ConflictError,
    FencedError,
    InputError,
    LeaseHeldError,
    TableError,
    TableExistsError,
    TableNotFoundError,
)
from weir.write.lease import lease_terms

__all__ = ["s3_endpoint"]

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])


def rows(*ids: int, name: str) -> pa.Table:
    return pa.Table.from_pylist([{"id": n, "name": name} for n in ids], SCHEMA)


def names(table: weir.Table, **options: object) -> dict[int, str]:
    found = table.scan(**options).to_table().to_pylist()  # type: ignore[arg-type]
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row["name"] for row in found}


def write(table: weir.Table, *ids: int, name: str, delete: tuple[int, ...] = (), flush: bool = True) -> None:
    with table.writer(flush_on_close=flush) as writer:
        writer.upsert(rows(*ids, name=name))
        if delete:
            writer.delete(list(delete))


def make(uri: str, options: dict[str, str] | None = None) -> weir.Table:
    """Make a table with rows in the base table, in generations and in the log, and deletes of all of them."""
    table = weir.create(
        uri, SCHEMA, primary_key="id", shard_by=weir.bucket("id", 2), storage_options=options, fsync=False
    )
    write(table, *range(12), name="merged", delete=(0,))
    table.maintenance.merge()
    write(table, *range(4), name="flushed", delete=(5, 1))
    write(table, 2, 100, name="logged", delete=(6, 3), flush=False)
    return table


EXPECTED = {2: "logged", 0: "flushed", 100: "logged", **dict.fromkeys([4, *range(7, 12)], "merged")}


def check_clone(source: weir.Table, place: str, options: dict[str, str] | None = None) -> None:
    before = source.snapshot()
    clone = weir.clone(source.uri, place, storage_options=options, fsync=False)
    assert names(clone) == names(source) == EXPECTED
    assert clone.maintenance.verify().findings == ()
    assert clone.identity != source.identity
    write(clone, 4, 200, name="clone", delete=(2,))
    expected = {**EXPECTED, 4: "clone", 200: "clone"}
    del expected[2]
    for table in (clone, weir.open(place, storage_options=options)):
        assert names(table) == expected
        table.maintenance.merge()
        assert names(table) == expected
    assert names(source) == names(source, at=before) == EXPECTED
    with pytest.raises(InputError, match="belongs to table"):
        names(clone, at=before)
    weir.drop(source.uri, storage_options=options)
    assert names(weir.open(place, storage_options=options)) == expected
    assert weir.open(place, storage_options=options).maintenance.verify().findings == ()


def test_a_clone_is_a_table_of_its_own(tmp_path: Path) -> None:
    check_clone(make(str(tmp_path / "source")), str(tmp_path / "clone"))


@pytest.mark.long
def test_a_clone_on_an_object_store(s3_endpoint: S3Endpoint) -> None:
    source = make(s3_endpoint.new_uri(), s3_endpoint.options)
    check_clone(source, s3_endpoint.new_uri(), s3_endpoint.options)


def test_a_clone_of_an_earlier_state(tmp_path: Path) -> None:
    source = make(str(tmp_path / "source"))
    token = source.snapshot()
    write(source, *range(20), name="later")
    source.maintenance.merge()
    assert names(weir.clone(source.uri, tmp_path / "clone", at=str(token))) == EXPECTED
    with pytest.raises(TableExistsError):
        weir.clone(source.uri, tmp_path / "clone")
    assert names(weir.open(tmp_path / "clone")) == EXPECTED


def test_a_clone_has_the_indexes_of_its_source(tmp_path: Path) -> None:
    source = make(str(tmp_path / "source"))
    source.indexes.create("name", "BTREE")
    clone = weir.clone(source.uri, tmp_path / "clone", fsync=False)
    assert [index.name for index in clone.indexes.list()] == [index.name for index in source.indexes.list()]
    assert names(clone, filter="name = 'logged'") == {2: "logged", 100: "logged"}
    shutil.rmtree(source.uri)
    clone.maintenance.merge()
    clone.maintenance.catch_up_indexes()
    assert names(clone, filter="name = 'merged'") == dict.fromkeys([4, *range(7, 12)], "merged")


@pytest.mark.parametrize("place", ["clone.between_base_and_shards", "clone.before_publish"])
def test_a_clone_that_was_killed_is_no_table_and_is_made_again(tmp_path: Path, place: str) -> None:
    source = make(str(tmp_path / "source"))
    with failpoint.armed(place, "raise"), pytest.raises(failpoint.FailpointError):
        weir.clone(source.uri, tmp_path / "clone", fsync=False)
    with pytest.raises(TableNotFoundError):
        weir.open(tmp_path / "clone")
    assert names(weir.clone(source.uri, tmp_path / "clone", fsync=False)) == EXPECTED
    assert weir.open(tmp_path / "clone").maintenance.verify().findings == ()


def test_a_shallow_clone_is_refused_as_a_source(tmp_path: Path) -> None:
    source = make(str(tmp_path / "source"))
    dataset = lance.dataset(source.uri)
    dataset.shallow_clone(str(tmp_path / "shallow"), dataset.version)
    with pytest.raises(TableError, match="deep_clone"):
        weir.clone(tmp_path / "shallow", tmp_path / "clone")
    with pytest.raises(TableNotFoundError):
        weir.open(tmp_path / "clone")


def test_a_table_that_is_dropped_is_gone_for_everybody(tmp_path: Path) -> None:
    table = make(str(tmp_path / "t"))
    table.snapshot(retain=timedelta(hours=1))
    assert names(table) == EXPECTED
    idle = table.writer(takeover=True)
    idle.upsert(rows(1, name="at work"))
    idle.pause()
    (tmp_path / "t" / "notes.txt").write_text("mine")
    report = weir.drop(table.uri)
    assert report.objects > 20
    assert os.listdir(tmp_path / "t") == ["notes.txt"]
    for use in (
        lambda: names(table),
        lambda: weir.open(table.uri),
        table.maintenance.merge,
        lambda: weir.drop(table.uri),
    ):
        with pytest.raises(TableNotFoundError):
            use()
    with pytest.raises((FencedError, TableNotFoundError)):
        idle.upsert(rows(1, 2, 3, name="late"))
    other = weir.create(table.uri, SCHEMA, primary_key="id", fsync=False)
    write(other, 1, name="another table")
    assert names(other) == {1: "another table"}


def test_the_first_write_to_a_table_that_was_dropped_makes_nothing(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    weir.drop(table.uri)
    with pytest.raises(TableNotFoundError):
        write(table, 1, name="late")
    assert not (tmp_path / "t" / "_mem_wal").exists()


PLAIN = pa.schema([pa.field("id", pa.int64(), nullable=False), ("a", pa.int64()), ("b", pa.int64())])
"""Columns that a table made in the place of another one has in another order."""


def made_of_forty(place: Path, columns: list[int], shard_by: weir.ShardBy) -> weir.Table:
    schema = pa.schema([PLAIN.field(at) for at in columns])
    table = weir.create(place, schema, primary_key="id", shard_by=shard_by, fsync=False)
    with table.writer() as writer:
        writer.upsert([{"id": n, "a": n, "b": -n} for n in range(40)])
    return table


def test_a_table_that_was_open_reads_another_one_in_its_place_by_its_shard_rule(tmp_path: Path) -> None:
    open_before = made_of_forty(tmp_path / "t", [0, 1, 2], weir.bucket("id", 3))
    weir.drop(tmp_path / "t")
    made_of_forty(tmp_path / "t", [0, 1, 2], weir.bucket("id", 2))
    # Both rules have the number 1.
    assert open_before.get(list(range(40)), ["id"]).num_rows == 40
    assert [open_before.scan(filter=f"id = {n}").count() for n in range(40)] == [1] * 40


def test_keys_are_not_looked_up_in_a_table_in_the_place_that_has_another_key(tmp_path: Path) -> None:
    rows = [{"id": n, "a": -n, "b": n} for n in range(40)]
    schema = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("id", "a", "b")])
    made: list[weir.Table] = []
    for key in (["id", "a"], ["a", "id"]):
        if made:
            weir.drop(tmp_path / "t")
        made.append(weir.create(tmp_path / "t", schema, primary_key=key, fsync=False))
        with made[-1].writer() as writer:
            writer.upsert(rows)
    keys = pa.Table.from_pylist(rows).select(["a", "id"])
    with pytest.raises(ConflictError, match="another key"):
        made[0].get(keys)
    assert made[0].get(keys).num_rows == 40


@pytest.mark.parametrize("shard_by", [weir.bucket("id", 3), weir.bucket("id", 2)])
def test_a_writer_that_was_open_does_not_write_to_another_table_in_its_place(
    tmp_path: Path, shard_by: weir.ShardBy
) -> None:
    place = tmp_path / "t"
    open_before = weir.create(place, PLAIN, primary_key="id", shard_by=weir.bucket("id", 3), fsync=False)
    rows = [{"id": n, "a": 1, "b": 2} for n in range(40)]
    with open_before.writer() as writer:
        weir.drop(place)
        present = made_of_forty(place, [0, 2, 1], shard_by)
        before = present.scan().to_table().sort_by("id")
        with pytest.raises(FencedError, match="another table was put in the place"):
            writer.upsert(rows)
        assert present.scan().to_table().sort_by("id").equals(before)
    # What it makes from now on is for the table that is there.
    open_before.upsert(rows)
    found = weir.open(place).scan().to_table().sort_by("id").select(["id", "a", "b"])
    assert found.to_pylist() == rows


def test_a_table_that_is_written_is_dropped_only_when_told_to(tmp_path: Path) -> None:
    table = make(str(tmp_path / "t"))
    writer = table.writer(lease_ttl=1.0, takeover=True)
    writer.upsert(rows(1, name="at work"))
    with pytest.raises(LeaseHeldError, match="takeover=True"):
        weir.drop(table.uri)
    writer.upsert(rows(1, name="goes on"))
    waited: list[LeaseHeldError] = []
    weir.drop(table.uri, takeover=True, on_wait=waited.append)
    assert len(waited) == 1
    assert re.search(rf"process {os.getpid()} on .* is fenced, .* in [01] s", waited[0].message)
    for ids in ([1], [2], [3], [4]):
        with pytest.raises((FencedError, TableNotFoundError)):
            writer.upsert(rows(*ids, name="late"))
    assert not (tmp_path / "t" / "_mem_wal").exists()


def test_a_drop_that_is_interrupted_while_it_waits_waits_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer may live still, and would write to what is deleted."""
    table = make(str(tmp_path / "t"))
    writer = table.writer(lease_ttl=2.0, takeover=True)
    writer.upsert(rows(1, name="at work"))

    def interrupted(error: LeaseHeldError) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        weir.drop(table.uri, takeover=True, on_wait=interrupted)
    # As for the process that has been interrupted.
    monkeypatch.setattr(lease_terms, "is_certainly_dead", lambda holder: True)
    waited: list[LeaseHeldError] = []
    monkeypatch.setattr("weir.maintenance.closed_shards.time.sleep", lambda seconds: None)
    weir.drop(table.uri, takeover=True, on_wait=waited.append)
    assert len(waited) == 1
    assert not (tmp_path / "t" / "_mem_wal").exists()


def test_a_table_that_was_just_written_without_a_writer_is_dropped(tmp_path: Path) -> None:
    """The writer that it keeps for the next call is nobody's to close."""
    table = make(str(tmp_path / "t"))
    table.upsert(rows(1, name="at rest"))
    assert weir.drop(table.uri, fsync=False).objects


@pytest.mark.parametrize("place", ["drop.after_saying_so", "drop.before_delete", "drop.between_deletes"])
def test_a_drop_that_was_killed_goes_on(tmp_path: Path, place: str) -> None:
    table = make(str(tmp_path / "t"))
    with failpoint.armed(place, "raise"), pytest.raises(failpoint.FailpointError):
        weir.drop(table.uri)
    for use in (lambda: weir.open(table.uri), lambda: names(table)):
        with pytest.raises(TableNotFoundError, match="being removed"):
            use()
    with pytest.raises(TableExistsError):
        weir.create(table.uri, SCHEMA, primary_key="id")
    weir.drop(table.uri)
    weir.create(table.uri, SCHEMA, primary_key="id", fsync=False)


def test_a_plain_dataset_is_not_dropped(tmp_path: Path) -> None:
    lance.write_dataset(rows(1, name="plain"), str(tmp_path / "t"))
    with pytest.raises(TableNotFoundError, match="not a Weir table"):
        weir.drop(tmp_path / "t")
    assert lance.dataset(str(tmp_path / "t")).count_rows() == 1


def test_a_drop_on_an_object_store(s3_endpoint: S3Endpoint) -> None:
    uri, options = s3_endpoint.new_uri(), s3_endpoint.options
    table = make(uri, options)
    with failpoint.armed("drop.before_delete", "raise"), pytest.raises(failpoint.FailpointError):
        weir.drop(uri, storage_options=options)
    with pytest.raises(TableNotFoundError):
        names(table)
    weir.drop(uri, storage_options=options)
    assert list(table.internals.store.list("")) == []
