"""Keys of every type, through every stage of a row's life, against a dict."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import lance
import pandas as pd
import pyarrow as pa
import pytest

import weir
from weir.errors import SchemaError
from weir.format.keys import FEATURE, SUPPORTED_TYPES
from weir.lsm.literals import literals

OF_WEIR_ALONE = (
    pa.date32(),
    pa.date64(),
    pa.timestamp("us"),
    pa.timestamp("ns"),
    pa.timestamp("s", "UTC"),
    pa.timestamp("ns", "Europe/Berlin"),
    pa.decimal128(12, 3),
    pa.decimal256(60, 2),
    pa.binary(16),
    pa.uuid(),
)
TYPES = (pa.bool_(), pa.uint8(), pa.large_string(), pa.binary(), *OF_WEIR_ALONE)


def keys_of(numbers: Sequence[int], kind: pa.DataType) -> pa.Array:
    """A key for every number: in another order, some below zero, equal only for equal numbers."""
    mixed = [number * 37 % 101 - 50 for number in numbers]
    if pa.types.is_boolean(kind):
        return pa.array([number % 2 == 1 for number in numbers], kind)
    if pa.types.is_signed_integer(kind):
        return pa.array(mixed, kind)
    if pa.types.is_unsigned_integer(kind):
        return pa.array([one + 50 for one in mixed], kind)
    if pa.types.is_date(kind):
        return pa.array([date(1970, 1, 1) + timedelta(days=one) for one in mixed], kind)
    if pa.types.is_timestamp(kind):
        return pa.array([one * 100_003 for one in mixed], pa.int64()).cast(kind)
    if pa.types.is_decimal(kind):
        big = 10 ** (kind.precision - kind.scale - 3)
        return pa.array([Decimal(one * big) + Decimal(one).scaleb(-kind.scale) for one in mixed], kind)
    if isinstance(kind, pa.UuidType):
        return pa.array([UUID(int=one + 50 << 64 | one % 3) for one in mixed], kind)
    if pa.types.is_fixed_size_binary(kind):
        return pa.array([UUID(int=one + 50 << 64 | one % 3).bytes for one in mixed], kind)
    texts = [f"{one + 50}\x00{'x' * (number % 5)}" for one, number in zip(mixed, numbers, strict=True)]
    return pa.array(texts if "string" in str(kind) else [text.encode() for text in texts], kind)


class Rows:
    """A table with keys of a type, and the dict of what it should hold."""

    def __init__(self, place: Path, kind: pa.DataType, *, composite: bool, shard_by: Any) -> None:
        self.kind, self.composite = kind, composite
        part = pa.field("part", pa.int64(), nullable=not composite)
        schema = pa.schema([pa.field("id", kind, nullable=False), part, ("v", pa.int64())])
        key = ["id", "part"] if composite else "id"
        self.table = weir.create(place, schema, primary_key=key, shard_by=shard_by, fsync=False)
        self.expected: dict[Any, int] = {}
        self.numbers = (0, 1) if pa.types.is_boolean(kind) else tuple(range(60))

    def key(self, number: int) -> Any:
        return keys_of([number], self.kind)[0].as_py()

    def keys(self, numbers: Sequence[int]) -> list[Any]:
        values = [self.key(number) for number in numbers]
        return [(one, 0) for one in values] if self.composite else values

    def chosen(self, start: int, end: int) -> list[int]:
        return [number for number in self.numbers if start <= number < end]

    def rows(self, numbers: Sequence[int], value: int) -> pa.Table:
        self.expected.update((self.key(number), value) for number in numbers)
        columns = [keys_of(numbers, self.kind), *(pa.array([one] * len(numbers)) for one in (0, value))]
        return pa.table(columns, schema=self.table.schema)

    def check(self) -> None:
        found = self.table.scan(["id", "v"]).to_table()
        assert dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)) == self.expected
        assert found.num_rows == len(self.expected)
        asked = [one for one in (0, 7, 25, 59) if one in self.numbers]
        got = self.table.get(self.keys(asked), ["id", "v"])
        assert {one["id"]: one["v"] for one in got.to_pylist()} == {
            key: self.expected[key] for key in map(self.key, asked) if key in self.expected
        }
        written = literals(keys_of(self.numbers[-2:], self.kind))
        for number, literal in zip(self.numbers[-2:] if written else (), written or (), strict=True):
            key = self.key(number)
            values = self.table.scan(["v"], filter=f"id = {literal}").to_table()["v"].to_pylist()
            assert values == ([self.expected[key]] if key in self.expected else [])


@pytest.mark.one_in(5)
@pytest.mark.parametrize("composite", [False, True], ids=["single", "composite"])
@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_rows_are_found_by_key_wherever_they_are(tmp_path: Path, kind: pa.DataType, composite: bool) -> None:
    shard_by = weir.bucket("id", 2) if composite else None
    rows = Rows(tmp_path / "t", kind, composite=composite, shard_by=shard_by)
    table = rows.table
    assert table.status().library_writable == (kind in SUPPORTED_TYPES) or composite
    before = table.snapshot()
    with table.writer() as writer:
        writer.upsert(rows.rows(rows.chosen(0, 60), 1))
        writer.flush()
        table.maintenance.merge()
        writer.upsert(rows.rows(rows.chosen(0, 20), 2))
        writer.flush()
        writer.upsert(rows.rows(rows.chosen(1, 30), 3))
        then, at_that_time = table.snapshot(), dict(rows.expected)
        writer.delete(rows.table.get(rows.keys(rows.numbers[:1])))
        writer.delete(pa.table({"id": keys_of(rows.numbers[-1:], kind), "part": [0]}))
        for number in (rows.numbers[0], rows.numbers[-1]):
            rows.expected.pop(rows.key(number), None)
        if not composite and len(rows.numbers) > 2:
            writer.patch([{"id": rows.key(25), "v": 4}])
            rows.expected[rows.key(25)] = 4
        if len(rows.numbers) > 2:
            # Looks before it decides: one is there, the other is not.
            decided = pa.concat_tables([rows.rows([7], 5), rows.rows([0], 6)])
            result = writer.upsert(decided, condition="v < new.v")
            assert result.rows == 2
            writer.update(where="v = 3", set={"v": "33"})
            rows.expected = {one: 33 if v == 3 else v for one, v in rows.expected.items()}
        rows.check()
    rows.check()
    seen: dict[Any, int] = {}
    for batch in table.changes(since=before):
        for change in batch.rows.to_pylist():
            if change["_op"] == "delete":
                seen.pop(change["id"], None)
            else:
                seen[change["id"]] = change["v"]
    assert seen == rows.expected
    table.maintenance.merge(divided=composite)
    rows.check()
    old = table.scan(["id", "v"], at=str(then)).to_table()
    assert dict(zip(old["id"].to_pylist(), old["v"].to_pylist(), strict=True)) == at_that_time
    with table.writer() as writer:
        writer.upsert(rows.rows(rows.chosen(10, 40), 7))
    table.maintenance.merge(divided=not composite)
    table.maintenance.run()
    assert table.status().base_rows == len(rows.expected)
    rows.check()
    assert table.maintenance.verify().findings == ()
    plain = lance.dataset(table.uri).to_table(["id", "v"])
    assert dict(zip(plain["id"].to_pylist(), plain["v"].to_pylist(), strict=True)) == rows.expected


def test_writers_of_the_library_stop_and_its_reads_go_on(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.binary(16), nullable=False), ("v", pa.int64())])
    table = weir.create(tmp_path / "t", schema, primary_key="id")
    key = UUID(int=7919 << 64).bytes
    with table.writer() as writer:
        writer.upsert([{"id": key, "v": 1}])
    table.maintenance.merge()
    dataset = lance.dataset(table.uri)
    assert dataset.to_table().to_pylist() == [{"id": key, "v": 1}]
    (shard,) = (Path(table.uri) / "_mem_wal").iterdir()
    with pytest.raises(OSError, match="at most one sharding spec"):
        dataset.mem_wal_writer(shard.name)
    assert table.internals.base.details.features == (FEATURE,)
    lance.write_dataset(dataset.to_table(), tmp_path / "plain")
    adopted = weir.adopt(tmp_path / "plain", primary_key="id")
    assert adopted.internals.base.details.features == (FEATURE,)
    assert adopted.get([key])["v"].to_pylist() == [1]


def test_uuids_are_keys_whatever_holds_them(tmp_path: Path) -> None:
    one = UUID(int=2**127 + 1)
    of_arrow = pa.array([one.bytes], pa.uuid())
    for number, rows in enumerate(
        ([{"id": one, "v": 1}], pd.DataFrame({"id": [one], "v": [1]}), pa.table({"id": of_arrow, "v": [1]}))
    ):
        table = weir.create(tmp_path / str(number), rows, primary_key="id", shard_by=weir.bucket("id", 2))
        assert table.schema.field("id").type == pa.uuid()
        assert table.get([one]).to_pylist() == table.scan().to_pylist() == [{"id": one, "v": 1}]
        assert table.get([one])["v"].to_pylist() == table.get(of_arrow)["v"].to_pylist() == [1]
        for keys in ([one.bytes], [str(one)], pa.array([one.bytes], pa.binary(16)), pa.array([one.bytes])):
            assert table.get(keys)["v"].to_pylist() == [1]
        for condition in (f"id = '{one}'", f"id = X'{one.hex}'", f"id IN ('{one}')", f"id < '{UUID(int=3)}'"):
            found = table.scan(filter=condition).to_pylist()
            assert found == ([] if "<" in condition else [{"id": one, "v": 1}])
        (sold,) = table.sql(f"SELECT id FROM t WHERE id = X'{one.hex}'").to_pylist()
        assert sold == {"id": one}
        table.upsert(rows)
        table.delete([one])
        assert table.scan().count() == 0


def test_rows_that_ask_and_rows_in_order_may_have_uuids(tmp_path: Path) -> None:
    ids = [UUID(int=number) for number in (3, 1, 2)]
    schema = pa.schema([("id", pa.uuid()), ("v", pa.int64())])
    table = weir.create(tmp_path / "t", schema, primary_key="id")
    with table.writer() as writer:
        writer.apply(pa.table({"id": pa.array(ids + ids, pa.uuid()), "v": range(6), "_op": ["insert"] * 6}))
        writer.apply(pa.table({"id": pa.array(ids, pa.uuid()), "v": [7] * 3, "_op": ["patch"] * 3}))
    assert {row["id"]: row["v"] for row in table.scan().to_pylist()} == dict.fromkeys(ids, 7)
    only_added = weir.create(tmp_path / "a", schema, primary_key=None, sort_by=["id"])
    with only_added.writer() as writer:
        writer.upsert(pa.table({"id": pa.array(ids, pa.uuid()), "v": [0, 1, 2]}))
    only_added.maintenance.merge()
    assert lance.dataset(only_added.uri).to_table()["id"].to_pylist() == sorted(ids)
    # A text of 16 letters is no UUID, though it has as many bytes.
    with pytest.raises(SchemaError, match="id"):
        table.upsert([{"id": "0123456789abcdef", "v": 1}])


def test_images_before_of_rows_that_expire_may_have_uuids(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    schema = pa.schema([("id", pa.int64()), ("of", pa.uuid()), ("at", pa.timestamp("us", "UTC"))])
    table = weir.create(
        tmp_path / "t", schema, primary_key="id", expire_by="at", expire_after=timedelta(days=1)
    )
    row = {"id": 1, "of": UUID(int=1), "at": now}
    table.upsert([row])
    before = table.snapshot()
    table.upsert([row | {"of": UUID(int=2)}])
    (changes,) = table.changes(since=before, before=True)
    assert changes.rows["_before"].to_pylist()[0]["of"] == UUID(int=1)


def test_timestamps_of_pandas_keep_their_nanoseconds(tmp_path: Path) -> None:
    moment = pd.Timestamp(1_700_000_000_123_456_789, tz="UTC")
    for unit in ("ns", "us"):
        schema = pa.schema([pa.field("at", pa.timestamp(unit, "UTC"), nullable=False), ("v", pa.int64())])
        table = weir.create(tmp_path / unit, schema, primary_key="at")
        if unit == "us":
            with pytest.raises(SchemaError, match="lose data"):
                table.upsert([{"at": moment, "v": 1}])
        else:
            table.upsert([{"at": moment, "v": 1}])
            assert table.get([moment])["at"].to_pylist() == [moment]
            assert table.get([moment + pd.Timedelta(1, "ns")]).num_rows == 0


def test_whole_numbers_are_decimals_where_they_fit(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("price", pa.decimal128(5, 2), nullable=False), ("v", pa.decimal128(38, 30))])
    table = weir.create(tmp_path / "t", schema, primary_key="price")
    table.upsert([{"price": 7, "v": -5}])
    table.upsert(
        pa.table({"price": [999], "v": [None]}, schema=pa.schema([("price", pa.int64()), ("v", pa.int8())]))
    )
    assert table.get([7, Decimal("999.00"), 8])["price"].to_pylist() == [7, 999]
    with pytest.raises(SchemaError, match="does not fit"):
        table.upsert([{"price": 1000, "v": 1}])


@pytest.mark.parametrize("composite", [False, True], ids=["single", "composite"])
def test_dates_of_years_that_python_has_not_are_keys(tmp_path: Path, composite: bool) -> None:
    schema = pa.schema([("day", pa.date32()), ("part", pa.int64()), ("v", pa.int64())])
    key = ["day", "part"] if composite else "day"
    table = weir.create(tmp_path / "t", schema, primary_key=key, fsync=False)
    # The first day of year 1 and the last of 9999, those beside them, and the very first and last.
    days = pa.array([-719_162, -719_163, 2_932_896, 2_932_897, -(2**31), 2**31 - 1], pa.int32())
    rows = pa.table({"day": days.cast(pa.date32()), "part": [0] * 6, "v": range(6)})
    table.upsert(rows)
    table.maintenance.merge()
    assert sorted(table.get(rows)["v"].to_pylist()) == list(range(6))
    assert table.patch(rows.set_column(2, "v", pa.array(range(10, 16)))).rows == 6
    assert sorted(table.get(rows)["v"].to_pylist()) == list(range(10, 16))
    table.maintenance.merge()
    table.delete(rows)
    assert table.scan().count() == 0
