"""Rows in, whatever they are: for a new table, and for one that is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import weir
from weir.errors import InputError, SchemaError

DICTS: list[dict[str, Any]] = [{"id": 1, "name": "a", "size": 2.5}, {"id": 2, "name": None, "size": None}]


@dataclass
class Row:
    id: int
    name: str | None
    size: float | None


class Model:
    """What a pydantic model shows of itself."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def model_dump(self) -> dict[str, Any]:
        return self._values


class OneArray:
    """Something that exports a single Arrow array."""

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return pa.RecordBatch.from_pylist(DICTS).__arrow_c_array__(requested_schema)


INPUTS: dict[str, Callable[[], Any]] = {
    "dicts": lambda: DICTS,
    "dataclasses": lambda: [Row(**row) for row in DICTS],
    "models": lambda: [Model(row) for row in DICTS],
    "table": lambda: pa.Table.from_pylist(DICTS),
    "reader": lambda: pa.Table.from_pylist(DICTS).to_reader(max_chunksize=1),
    "array": OneArray,
    "columns": lambda: {"id": [1, 2], "name": ["a", None], "size": [2.5, None]},
    "pandas": lambda: pd.DataFrame(DICTS).convert_dtypes(),
    "pandas objects": lambda: pd.DataFrame(DICTS).astype({"id": object}),
    "polars": lambda: pl.DataFrame(DICTS),
    "lazy": lambda: pl.LazyFrame(DICTS),
    "categories": lambda: pl.DataFrame(DICTS).with_columns(pl.col("name").cast(pl.Categorical)),
    "enum": lambda: pl.DataFrame(DICTS).with_columns(pl.col("name").cast(pl.Enum(["a", "b"]))),
    "generator of dicts": lambda: (row for row in DICTS),
    "generator of batches": lambda: (
        pa.RecordBatch.from_pylist([row], pa.Table.from_pylist(DICTS).schema) for row in DICTS
    ),
}


@pytest.mark.parametrize("kind", list(INPUTS))
def test_a_table_is_made_of_rows_and_takes_them_again(kind: str, tmp_path: Path) -> None:
    made = weir.create(tmp_path / "t", INPUTS[kind](), primary_key="id", fsync=False)
    assert made.primary_key == ("id",)
    assert [str(field.type).removeprefix("large_") for field in made.schema] == ["int64", "string", "double"]
    rows = sorted(made.scan().to_pylist(), key=lambda row: row["id"])
    assert rows == DICTS
    with made.writer() as writer:
        writer.delete([1, 2])
        assert writer.upsert(INPUTS[kind]()).rows == 2
    assert sorted(made.scan().to_pylist(), key=lambda row: row["id"]) == DICTS


def test_what_tells_no_schema_makes_no_table(tmp_path: Path) -> None:
    for rows, error, message in (
        ([], InputError, "no rows"),
        (iter([]), InputError, "empty iterator"),
        (42, InputError, "int"),
        ([{"id": 1, "x": None}], SchemaError, "'x' has no value that tells its type"),
        ([{"id": 1, "x": 1}, {"id": 2, "x": "one"}], SchemaError, "does not tell a schema"),
        ([{"id": 1}, {"id": None}], weir.errors.KeyValueError, "id"),
    ):
        with pytest.raises(error, match=message):
            weir.create(tmp_path / "t", rows, primary_key="id", fsync=False)
        with pytest.raises(weir.errors.TableNotFoundError):
            weir.open(tmp_path / "t")


def test_a_generator_is_written_piece_by_piece(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", pa.schema([("id", pa.int64())]), primary_key="id", fsync=False)
    seen: list[int] = []

    def rows() -> Iterator[dict[str, int]]:
        for number in range(25_000):
            if number == 10_001:
                seen.append(table.scan().count())
            yield {"id": number}

    with table.writer() as writer:
        assert writer.upsert(rows()).rows == 25_000
    assert seen == [10_000]
    assert table.scan().count() == 25_000


EAST = timezone(timedelta(hours=2))


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_moments_with_and_without_a_time_zone_are_never_mixed(zone: str | None, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", zone))])
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    naive, aware = datetime(2026, 1, 1, 12), datetime(2026, 1, 1, 12, tzinfo=EAST)
    with table.writer() as writer:
        for values in ([naive, aware], [aware, None, naive], [aware if zone is None else naive]):
            with pytest.raises(SchemaError, match="at"):
                writer.upsert([{"id": n, "at": value} for n, value in enumerate(values)])
        right = naive if zone is None else aware
        writer.upsert([{"id": 0, "at": right}, {"id": 1, "at": None}])
    (found,) = table.get([0])["at"].to_pylist()
    assert found == (naive if zone is None else aware.astimezone(UTC))
