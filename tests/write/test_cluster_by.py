"""Generations and what is merged of them are laid out by what the writer says, and answer as ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import weir
from weir.errors import OptionError

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("kind", pa.string()), pa.field("n", pa.int64())]
)


def test_rows_of_one_kind_lie_together(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    with table.writer(cluster_by=("kind",)) as writer:
        writer.upsert([{"id": n, "kind": "cab"[n % 3], "n": n} for n in range(30)])
        writer.upsert([{"id": n, "kind": "b", "n": n} for n in (0, 3)])
        writer.delete([4])
        writer.flush()
        table.maintenance.merge()
        merged = lance.dataset(str(tmp_path / "t")).to_table().column("kind").to_pylist()
        assert merged == ["a"] * 9 + ["b"] * 12 + ["c"] * 8
        writer.upsert([{"id": n, "kind": "a", "n": -1} for n in (5, 29)])
    found = {row["id"]: row["kind"] for row in table.scan().to_table().to_pylist()}
    wanted = {n: "cab"[n % 3] for n in range(30) if n != 4} | {0: "b", 3: "b", 5: "a", 29: "a"}
    assert found == wanted
    assert table.get([0, 4, 5, 7]).to_pylist()[0]["kind"] == "b"


@pytest.mark.parametrize(
    "engine", ["first_row", "partial_update", weir.MergeEngine.aggregation(n="sum"), "sequence"]
)
def test_a_row_that_is_written_after_its_delete_stays(tmp_path: Path, engine: weir.MergeEngine | str) -> None:
    """A merge engine keeps both in a generation, and the delete has no value to lie by."""
    kind: dict[str, Any] = {"sequence_by": "n"} if engine == "sequence" else {"merge_engine": engine}
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False, **kind)
    with table.writer(cluster_by=("kind",)) as writer:
        writer.upsert([{"id": n, "kind": "cab"[n % 3], "n": 1} for n in range(9)])
        writer.delete(list(range(6)))
        writer.upsert([{"id": n, "kind": "bca"[n % 3], "n": 1} for n in range(3)])
    wanted = {n: "bca"[n % 3] for n in range(3)} | {n: "cab"[n % 3] for n in range(6, 9)}
    for _ in range(2):
        found = table.scan().to_table().to_pylist()
        assert {row["id"]: row["kind"] for row in found} == wanted
        assert table.get(list(range(9))).num_rows == len(wanted)
        table.maintenance.merge()


def test_a_column_that_goes_is_passed_over(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    with table.writer(cluster_by=("kind", "n")) as writer:
        writer.upsert([{"id": n, "kind": "ab"[n % 2], "n": -n} for n in range(4)])
        table.alter(drop=["kind"])
        writer.flush()
        writer.upsert([{"id": n, "n": -n} for n in range(4, 8)])
        table.alter(add=[pa.field("kind", pa.list_(pa.int64()))])
        writer.upsert([{"id": n, "n": -n, "kind": [1]} for n in (6, 7)])
    table.maintenance.merge()
    assert table.scan().count() == 8


@pytest.mark.parametrize("columns", [("missing",), ["kind"], "kind", (1,)])
def test_what_is_no_tuple_of_columns_is_refused(tmp_path: Path, columns: object) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    with pytest.raises(OptionError, match="cluster_by"):
        table.writer(cluster_by=columns)
