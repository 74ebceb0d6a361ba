"""Tables made with stable row ids: every service and read beside plain writes of Lance, against a dict."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import weir
from weir.maintenance.verification.finding import Severity

DIMENSION = 4
KEYS = range(120)
WORDS = ("ash", "birch", "cedar", "elm", "fir", "oak")
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("n", pa.int64()),
        ("text", pa.string()),
        ("vector", pa.list_(pa.float32(), DIMENSION)),
    ]
)


class History:
    """A table, and the plain model of it."""

    def __init__(self, path: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.path = str(path)
        self.model = {key: self.row(key) for key in range(60)}
        rows = pa.Table.from_pylist(list(self.model.values()), SCHEMA)
        lance.write_dataset(rows, self.path, enable_stable_row_ids=True, max_rows_per_file=25)
        self.table = weir.adopt(self.path, primary_key="id", shard_by=weir.bucket("id", 2))
        self.table.indexes.create("n", "BTREE")
        self.table.indexes.create("text", "INVERTED")
        self.table.indexes.create("vector", "IVF_FLAT", num_partitions=1)

    def row(self, key: int) -> dict[str, Any]:
        text = None if self.chance.random() < 0.2 else " ".join(self.chance.choices(WORDS, k=2))
        vector = [float(self.chance.randrange(50)) for _ in range(DIMENSION)]
        return {"id": key, "n": self.chance.randrange(100), "text": text, "vector": vector}

    def upsert(self) -> None:
        rows = [self.row(key) for key in self.chance.sample(KEYS, 20)]
        with self.table.writer() as writer:
            writer.upsert(rows)
        self.model |= {row["id"]: row for row in rows}

    def delete(self) -> None:
        keys = self.chance.sample(KEYS, 8)
        with self.table.writer() as writer:
            writer.delete(keys)
        for key in keys:
            self.model.pop(key, None)

    def plain_merge(self) -> None:
        self.table.maintenance.merge()
        rows = [self.row(key) for key in self.chance.sample(KEYS, 10)]
        insert = lance.dataset(self.path).merge_insert("id").when_matched_update_all()
        insert.when_not_matched_insert_all().execute(pa.Table.from_pylist(rows, SCHEMA))
        self.model |= {row["id"]: row for row in rows}

    def plain_update(self) -> None:
        self.table.maintenance.merge()
        lance.dataset(self.path).update({"n": "n + 1"}, where="id % 5 = 2")
        for row in self.model.values():
            row["n"] += row["id"] % 5 == 2

    def plain_compact(self) -> None:
        lance.dataset(self.path).optimize.compact_files()

    def steps(self) -> list[Callable[[], object]]:
        table = self.table
        return [
            *(
                self.upsert,
                self.upsert,
                self.delete,
                table.maintenance.merge,
                table.maintenance.merge,
                table.maintenance.catch_up_indexes,
            ),
            *(table.maintenance.compact, table.maintenance.collect_garbage),
            *(self.plain_merge, self.plain_update, self.plain_compact),
        ]

    def check(self) -> None:
        table, model = self.table, self.model
        assert {row["id"]: row for row in table.scan().to_table().to_pylist()} == model
        assert table.scan().count() == len(model)
        keys = self.chance.sample(KEYS, 30)
        assert {row["id"]: row for row in table.get(keys).to_pylist()} == {
            key: model[key] for key in keys if key in model
        }
        low = self.chance.randrange(100)
        within = table.scan(["id"], filter=f"n >= {low} AND n < {low + 20}").to_table()["id"].to_pylist()
        assert sorted(within) == sorted(key for key, row in model.items() if low <= row["n"] < low + 20)
        word = self.chance.choice(WORDS)
        having = table.search_text(word, column="text", k=1000).to_table()
        expected = sorted(key for key, row in model.items() if word in (row["text"] or "").split())
        assert sorted(having["id"].to_pylist()) == expected
        within = table.search_text(word, column="text", k=1000, filter=f"n < {low}").to_table()["id"]
        assert sorted(within.to_pylist()) == [key for key in expected if model[key]["n"] < low]
        asked = np.array([self.chance.randrange(50) for _ in range(DIMENSION)], dtype=np.float32)
        nearest = table.search(asked, column="vector", k=5, columns=["id"]).to_table()
        away = {key: float(((np.array(row["vector"]) - asked) ** 2).sum()) for key, row in model.items()}
        assert nearest["_distance"].to_pylist() == sorted(away.values())[:5]
        assert all(away[row["id"]] == row["_distance"] for row in nearest.to_pylist())
        assert not [one for one in table.maintenance.verify().findings if one.severity is Severity.ERROR]


@pytest.mark.parametrize(
    ("seed", "steps"), [(0, 8), *(pytest.param(seed, 20, marks=pytest.mark.long) for seed in range(1, 4))]
)
def test_a_table_with_stable_row_ids_equals_a_dict(tmp_path: Path, seed: int, steps: int) -> None:
    history = History(tmp_path / "table", seed)
    for _ in range(steps):
        history.chance.choice(history.steps())()
        history.check()


def test_changes_and_tokens_of_a_table_with_stable_row_ids(tmp_path: Path) -> None:
    history = History(tmp_path / "table", seed=7)
    token = history.table.snapshot()
    before = dict(history.model)
    history.upsert()
    history.delete()
    history.plain_merge()
    history.table.maintenance.catch_up_indexes()
    history.table.maintenance.compact()
    found = history.table.scan(at=token).to_table().to_pylist()
    assert {row["id"]: row for row in found} == before
    history.check()


def test_verify_finds_what_is_wrong_with_an_index_of_such_a_table(tmp_path: Path) -> None:
    """It has been judged by addresses, as the library writes them, and not found sound by any."""
    history = History(tmp_path / "table", seed=1)
    history.upsert()
    history.table.maintenance.merge()
    history.table.maintenance.catch_up_indexes()
    history.check()
    # A copy of the files of an index as they were, in the place of those of now.
    pages = sorted(
        (tmp_path / "table" / "_indices").glob("*/page_data.lance"), key=lambda path: path.stat().st_mtime
    )
    newest, oldest = pages[-1], pages[0]
    assert newest.read_bytes() != oldest.read_bytes()
    newest.write_bytes(oldest.read_bytes())
    checks = {
        one.check for one in history.table.maintenance.verify().findings if one.severity is Severity.ERROR
    }
    assert any(check.startswith("base_index.") for check in checks)
