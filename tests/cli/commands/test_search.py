from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from tests.cli.conftest import Run

import weir


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """Return a table with texts and vectors, and a full-text index."""
    schema = pa.schema([("id", pa.int64()), ("remarks", pa.string()), ("place", pa.list_(pa.float32(), 2))])
    table = weir.create(tmp_path / "reports", schema, primary_key="id", fsync=False)
    lance.dataset(table.uri).create_scalar_index("remarks", "INVERTED", with_position=True)
    with table.writer() as writer:
        writer.upsert(
            [
                {"id": 1, "remarks": "late departure", "place": [0.0, 1.0]},
                {"id": 2, "remarks": "snow, late", "place": [3.0, 4.0]},
                {"id": 3, "remarks": "snow", "place": [5.0, 5.0]},
            ]
        )
    return tmp_path / "reports"


def test_search_finds_by_vector_by_text_and_by_both(reports: Path, weir_program: Run) -> None:
    def found(*options: str) -> list[dict[str, Any]]:
        answer = weir_program("search", reports, *options, "--columns", "id", "--json")
        assert (answer.code, answer.err) == (0, "")
        return [json.loads(line) for line in answer.out.splitlines()]

    assert found("--vector", "[0, 0]", "--k", "2") == [{"id": 1, "_distance": 1}, {"id": 2, "_distance": 25}]
    assert [row["_query_index"] for row in found("--vector", "[[0, 0], [5, 5]]", "--k", "1")] == [0, 1]
    assert [row["id"] for row in found("--vector", "[1, 1]", "--filter", "id > 1")] == [2, 3]
    assert {row["id"] for row in found("--text", "late")} == {1, 2}
    assert [row["id"] for row in found("--text", "late departure", "--phrase")] == [1]
    both = found("--vector", "[5, 5]", "--text", "snow", "--fusion", "weighted")
    assert both[0]["id"] == 3
    assert both[0].keys() == {"id", "_distance", "_score", "_relevance"}


def test_search_explains_and_refuses(reports: Path, weir_program: Run) -> None:
    text = weir_program("search", reports, "--vector", "[0, 0]", "--explain")
    assert "no vector index" in text.out
    for options, said in (
        ((), "--vector"),
        (("--vector", "[1"), "not JSON"),
        (("--vector", "3"), "JSON array"),
        (("--vector", "[1]"), "dimension 2"),
        (("--vector", "[NaN, 1]"), "no distance"),
        (("--text", "the"), "no word"),
        (("--phrase", "--vector", "[1, 2]"), "--text"),
        (("--text", "snow", "--k", "0"), "k must be"),
    ):
        answer = weir_program("search", reports, *options)
        assert answer.code == 2
        assert said in answer.err
        assert answer.out == ""
