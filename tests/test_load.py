"""Bulk loads: what a dict comes to, whatever was there; seen by the feed; exactly once; in the base table."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import weir
from tests.crashes import kill_at
from tests.merge.test_merge_races import interrupted
from tests.storage.s3 import S3Endpoint, s3_endpoint
from weir.errors import ConflictError, InputError, KeyValueError, SchemaError
from weir.merge import copied_generations
from weir.table.maintenance import TableMaintenance

__all__ = ["s3_endpoint"]

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("part", pa.string(), nullable=False),
        ("value", pa.string()),
    ]
)
Model = dict[tuple[Any, ...], dict[str, Any]]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the files of small generations copied."""
    monkeypatch.setattr(copied_generations, "_LEAST_ROWS", 1)


def rows(numbers: Iterator[int] | range | list[int], value: str) -> list[dict[str, Any]]:
    return [{"id": n, "part": f"p{n % 3}", "value": f"{value}{n}"} for n in numbers]


def put(model: Model, key: tuple[str, ...], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    model.update({tuple(row[name] for name in key): row for row in new})
    return new


def shown(table: weir.Table) -> list[str]:
    return sorted(map(str, table.scan().to_table().to_pylist()))


def stored(table: weir.Table, **options: Any) -> list[str]:
    return sorted(map(str, lance.dataset(table.uri, **options).to_table().to_pylist()))


def of(model: Model) -> list[str]:
    return sorted(map(str, model.values()))


@pytest.mark.covering
@pytest.mark.parametrize("key", [("id",), ("part", "id")], ids=["single", "composite"])
@pytest.mark.parametrize("shards", [pytest.param(1, marks=pytest.mark.long), 3])
@pytest.mark.parametrize("least", [1, 100], ids=["copied", "written"])
def test_a_load_is_an_upsert_that_is_merged(
    tmp_path: Path, key: tuple[str, ...], shards: int, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copied_generations, "_LEAST_ROWS", least)
    draw = random.Random(shards)
    schema = SCHEMA.set(1, SCHEMA.field("part").with_nullable("part" not in key))
    table = weir.create(
        str(tmp_path / "table"), schema, primary_key=key, shard_by=weir.bucket("id", shards), fsync=False
    )
    model: Model = {}
    assert table.load(put(model, key, rows(range(30), "first"))).rows == 30
    assert stored(table) == of(model) == shown(table)
    place = table.changes().latest()
    # Of the keys that are loaded some are in a generation, some in the log, some there twice, and some new.
    with table.writer() as writer:
        writer.upsert(put(model, key, rows(range(10, 40), "generation")))
        writer.flush()
    table.upsert(put(model, key, rows(range(20, 50), "log")))
    one = rows([5], "")[0]
    table.delete([tuple(one[name] for name in key) if len(key) > 1 else one[key[0]]])
    del model[tuple(one[name] for name in key)]
    twice = [*rows(range(25, 60), "load"), *rows(draw.sample(range(25, 60), 20), "last")]
    result = table.load(pa.Table.from_pylist(put(model, key, twice), schema=schema))
    assert (result.rows, len(result.positions), result.deduplicated) == (35, shards, ())
    assert result.version == lance.dataset(table.uri).version
    assert stored(table) == of(model) == shown(table)
    assert table.status().unmerged_rows == 0
    # The feed has all of it, each shard's in order, and comes to the same.
    seen: Model = {}
    for batch in table.changes(since=place):
        for change in batch.rows.to_pylist():
            at = tuple(change[name] for name in key)
            if change["_op"] == "delete":
                seen.pop(at, None)
            else:
                seen[at] = {name: change[name] for name in SCHEMA.names}
    assert seen == {at: row for at, row in model.items() if not row["value"].startswith("first")}
    assert not table.maintenance.verify().findings


def test_streams_are_staged_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weir.write.flush.rows_to_stage._MAX_HELD_BYTES", 2_000)
    monkeypatch.setattr("weir.write.flush.rows_to_stage._ROUTED_TOGETHER_BYTES", 500)
    table = weir.create(str(tmp_path / "table"), SCHEMA, primary_key="id", fsync=False)
    model: Model = {}
    batches = [
        pa.RecordBatch.from_pylist(put(model, ("id",), rows(range(n, n + 60), f"{n}.")), schema=SCHEMA)
        for n in range(0, 400, 40)
    ]
    assert table.load(iter(batches)).rows > 420, "keys that are in two generations count twice"
    assert stored(table) == of(model) == shown(table)


def test_rows_that_are_only_added_are_loaded(tmp_path: Path) -> None:
    table = weir.create(
        str(tmp_path / "table"), SCHEMA, primary_key="id", dedup=False, shard_by=weir.bucket("id", 2)
    )
    want = [*rows(range(10), "a"), *rows(range(5, 20), "b")]
    table.load(want[:10])
    table.load(want[10:])
    assert shown(table) == stored(table) == sorted(map(str, want))


def test_a_merge_engine_settles_what_is_loaded(tmp_path: Path) -> None:
    table = weir.create(str(tmp_path / "table"), SCHEMA, primary_key="id", merge_engine="first_row")
    table.load(rows(range(10), "a"))
    table.load(rows(range(5, 20), "b"))
    assert (
        shown(table) == stored(table) == sorted(map(str, [*rows(range(10), "a"), *rows(range(10, 20), "b")]))
    )


def _a_bad_row_late() -> Iterator[dict[str, Any]]:
    yield from rows(range(70_000), "a")
    yield {"id": None, "part": "p", "value": "x"}


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ([{"id": 1, "part": "p", "valeu": "x"}], SchemaError),
        ([{"id": 1, "part": "p", "value": object()}], InputError),
        (_a_bad_row_late(), KeyValueError),
    ],
    ids=["column", "value", "stream"],
)
def test_rows_that_do_not_fit_leave_nothing(
    tmp_path: Path, bad: Any, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weir.write.flush.rows_to_stage._MAX_HELD_BYTES", 2_000)
    table = weir.create(str(tmp_path / "table"), SCHEMA, primary_key="id", fsync=False)
    with pytest.raises(error):
        table.load(bad)
    assert shown(table) == []
    assert not list(Path(table.uri, "_mem_wal").glob("*/*/data/*"))


def test_what_cannot_be_merged_yet_is_loaded_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: TableMaintenance, **options: Any) -> None:
        raise ConflictError("others were faster")

    table = weir.create(str(tmp_path / "table"), SCHEMA, primary_key="id")
    with monkeypatch.context() as patched:
        patched.setattr(TableMaintenance, "merge_loaded", fail)
        assert table.load(rows(range(10), "a")).version is None
    assert shown(table) == sorted(map(str, rows(range(10), "a")))
    table.maintenance.merge()
    assert stored(table) == shown(table)


@pytest.mark.parametrize(
    "place",
    [
        "merge.before_commit",
        *(pytest.param(one, marks=pytest.mark.long) for one in ("merge.before_rows", "merge.after_commit")),
    ],
)
def test_upserts_of_the_same_keys_meanwhile_are_newer(tmp_path: Path, place: str) -> None:
    table = weir.create(str(tmp_path / "table"), SCHEMA, primary_key="id", shard_by=weir.bucket("id", 2))
    model: Model = {}
    table.load(put(model, ("id",), rows(range(10), "first")))

    def meanwhile() -> None:
        table.upsert(rows(range(15, 25), "upsert"))
        with table.writer() as writer:
            writer.upsert(rows(range(3, 8), "other"))
            writer.flush()
        weir.open(table.uri).maintenance.merge()

    with interrupted(place, meanwhile):
        table.load(put(model, ("id",), rows(range(5, 20), "load")))
    put(model, ("id",), [*rows(range(15, 25), "upsert"), *rows(range(3, 8), "other")])
    assert shown(table) == of(model)
    table.maintenance.merge()
    assert stored(table) == of(model)


def load_nightly(uri: str, new: list[dict[str, Any]]) -> None:
    copied_generations._LEAST_ROWS = 1
    weir.open(uri).load(new, source=weir.Source("nightly", 1))


@pytest.mark.parametrize(
    "place",
    [
        pytest.param("publish.after_staging", marks=pytest.mark.long),
        pytest.param("publish.before_manifest", marks=pytest.mark.long),
        "publish.after_manifest",
        "merge.before_commit",
        pytest.param("merge.after_commit", marks=pytest.mark.long),
    ],
)
def test_a_load_that_was_killed_is_made_again_and_once(tmp_path: Path, place: str) -> None:
    table = weir.create(str(tmp_path / "table"), SCHEMA, primary_key="id", dedup=False)
    table.load(rows(range(3), "first"))
    new = rows(range(3, 9), "load")
    kill_at(place, load_nightly, table.uri, new)
    again = weir.open(table.uri).load(new, source=weir.Source("nightly", 1), lease_wait=60)
    assert bool(again.deduplicated) == (not place.startswith("publish.") or place == "publish.after_manifest")
    # Without a key every row that is written twice would be there twice.
    want = sorted(map(str, [*rows(range(3), "first"), *new]))
    assert shown(weir.open(table.uri)) == want == stored(table)


def test_on_an_object_store(s3_endpoint: S3Endpoint) -> None:
    table = weir.create(
        f"{s3_endpoint.new_uri()}/table",
        SCHEMA,
        primary_key=("part", "id"),
        shard_by=weir.bucket("id", 2),
        storage_options=s3_endpoint.options,
    )
    model: Model = {}
    table.load(put(model, ("part", "id"), rows(range(20), "a")))
    table.upsert(put(model, ("part", "id"), rows(range(10, 25), "b")))
    table.load(put(model, ("part", "id"), rows(range(15, 40), "c")))
    assert shown(table) == of(model) == stored(table, storage_options=s3_endpoint.options)
