"""Keys of fixed-size binary, through every stage of a row's life, against a dict."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import lance
import pyarrow as pa
import pytest

import weir
from weir.format.keys import FEATURE


def key(number: int) -> bytes:
    """A UUID, with zero bytes and in no order."""
    return UUID(int=number * 7919 << 64 | number % 3).bytes


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("composite", [False, True])
def test_rows_are_found_by_uuid_wherever_they_are(tmp_path: Path, composite: bool, sharded: bool) -> None:
    schema = pa.schema(
        [pa.field("id", pa.binary(16), nullable=False), ("part", pa.int64()), ("v", pa.int64())]
    )
    table = weir.create(
        tmp_path / "t",
        schema.set(1, pa.field("part", pa.int64(), nullable=not composite)),
        primary_key=["id", "part"] if composite else "id",
        shard_by=weir.bucket("id", 3) if sharded else None,
    )
    assert not table.status().library_writable
    expected: dict[bytes, int] = {}

    def rows(numbers: range, value: int) -> list[dict[str, object]]:
        expected.update((key(number), value) for number in numbers)
        return [{"id": key(number), "part": 0, "v": value} for number in numbers]

    def check() -> None:
        found = table.scan(["id", "v"]).to_table()
        assert dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)) == expected
        wanted = [key(number) for number in (0, 7, 25, 299, 1000)]
        got = table.get([(one, 0) for one in wanted] if composite else wanted, ["id", "v"])
        assert {one["id"]: one["v"] for one in got.to_pylist()} == {
            one: expected[one] for one in wanted if one in expected
        }
        where = f"id = X'{key(25).hex()}'"
        assert table.scan(["v"], filter=where).to_table()["v"].to_pylist() == [expected[key(25)]]

    with table.writer() as writer:
        writer.upsert(rows(range(300), 1))
        writer.flush()
        table.maintenance.merge()
        writer.upsert(rows(range(20), 2))
        writer.flush()
        writer.upsert(rows(range(15, 30), 3))
        gone = [key(0), key(299)]
        writer.delete([{"id": one, "part": 0} for one in gone])
        for one in gone:
            del expected[one]
        if not composite:
            writer.patch([{"id": key(25), "v": 4}])
            expected[key(25)] = 4
        check()
    check()
    table.maintenance.run()
    assert table.status().base_rows >= len(expected)
    check()
    assert table.maintenance.verify().findings == ()


def test_writers_of_the_library_stop_and_its_reads_go_on(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.binary(16), nullable=False), ("v", pa.int64())])
    table = weir.create(tmp_path / "t", schema, primary_key="id")
    with table.writer() as writer:
        writer.upsert([{"id": key(1), "v": 1}])
    table.maintenance.merge()
    dataset = lance.dataset(table.uri)
    assert dataset.to_table().to_pylist() == [{"id": key(1), "v": 1}]
    (shard,) = (Path(table.uri) / "_mem_wal").iterdir()
    with pytest.raises(OSError, match="at most one sharding spec"):
        dataset.mem_wal_writer(shard.name)
    assert table.internals.base.details.features == (FEATURE,)
    lance.write_dataset(dataset.to_table(), tmp_path / "plain")
    adopted = weir.adopt(tmp_path / "plain", primary_key="id")
    assert adopted.internals.base.details.features == (FEATURE,)
    assert adopted.get([key(1)])["v"].to_pylist() == [1]
