"""Plain Lance drops a column that decides something: refused by name, and right again once it is restored.

Also where it adds another of the same type right away, which gets the id of the dropped one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import weir
from weir.base.dataset import primary_key_of
from weir.base.details_commit import update_details
from weir.base.schema import key_metadata
from weir.base.table import BaseTable
from weir.errors import CorruptionError, SchemaError, ShardingError
from weir.format import append_only, expiry, merge_engine, recorded_key
from weir.format.index_details import ShardFieldSpec, ShardSpec
from weir.format.recorded_columns import sources_there

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("at", pa.timestamp("us", "UTC")),
        ("text", pa.string()),
    ]
)
CASES: dict[str, dict[str, Any]] = {
    "expire by a column": {"expire_by": "at", "expire_after": timedelta(days=1)},
    "merge engine puts versions in order": {"sequence_by": "at"},
}


@pytest.mark.parametrize("what", CASES)
def test_it_is_refused_by_name_and_right_again_once_it_is_restored(tmp_path: Path, what: str) -> None:
    table = weir.create(tmp_path, SCHEMA, primary_key="id", fsync=False, **CASES[what])
    now = datetime.now(UTC)
    with table.writer(flush_on_close=False) as writer:
        writer.upsert([{"id": 1, "at": now, "text": "a"}])
        writer.upsert([{"id": 1, "at": now - timedelta(days=2), "text": "b"}])
    before = table.scan().to_table()
    version = lance.dataset(str(tmp_path)).version
    lance.dataset(str(tmp_path)).drop_columns(["at"])
    for call in (lambda: weir.open(tmp_path), table.scan().to_table, table.maintenance.merge):
        with pytest.raises(SchemaError, match=f"{what}.* that was dropped.*restore"):
            call()
    lance.dataset(str(tmp_path), version=version).restore()  # type: ignore[no-untyped-call]
    assert weir.open(tmp_path, fsync=False).scan().to_table().equals(before)


def again(place: Path, name: str, called: str) -> None:
    """Have plain Lance drop a column and add another of its type, which gets its id."""
    dataset = lance.dataset(str(place))
    before = {one.name(): one.id() for one in dataset.lance_schema.fields()}
    column = dataset.schema.field(name).remove_metadata()
    dataset.drop_columns([name])
    dataset.add_columns(column.with_name(called))
    after = {one.name(): one.id() for one in lance.dataset(str(place)).lance_schema.fields()}
    assert after[called] == before[name], "the case is none any more: Lance gives ids out once"


LAST = pa.schema([SCHEMA.field("id"), SCHEMA.field("text"), SCHEMA.field("at")])


@pytest.mark.parametrize("called", ["at", "since"])
@pytest.mark.parametrize(
    ("what", "by"), [*((what, "Weir") for what in CASES), ("expire by a column", "plain Lance")]
)
def test_it_is_refused_by_name_where_another_column_has_its_id(
    tmp_path: Path, what: str, by: str, called: str
) -> None:
    """``by``: who made the column that decides."""
    if by == "Weir":
        table = weir.create(tmp_path, LAST, primary_key="id", fsync=False, **CASES[what])
    else:
        weir.create(tmp_path, LAST.remove(2), primary_key="id", fsync=False)
        lance.dataset(str(tmp_path)).add_columns(LAST.field("at"))
        table = weir.open(tmp_path, fsync=False)
        table.alter(**CASES[what])
    with table.writer(flush_on_close=False) as writer:
        writer.upsert([{"id": 1, "text": "a", "at": None}])
    again(tmp_path, "at", called)
    for call in (lambda: weir.open(tmp_path), table.scan().to_table, table.maintenance.merge):
        with pytest.raises(SchemaError, match=f"{what}.* that was dropped.*restore"):
            call()


KEYED = pa.schema(
    [
        pa.field("site", pa.int64(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        ("n", pa.int64()),
    ]
)
PAIRS = [{"site": site, "id": number, "n": 10 * site + number} for site in (1, 2) for number in (1, 2)]


def created(place: Path) -> weir.Table:
    return weir.create(place, KEYED, primary_key=["site", "id"], fsync=False)


def adopted(place: Path) -> weir.Table:
    lance.write_dataset(KEYED.empty_table(), str(place))
    return weir.adopt(place, primary_key=["site", "id"], fsync=False)


def of_an_older_weir(place: Path) -> weir.Table:
    table = created(place)
    update_details(
        BaseTable.open(table.internals.store), lambda details: replace(details, writer_config_defaults={})
    )
    return weir.open(place, fsync=False)


def set_up_by_the_library(place: Path) -> weir.Table:
    schema = pa.schema(
        [
            field.with_metadata(key_metadata(number, 2)) if number < 2 else field
            for number, field in enumerate(KEYED)
        ]
    )
    lance.write_dataset(schema.empty_table(), str(place)).initialize_mem_wal(unsharded=True)
    return weir.open(place, fsync=False)


@pytest.mark.covering
@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("column", ["site", "id"])
@pytest.mark.parametrize("make", [created, adopted, of_an_older_weir, set_up_by_the_library])
def test_what_is_left_of_a_key_does_not_pass_for_the_key(
    tmp_path: Path, make: Callable[[Path], weir.Table], column: str, merged: bool
) -> None:
    """Rows that have it in common are others still: all of them but one would be gone for good."""
    table = make(tmp_path)
    with table.writer() as writer:
        writer.upsert(PAIRS)
        if merged:
            writer.flush()
            table.maintenance.merge()
        version = lance.dataset(str(tmp_path)).version
        lance.dataset(str(tmp_path)).drop_columns([column])
        for call in (
            lambda: weir.open(tmp_path),
            lambda: table.scan().to_table(),
            lambda: table.get([{"site": 1, "id": 1}]),
            table.maintenance.merge,
            lambda: table.upsert([{"site": 1, "id": 3, "n": 13}]),
        ):
            with pytest.raises(
                SchemaError, match=r"primary key of the table has a column that was dropped.*restore"
            ):
                call()
        lance.dataset(str(tmp_path), version=version).restore()  # type: ignore[no-untyped-call]
        table.maintenance.merge()
    found = weir.open(tmp_path, fsync=False).scan().to_table()
    assert found.sort_by([("site", "ascending"), ("id", "ascending")]).to_pylist() == PAIRS


def test_another_column_is_not_taken_for_the_key(tmp_path: Path) -> None:
    table = weir.create(tmp_path, KEYED, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert(PAIRS)
    lance.dataset(str(tmp_path)).drop_columns(["id"])
    lance.dataset(str(tmp_path)).update_field_metadata({"site": dict(key_metadata(0, 1))})
    assert primary_key_of(lance.dataset(str(tmp_path))) == ("site",)
    for call in (lambda: weir.open(tmp_path), lambda: table.scan().to_table(), table.maintenance.merge):
        with pytest.raises(SchemaError, match="primary key of the table has a column that was dropped"):
            call()


def test_a_key_in_another_order_is_another_key(tmp_path: Path) -> None:
    table = created(tmp_path)
    base = BaseTable.open(table.internals.store)
    recorded = recorded_key.encode(["id", "site"], base.field_ids, base.births)
    defaults = {**base.details.writer_config_defaults, recorded_key.PRIMARY_KEY: recorded}
    with pytest.raises(SchemaError, match=r"is \(id, site\), and .* marked as its key are \(site, id\)"):
        update_details(base, lambda details: replace(details, writer_config_defaults=defaults))


ENGINES = {
    "aggregation": weir.MergeEngine.aggregation(n="sum"),
    "group": weir.MergeEngine.partial_update({"version": ["n"]}),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_another_column_with_the_id_is_not_folded_as_the_dropped_one_was(tmp_path: Path, engine: str) -> None:
    columns = [pa.field("id", pa.int64()), pa.field("version", pa.int64()), pa.field("n", pa.int64())]
    schema = pa.schema(columns)
    table = weir.create(tmp_path, schema, primary_key="id", merge_engine=ENGINES[engine], fsync=False)
    with table.writer(flush_on_close=False) as writer:
        writer.upsert([{"id": 1, "version": 0, "n": 100}])
    again(tmp_path, "n", "m")
    table = weir.open(tmp_path, fsync=False)
    assert table.scan().to_table().to_pylist() == [{"id": 1, "version": 0, "m": None}]
    with table.writer() as writer:
        writer.upsert([{"id": 1, "version": 2, "m": 5}])
        writer.upsert([{"id": 1, "version": 1, "m": 7}])
    version = {"aggregation": 1, "group": 2}[engine]
    for _ in range(2):
        assert table.scan().to_table().to_pylist() == [{"id": 1, "version": version, "m": 7}]
        table.maintenance.merge()


def test_rows_are_not_sorted_by_another_column_with_the_id(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("at", pa.int64())])
    table = weir.create(tmp_path, schema, primary_key=None, sort_by=["id", "at"], fsync=False)
    again(tmp_path, "at", "since")
    assert weir.open(tmp_path, fsync=False).sort_by == ("id",)
    table.alter(sort_by=["id", "since"])
    assert weir.open(tmp_path, fsync=False).sort_by == ("id", "since")


@pytest.mark.covering
@pytest.mark.parametrize("adopted", [False, True], ids=["created", "adopted"])
@pytest.mark.parametrize("called", ["place", "town"])
def test_rows_are_not_routed_by_another_column_with_the_id(
    tmp_path: Path, called: str, adopted: bool
) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("place", pa.string())])
    rule = weir.bucket("place", 4, immutable=True)
    if adopted:
        lance.write_dataset(schema.empty_table(), str(tmp_path))
        table = weir.adopt(tmp_path, primary_key="id", shard_by=rule, fsync=False)
    else:
        table = weir.create(tmp_path, schema, primary_key="id", shard_by=rule, fsync=False)
    with table.writer(flush_on_close=False) as writer:
        writer.upsert([{"id": number, "place": f"p{number}"} for number in range(20)])
    assert len(table.status().shards) == 4
    again(tmp_path, "place", called)
    lost = [{"id": number, called: None} for number in range(20)]
    for reader in (table, weir.open(tmp_path, fsync=False)):
        assert reader.scan().to_table().sort_by("id").to_pylist() == lost
        assert reader.scan(filter=f"{called} IS NULL").count() == 20
        assert reader.get([{"id": 3}]).to_pylist() == [lost[3]]
        with pytest.raises(ShardingError, match="sharded by a column that was dropped"):
            reader.upsert([{"id": 3, called: "p4"}])
    # Nothing needs the column.
    table.alter(rename={called: "renamed"})
    table.alter(rename={"renamed": called})
    table.maintenance.recover()
    table.maintenance.merge()
    assert lance.dataset(str(tmp_path)).to_table().sort_by("id").to_pylist() == lost
    report = table.maintenance.verify()
    assert [one.check for one in report.findings] == ["details.shard_specs"]


def test_rules_without_births_go_by_the_id(tmp_path: Path) -> None:
    """As Weir recorded them before."""
    ids, births = {"id": 0, "at": 1}, {0: "0", 1: "7-00c0ffee00c0ffee"}
    assert expiry.decode('{"by": 1, "after_micros": 0}', ids, births, where="") == expiry.Expiry("at")
    engine = merge_engine.decode('{"kind": "last_row", "sequence_by": 1}', ids, births, where="")
    assert engine.sequence_by == "at"
    order = append_only.decode('{"sort_by": [1], "unique": []}', ids, births, where="")
    assert order.sort_by == ("at",)
    assert recorded_key.decode('{"columns": [1, 0]}', ids, births, where="") == ("at", "id")
    field = ShardFieldSpec("bucket", (1,), "bucket", None, "int32", {"num_buckets": "2"})
    assert sources_there(ShardSpec(1, (field,)), ids, births) == ids


@pytest.mark.parametrize("births", ["5", '{"x": "0"}', "[1]"])
def test_births_that_are_none_are_named(births: str) -> None:
    rules: list[tuple[Callable[..., object], str]] = [
        (expiry.decode, '{"by": 0, "after_micros": 0, "births": %s}'),
        (merge_engine.decode, '{"kind": "last_row", "births": %s}'),
        (append_only.decode, '{"sort_by": [], "unique": [], "births": %s}'),
        (recorded_key.decode, '{"columns": [0], "births": %s}'),
    ]
    for decode, text in rules:
        with pytest.raises(CorruptionError, match="cannot be read"):
            decode(text % births, {"id": 0}, {0: "0"}, where="")
    field = ShardFieldSpec("bucket", (0,), "bucket", None, "int32", {"weir:source_births": births})
    with pytest.raises(ShardingError, match="births of its columns"):
        sources_there(ShardSpec(1, (field,)), {"id": 0}, {0: "0"})
