"""The version hint: whatever cannot be read is no hint, and never an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.format import layout, version_hint
from weir.format.version_hint import VersionHint


@given(st.builds(VersionHint, st.integers(1, (1 << 64) - 1), st.binary(max_size=20)))
def test_a_hint_round_trips(hint: VersionHint) -> None:
    assert version_hint.decode(version_hint.encode(hint)) == hint


@given(st.binary(max_size=40))
def test_any_bytes_are_a_hint_or_none(data: bytes) -> None:
    found = version_hint.decode(data)
    assert found is None or found.version >= 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"5",
        b"[]",
        b"null",
        b"{}",
        b'{"version":"5"}',
        b'{"version":0}',
        b'{"version":true}',
        b'{"version":5',
        b"[" * 9999,
    ],
)
def test_what_is_not_a_hint_gives_none(data: bytes) -> None:
    assert version_hint.decode(data) is None


def test_the_hint_is_the_one_the_library_writes(library_table: Callable[..., Any]) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    table = library_table(schema, ["id"])
    table.put(pa.table({"id": [1]}, schema=table.dataset.schema))
    stored = (table.path / layout.version_hint_path(table.shard_id)).read_bytes()
    assert stored == version_hint.encode(VersionHint(max(table.manifests())))


@pytest.mark.parametrize("write_id", ['"xy"', "7", "null", '"\\u0666"', "[]"])
def test_a_stamp_that_is_none_is_passed_over(write_id: str) -> None:
    data = b'{"version":5,"weir:write_id":%s}' % write_id.encode()
    assert version_hint.decode(data) == VersionHint(5)


def test_the_library_passes_over_the_stamp(library_table: Callable[..., Any]) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    table = library_table(schema, ["id"])
    table.put(pa.table({"id": [1]}, schema=table.dataset.schema))
    path = table.path / layout.version_hint_path(table.shard_id)
    newest = max(table.manifests())
    path.write_bytes(version_hint.encode(VersionHint(newest, b"\x01" * 16)))
    table.put(pa.table({"id": [2]}, schema=table.dataset.schema))
    assert max(table.manifests()) > newest
    assert path.read_bytes() == version_hint.encode(VersionHint(max(table.manifests())))
