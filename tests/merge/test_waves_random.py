"""Merges in waves come to what the library's come to, on tables of every make, and so does every read."""

from __future__ import annotations

import datetime as dt
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import lance
import pyarrow as pa
import pytest
from tests.merge.test_waves import unreferenced

import weir
from weir.base.table import BaseTable
from weir.maintenance.verification.finding import Severity
from weir.storage.local import LocalStore

DIMENSION = 4
WORDS = ("ash", "birch", "cedar", "elm", "fir", "oak")
SOON = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
VALUES: tuple[tuple[pa.DataType, Callable[[int], Any]], ...] = (
    (pa.int8(), lambda n: n - 20),
    (pa.int32(), lambda n: n * 2**25 - 2**29),
    (pa.int64(), lambda n: n * 2**57 - 2**62),
    (pa.uint64(), lambda n: 2**64 - 1 - n),
    (pa.string(), lambda n: f"k\x00{n}é" if n else ""),
    (pa.large_string(), lambda n: f"{n:040}"),
    (pa.binary(), lambda n: bytes([n, 0])),
    (pa.binary(16), lambda n: bytes([n] * 16)),
    (pa.bool_(), lambda n: n % 2 == 0),
    (pa.date32(), lambda n: dt.date(1960, 1, 1) + dt.timedelta(days=400 * n)),
    (pa.timestamp("us", "UTC"), lambda n: SOON + dt.timedelta(microseconds=n - 20)),
    (pa.timestamp("ns"), lambda n: pa.scalar(n - 20, pa.timestamp("ns"))),
    (pa.decimal128(12, 2), lambda n: Decimal(n - 20) / 4),
    (pa.uuid(), lambda n: UUID(int=n * 2**121)),
)
ENGINES: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"merge_engine": "first_row"},
    {"merge_engine": "partial_update"},
    {"sequence_by": "n"},
    {"expire_by": "at", "expire_after": dt.timedelta(days=36500)},
)


@dataclass(slots=True)
class Made:
    """A table of a make that a seed has drawn, and its history.

    Parameters
    ----------
    table : Table
        The table.
    draw : Random
        Draws what happens to it.
    keys : sequence of dict
        The keys that rows have.
    made_of : list of str
        What has been drawn.
    """

    table: weir.Table
    draw: random.Random
    keys: Sequence[dict[str, Any]]
    made_of: list[str] = field(default_factory=list)

    def rows(self) -> list[dict[str, Any]]:
        draw = self.draw
        chosen = draw.sample(list(self.keys), draw.randrange(1, len(self.keys) + 1))
        full = [
            {
                **key,
                "n": draw.randrange(100),
                "text": None if draw.random() < 0.2 else " ".join(draw.choices(WORDS, k=2)),
                "v": [float(draw.randrange(50)) for _ in range(DIMENSION)],
                "at": draw.choice([None, SOON]),
                "renamed": draw.randrange(9),
                "added": draw.randrange(9),
            }
            for key in chosen
        ]
        there = set(self.table.schema.names)
        return [{name: value for name, value in row.items() if name in there} for row in full]

    def write(self) -> None:
        with self.table.writer(max_memtable_rows=25) as writer:
            for _ in range(self.draw.randrange(1, 4)):
                writer.upsert(self.rows())
                if self.table.primary_key and self.draw.random() < 0.7:
                    some = self.draw.sample(
                        list(self.keys), self.draw.randrange(1, min(8, len(self.keys) + 1))
                    )
                    names = list(self.table.primary_key)
                    writer.delete(some if len(names) > 1 else [one[names[0]] for one in some])
            writer.flush()

    def happen(self) -> None:
        """Have something happen besides writes."""
        what = self.draw.choice(["merge", "merge", "add", "drop", "index", "by hand", "compact", "catch up"])
        self.made_of.append(what)
        there = self.table.schema.names
        if what == "merge":
            self.table.maintenance.merge(divided=self.draw.random() < 0.5)
        elif what == "add" and "added" not in there:
            self.table.alter(add=[pa.field("added", pa.int64())])
        elif what == "drop" and "dropped" in there:
            self.table.alter(drop=["dropped"], rename={"old": "renamed"})
        elif what == "index":
            of_vectors: dict[str, Any] = {"num_partitions": 1}
            kind, column, options = self.draw.choice(
                [("BTREE", "n", {}), ("FTS", "text", {}), ("IVF_FLAT", "v", of_vectors)]
            )
            if column not in {one.column for one in self.table.indexes.list()}:
                self.table.indexes.create(column, kind, **options)
        elif what == "by hand":
            lance.dataset(self.table.uri).delete("n < 10")
        elif what == "compact":
            self.table.maintenance.compact(max_deleted=0.01)
        elif what == "catch up":
            self.table.maintenance.catch_up_indexes()


def make(path: Path, seed: int) -> Made:
    draw = random.Random(seed)
    width = draw.choice([1, 1, 2, 3])
    kinds = [VALUES[seed % len(VALUES)], *(draw.choice(VALUES) for _ in range(width - 1))]
    drawn = [
        tuple(of(number if at == 0 else number % 5) for at, (_, of) in enumerate(kinds))
        for number in range(40)
    ]
    keys = [{f"k{at}": value for at, value in enumerate(key)} for key in dict.fromkeys(drawn)]
    columns = [pa.field(f"k{at}", kind, nullable=False) for at, (kind, _) in enumerate(kinds)]
    schema = pa.schema(
        [
            *columns,
            ("n", pa.int64()),
            ("dropped", pa.string()),
            ("text", pa.string()),
            ("old", pa.int64()),
            ("v", pa.list_(pa.float32(), DIMENSION)),
            ("at", pa.timestamp("us", "UTC")),
        ]
    )
    names = [one.name for one in columns]
    if seed % 8 == 7:
        lance.write_dataset(schema.empty_table(), path, enable_stable_row_ids=True)
        return Made(weir.adopt(path, primary_key=names, fsync=False), draw, keys, ["stable row ids"])
    options = dict(draw.choice(ENGINES))
    if seed % 8 == 5:
        options = {"dedup": False, "sort_by": ["n"]}
    shards = draw.choice([1, 3])
    table = weir.create(
        path, schema, primary_key=names, shard_by=weir.bucket("k0", shards), fsync=False, **options
    )
    return Made(table, draw, keys, [str(options), f"{[str(kind) for kind, _ in kinds]}", f"{shards} shards"])


def seen(table: weir.Table) -> list[Any]:
    """Return what reads of a table tell, apart from the order of rows."""
    rows = table.scan().to_table().to_pylist()
    found: list[Any] = [sorted(map(str, rows))]
    found.append(table.scan(["n"], filter="n > 50").count())
    if "text" in {one.column for one in table.indexes.list()}:
        found.append(sorted(map(str, table.search_text("oak", k=100, column="text").to_pylist())))
    hits = table.search([1.0] * DIMENSION, k=100, column="v", columns=["n"])
    found.append(sorted(map(str, hits.to_pylist())))
    return found


def base_rows(table: weir.Table) -> list[str]:
    """Return the rows of the base table, apart from their order."""
    return sorted(map(str, lance.dataset(table.uri).to_table().to_pylist()))


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "seed",
    # The last two are of a make of their own: rows that are not deduplicated, and stable row ids.
    [seed if seed in (0, 1, 5, 7) else pytest.param(seed, marks=pytest.mark.long) for seed in range(200)],
)
def test_tables_of_every_make(tmp_path: Path, seed: int) -> None:
    made = make(tmp_path / "waves", seed)
    for _ in range(3):
        made.write()
        made.happen()
    made.write()
    print(made.made_of)
    before = seen(made.table)
    shutil.copytree(tmp_path / "waves", tmp_path / "library")
    reports, rows = [], []
    for way in ("waves", "library"):
        table = weir.open(tmp_path / way, fsync=False)
        assert seen(table) == before
        report = table.maintenance.merge(divided=way == "waves")
        reports.append((report.shards, report.generations, report.rows_upserted, report.rows_deleted))
        rows.append(base_rows(table))
        assert seen(table) == before
        table.maintenance.catch_up_indexes()
        assert seen(table) == before
        found = table.maintenance.verify().findings
        assert [one for one in found if one.severity is Severity.ERROR] == []
    assert rows[0] == rows[1]
    assert reports[0] == reports[1]
    assert unreferenced(BaseTable.open(LocalStore(tmp_path / "waves", fsync=False))) == set()
