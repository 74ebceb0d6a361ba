"""The cache keeps what it has room for, and lets go of what is of something that is gone."""

from __future__ import annotations

import random
from collections import OrderedDict
from pathlib import Path

import pyarrow as pa

import weir
from weir.engine.cache import ByteBudgetCache, Lifetime

OF_A_VERSION = {"key pages", "key page", "key pages of a segment", "superseded", "generation indexes"}
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("value", pa.string())])


def test_entries_are_what_a_list_in_order_of_use_says() -> None:
    random_number = random.Random(3)
    cache = ByteBudgetCache(20 * 256)
    expected: OrderedDict[int, tuple[int, int, int | None]] = OrderedDict()
    held: dict[int, Lifetime] = {}
    for step in range(20_000):
        key = random_number.randrange(40)
        match random_number.randrange(5):
            case 0:
                found = cache.get(key)
                assert found == (expected[key][0] if key in expected else None)
                if key in expected:
                    expected.move_to_end(key)
            case 1 | 2:
                name = random_number.randrange(6)
                of = None if name == 5 else name
                if of is not None:
                    held[of] = cache.lifetime(of)
                size = 256 * random_number.randrange(1, 4)
                cache.put(key, step, size, None if of is None else held[of])
                expected[key] = (step, size, of)
                expected.move_to_end(key)
                while sum(one[1] for one in expected.values()) > cache.budget:
                    expected.popitem(last=False)
            case 3:
                cache.discard([key])
                expected.pop(key, None)
            case 4 if step % 4 == 0 and held:
                gone = random_number.choice(sorted(held))
                del held[gone]
                for one in [one for one, entry in expected.items() if entry[2] == gone]:
                    del expected[one]
        assert cache.nbytes == sum(one[1] for one in expected.values())
        assert {name: held[name].keys for name in held} == {
            name: {one for one, entry in expected.items() if entry[2] == name} for name in held
        }


def test_what_is_of_former_versions_leaves_the_cache(tmp_path: Path) -> None:
    with weir.Engine(maintenance="off") as engine:
        table = engine.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
        held = []
        for _ in range(6):
            with table.writer() as writer:
                writer.upsert([{"id": one, "value": "x"} for one in range(2_000)])
            table.maintenance.run(horizon=0)
            assert table.get([7, 2_001]).num_rows == table.scan(filter="id = 8").count() == 1
            held.append(sorted(key[0] for key in engine.cache.held() if key[0] in OF_A_VERSION))
        assert "key pages" in held[2]
        assert held[2] == held[5]


def test_a_table_that_is_opened_for_every_call_finds_what_the_call_before_has_read(tmp_path: Path) -> None:
    with weir.Engine(maintenance="off") as engine:
        with engine.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False).writer() as writer:
            writer.upsert([{"id": one, "value": "x"} for one in range(1_000)])
        engine.open(tmp_path / "t").maintenance.merge()
        assert engine.open(tmp_path / "t").get([7]).num_rows == 1
        held = engine.cache.nbytes
        assert engine.open(tmp_path / "t").get([7]).num_rows == 1
        assert engine.cache.nbytes == held
