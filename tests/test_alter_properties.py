"""Changing when the rows of a table expire, and how they are sorted, while it is written and read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import weir
from weir.base.library_commit import commit_with_library
from weir.base.table import BaseTable
from weir.engine.context import default_context
from weir.errors import OptionError, SchemaError, WeirError

NOW = datetime.now(UTC)
SCHEMA = pa.schema([("id", pa.int64()), ("seen", pa.timestamp("us", "UTC")), ("n", pa.int64())])


def rows(*ages: float) -> list[dict[str, Any]]:
    """Return rows that were seen so many days ago, numbered from 0."""
    return [{"id": n, "seen": NOW - timedelta(days=age), "n": -n} for n, age in enumerate(ages)]


def ids(table: weir.Table) -> list[int]:
    shown = sorted(table.scan(["id"]).to_table()["id"].to_pylist())
    assert sorted(table.get(list(range(9)))["id"].to_pylist()) == shown
    assert table.scan().count() == len(shown)
    return shown


@pytest.mark.one_in(2)
@pytest.mark.parametrize("where", ["log", "generation", "base"])
def test_rows_expire_from_then_on_wherever_they_are(tmp_path: Path, where: str) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    writer = table.writer(flush_on_close=False)
    writer.upsert(rows(1, 3, 9))
    if where != "log":
        writer.flush()
    if where == "base":
        table.maintenance.merge()
    before = table.snapshot()
    other = weir.open(table.uri, fsync=False)
    assert table.status().library_writable
    assert ids(other) == [0, 1, 2]
    table.alter(expire_by="seen", expire_after=timedelta(days=7))
    assert table.expiry == "7 days, 0:00:00 after seen"
    assert ids(table) == ids(other) == ids(weir.open(table.uri)) == [0, 1]
    assert table.scan(at=before).count() == 3, "it is of before"
    assert not table.status().library_writable
    assert "expiry" in table.status().library_note
    with pytest.raises(OSError, match="sharding spec"):
        lance.dataset(table.uri).mem_wal_writer(str(next(iter(writer.epochs))))
    # The writer was open all the while, and decides on what there is.
    assert writer.insert([{"id": 1, "seen": NOW}]).rows == 0
    assert writer.insert([{"id": 2, "seen": NOW}]).rows == 1
    table.alter(expire_after=timedelta(days=2))
    assert ids(table) == ids(other) == [0, 2]
    with pytest.raises(SchemaError, match="rows expire by it"):
        table.alter(drop=["seen"])
    table.alter(expire_by=None)
    assert table.expiry is None
    assert ids(table) == ids(other) == [0, 1, 2]
    assert table.status().library_writable
    writer.close()
    table.maintenance.merge()
    assert ids(weir.open(table.uri)) == [0, 1, 2]
    table.alter(drop=["seen"])


def test_what_expired_before_and_was_removed_is_gone(tmp_path: Path) -> None:
    table = weir.create(
        tmp_path / "t",
        SCHEMA,
        primary_key="id",
        expire_by="seen",
        expire_after=timedelta(days=2),
        fsync=False,
    )
    with table.writer() as writer:
        writer.upsert(rows(1, 3, 9))
    table.maintenance.merge()
    assert table.maintenance.expire().rows == 2
    table.alter(expire_by=None)
    assert ids(table) == [0]


def test_rows_are_removed_by_the_rule_of_the_version_they_are_removed_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The column that they expired by has another name by then, and its name another column."""
    schema = pa.schema([*SCHEMA, pa.field("made", SCHEMA.field("seen").type)])
    table = weir.create(tmp_path / "t", schema, primary_key="id", expire_by="seen", fsync=False)
    past, future = datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
    with table.writer() as writer:
        writer.upsert([{"id": n, "seen": past if n == 1 else future, "made": past} for n in range(3)])
    table.maintenance.merge()

    def altered(*given: Any, **options: Any) -> BaseTable:
        monkeypatch.undo()
        weir.open(table.uri, fsync=False).alter(rename={"seen": "made", "made": "seen"}, expire_by="made")
        return commit_with_library(*given, **options)

    monkeypatch.setattr("weir.maintenance.expire.commit_with_library", altered)
    assert table.maintenance.expire().rows == 1
    assert lance.dataset(table.uri).to_table().column("id").to_pylist() == [0, 2]


def test_columns_and_what_goes_by_them_change_in_one_version(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", expire_by="seen", fsync=False)
    version = table.status().base_version
    table.alter(add=[pa.field("until", pa.date32())], rename={"seen": "at"}, expire_by="until")
    assert table.status().base_version == version + 1
    assert table.expiry == "at until"
    assert table.schema.names == ["id", "at", "n", "until"]
    table.alter(drop=["until"], expire_by="at", expire_after=timedelta(days=1))
    assert table.expiry == "1 day, 0:00:00 after at"
    table.alter(rename={"n": "m"})
    default_context().cache.clear()
    assert weir.open(table.uri).expiry == table.expiry


def test_an_append_only_table_is_sorted_otherwise(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key=None, sort_by="id", fsync=False)
    with table.writer() as writer:
        writer.upsert(rows(1, 2, 3))
        writer.flush()
        table.alter(sort_by="n")
        # The writer sorts by a column that may go now.
        table.alter(drop=["id"])
        writer.upsert([{"seen": NOW, "n": -9}, {"seen": NOW, "n": -10}])
    assert table.sort_by == weir.open(table.uri).sort_by == ("n",)
    table.maintenance.merge()
    table.maintenance.compact()
    assert lance.dataset(table.uri).to_table()["n"].to_pylist() == [-10, -9, -2, -1, 0]
    table.alter(sort_by=[])
    assert weir.open(table.uri).sort_by == ()
    assert weir.open(table.uri).is_append_only


REFUSED: list[tuple[dict[str, Any], type[WeirError], str]] = [
    ({"expire_by": "nope"}, SchemaError, "no column 'nope'"),
    ({"expire_by": "n"}, SchemaError, "cannot expire by a column of the type int64"),
    ({"expire_by": "seen", "drop": ["seen"]}, SchemaError, "no column 'seen'"),
    ({"expire_by": 5}, SchemaError, "no column 5"),
    ({"expire_after": timedelta(days=1)}, OptionError, "no column is named"),
    ({"expire_by": "seen", "expire_after": 7}, OptionError, "is a timedelta"),
    ({"expire_by": "seen", "expire_after": timedelta(-1)}, OptionError, "from 0 to"),
    ({"sort_by": "n"}, OptionError, "with a key are not sorted"),
    ({"sort_by": 5}, OptionError, "is a list of columns"),
    ({}, SchemaError, "nothing to alter"),
]


@pytest.mark.parametrize(("asked", "kind", "says"), REFUSED, ids=lambda one: str(one)[:40])
def test_what_is_refused_changes_nothing(
    tmp_path: Path, asked: dict[str, Any], kind: type[WeirError], says: str
) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    version = table.status().base_version
    with pytest.raises(kind, match=says):
        table.alter(**asked)
    assert weir.open(table.uri).status().base_version == version


def test_rows_of_a_merge_engine_that_folds_do_not_expire(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", merge_engine="partial_update", fsync=False)
    with pytest.raises(OptionError, match="would return"):
        table.alter(expire_by="seen")
