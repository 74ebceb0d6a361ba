"""Searches beside a writer in another process and every service in this one, against brute force.

A snapshot token says which state a reader has seen. What a scan of that state returns is the truth that
searches, lookups, filters by every kind of index and SQL at the same token have to agree with, whatever is
flushed, merged, indexed, compacted and collected meanwhile.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.forked_program import weir_python
from tests.search.search_model import check_ranking, nearest, text_scores

import weir
from weir.errors import ConflictError, SnapshotExpiredError

DIMENSION = 4
PARTITIONS = 2
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("version", pa.int64()),
        ("kind", pa.string()),
        ("number", pa.int32()),
        ("code", pa.string()),
        ("text", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("vector", pa.list_(pa.float32(), DIMENSION)),
    ]
)
INDEXES: list[tuple[str, str, dict[str, Any]]] = [
    ("kind", "BITMAP", {}),
    ("version", "BTREE", {}),
    ("number", "ZONEMAP", {}),
    ("code", "BLOOMFILTER", {}),
    ("text", "INVERTED", {"with_position": True, "stem": False, "remove_stop_words": False}),
    ("text", "NGRAM", {"name": "parts"}),
    ("tags", "LABEL_LIST", {}),
    ("vector", "IVF_FLAT", {"num_partitions": PARTITIONS}),
]
CONDITIONS: list[tuple[str, Callable[[Mapping[str, Any]], bool]]] = [
    ("kind = 'k1'", lambda row: row["kind"] == "k1"),
    ("kind != 'k1' AND number > 5", lambda row: row["kind"] != "k1" and row["number"] > 5),
    ("version IN (0, 3) OR number = 2", lambda row: row["version"] in (0, 3) or row["number"] == 2),
    ("NOT (number BETWEEN 3 AND 8)", lambda row: not 3 <= row["number"] <= 8),
    ("code = 'c17'", lambda row: row["code"] == "c17"),
    ("contains(text, 'w1 w')", lambda row: "w1 w" in row["text"]),
    ("array_has(tags, 't2')", lambda row: "t2" in row["tags"]),
]

COMMON = f"""
import numpy as np
def rows(seed, count):
    generator = np.random.default_rng(seed)
    return [
        {{
            "id": int(key),
            "version": seed,
            "kind": f"k{{generator.integers(3)}}",
            "number": int(generator.integers(12)),
            "code": f"c{{generator.integers(40)}}",
            "text": " ".join(f"w{{one}}" for one in generator.integers(0, 9, generator.integers(0, 7))),
            "tags": [f"t{{one}}" for one in generator.integers(0, 4, 2)],
            "vector": generator.normal(size={DIMENSION}).astype(np.float32).tolist(),
        }}
        for key in generator.choice(300, count, replace=False)
    ]
"""
WRITER = (
    COMMON
    + """
import sys, weir
from datetime import timedelta
table = weir.open(sys.argv[1], fsync=False)
with table.writer(max_memtable_rows=60, takeover=True) as writer:
    for seed in range(1, int(sys.argv[2]) + 1):
        writer.upsert(rows(seed, 25))
        writer.delete([int(key) for key in np.random.default_rng(seed).integers(0, 300, 5)])
        if seed % 7 == 0:
            table.maintenance.merge()
"""
)


class Reader(threading.Thread):
    """Takes a token again and again, and compares everything at it with a scan."""

    def __init__(self, uri: str, seed: int, done: threading.Event) -> None:
        super().__init__()
        self._table = weir.open(uri, fsync=False)
        self._generator = np.random.default_rng(seed)
        self._done = done
        self.states: set[str] = set()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while True:
                # Once more after everything has come to rest.
                last = self._done.is_set()
                # Somebody wrote without a pause, or collected what the token needs while it was taken.
                with suppress(ConflictError, SnapshotExpiredError):
                    token = self._table.snapshot()
                    self._compare(token)
                    self._table.release(token)
                    self.states.add(str(token))
                if last:
                    return
        except BaseException as error:
            self.failure = error

    def _compare(self, token: weir.SnapshotToken) -> None:
        table = self._table
        model = {(row["id"],): row for row in table.scan(at=token).to_table().to_pylist()}
        query = self._generator.normal(size=DIMENSION)
        found = table.search(query, 8, nprobes=PARTITIONS, at=token).to_table()
        check_ranking(found, ["id"], "_distance", nearest(model, query), 8, descending=False)
        self._are_of(model, found)
        condition, keeps = CONDITIONS[self._generator.integers(len(CONDITIONS))]
        found = table.search(query, 5, filter=condition, nprobes=PARTITIONS, at=token).to_table()
        check_ranking(found, ["id"], "_distance", nearest(model, query, keep=keeps), 5, descending=False)
        words = " ".join(f"w{one}" for one in self._generator.integers(0, 9, 2))
        for text in (weir.MatchQuery(words), weir.PhraseQuery(words), weir.MatchQuery(words, operator="and")):
            found = table.search_text(text, 6, column="text", at=token).to_table()
            check_ranking(found, ["id"], "_score", text_scores(model, text), 6, descending=True)
            self._are_of(model, found)
        both = table.search_hybrid(
            query, words, 4, text_column="text", nprobes=PARTITIONS, at=token
        ).to_table()
        self._are_of(model, both)
        for condition, keeps in CONDITIONS:
            ids = table.scan(["id"], filter=condition, at=token).to_table().column("id").to_pylist()
            assert sorted(ids) == sorted(key for (key,), row in model.items() if keeps(row)), condition
        sql = "SELECT * FROM t WHERE number > 2 ORDER BY number, id DESC LIMIT 9"
        first = sorted(
            (row for row in model.values() if row["number"] > 2), key=lambda row: (row["number"], -row["id"])
        )
        assert table.sql(sql, at=token).to_table().to_pylist() == first[:9]
        keys = self._generator.integers(-5, 305, 20).tolist()
        wanted = [model[key,] for key in dict.fromkeys(keys) if (key,) in model]
        assert table.get(keys, at=token).to_pylist() == wanted

    @staticmethod
    def _are_of(model: dict[Any, dict[str, Any]], found: pa.Table) -> None:
        for row in found.to_pylist():
            expected = model[row["id"],]
            assert {name: row[name] for name in expected} == expected


@pytest.mark.parametrize("shards", [pytest.param(1, marks=pytest.mark.long), 3])
def test_everything_read_at_a_token_agrees(tmp_path: Path, shards: int) -> None:
    names: dict[str, Any] = {}
    exec(COMMON, names)
    table = weir.create(
        tmp_path / "t", SCHEMA, primary_key="id", shard_by=weir.bucket("id", shards), fsync=False
    )
    with table.writer() as writer:
        writer.upsert(names["rows"](0, 300))
    table.maintenance.merge()
    for column, kind, options in INDEXES:
        table.indexes.create(column, kind, **options)
    done = threading.Event()
    readers = [Reader(table.uri, seed, done) for seed in range(2)]
    process = subprocess.Popen([*weir_python(), WRITER, table.uri, "20"])
    try:
        for reader in readers:
            reader.start()
        while process.poll() is None:
            # Two commits that keep getting in each other's way give up, and are tried again.
            with suppress(ConflictError):
                table.maintenance.merge()
                table.maintenance.catch_up_indexes()
                table.maintenance.compact(max_deleted=0.05)
                table.maintenance.collect_garbage(
                    horizon=timedelta(seconds=2), version_retention=timedelta(seconds=2)
                )
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()
        done.set()
        for reader in readers:
            reader.join()
    for reader in readers:
        if reader.failure is not None:
            raise reader.failure
        assert len(reader.states) > 1
