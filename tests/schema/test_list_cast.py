"""Casts of lists that Arrow gets wrong: they would end the process, or lose a number."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from weir.schema.list_cast import cast, infinities

FLOAT = pa.float32()
LISTS = pa.list_(FLOAT)
VECTOR = pa.list_(FLOAT, 2)


def received(rows: list[object], kind: pa.DataType) -> pa.ChunkedArray:
    """Return rows as they come from another process, where what is empty has no memory at all."""
    sink = pa.BufferOutputStream()
    table = pa.table({"rows": pa.array(rows, kind)})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all().column("rows")


@pytest.mark.parametrize(
    ("rows", "given", "wanted"),
    [
        ([None], LISTS, VECTOR),
        ([None, None], pa.list_(pa.float64()), VECTOR),
        ([None, [1, 2], None], LISTS, VECTOR),
        ([], LISTS, VECTOR),
        ([None], pa.large_list(FLOAT), VECTOR),
        ([None], pa.list_(pa.decimal128(30, 2)), pa.list_(pa.decimal128(31, 2), 2)),
        ([None], pa.list_(pa.string()), pa.list_(pa.large_string(), 2)),
        ([[None], [], None], pa.list_(LISTS), pa.list_(VECTOR)),
        ([[None, None]], pa.list_(LISTS), pa.list_(VECTOR, 2)),
        ([{"v": None, "n": 1}], pa.struct({"v": LISTS, "n": FLOAT}), pa.struct({"v": VECTOR, "n": FLOAT})),
        ([[("a", None)], None], pa.map_(pa.string(), LISTS), pa.map_(pa.string(), VECTOR)),
        ([None, [1, 2]], VECTOR, pa.list_(pa.float64(), 2)),
    ],
    ids=str,
)
def test_lists_without_values_get_their_size(
    rows: list[object], given: pa.DataType, wanted: pa.DataType
) -> None:
    found = cast(received(rows, given), wanted)
    found.validate(full=True)
    assert found.type == wanted
    assert found.to_pylist() == pa.array(rows, wanted).to_pylist()


@pytest.mark.parametrize("rows", [[[1]], [[]], [None, [1, 2, 3]], [[], None]])
def test_lists_of_another_size_are_refused(rows: list[object]) -> None:
    with pytest.raises(pa.ArrowInvalid, match="expected size"):
        cast(received(rows, LISTS), VECTOR)


def test_infinite_numbers_are_counted_at_any_depth() -> None:
    kind = pa.struct({"v": LISTS, "m": pa.map_(pa.string(), pa.float64())})
    rows = [{"v": [1.0, math.inf, None], "m": [("a", -math.inf)]}, {"v": None, "m": None}, None]
    assert infinities(pa.array(rows, kind)) == 2
    assert infinities(pa.array([1, 2])) == 0
