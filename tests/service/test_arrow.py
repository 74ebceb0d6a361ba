"""Documents that are written as a stream of Arrow."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

from tests.service.conftest import Served

_MEDIA = {"content-type": "application/vnd.apache.arrow.stream"}


def stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def vectors(rows: Any, type: str = "float32") -> pa.Array:
    return pa.array(rows, pa.list_(pa.type_for_alias(type), 2))


def test_documents_are_what_they_are_in_json(served: Served, name: str) -> None:
    table = pa.table(
        {
            "id": pa.array([1, 2, 3], pa.uint64()),
            "vector": vectors([[1, 0], [0, 1], [0.5, 0.5]]),
            "text": pa.array(["a", None, "c"]).dictionary_encode(),
            "tags": [["x", "y"], [], None],
            "at": pa.array([0, 1, None], pa.timestamp("us", "UTC")),
            "u": pa.array([UUID(int=5).bytes, None, UUID(int=6).bytes], pa.binary(16)),
        }
    )
    path = f"/v2/namespaces/{name}"
    with served.http() as http:
        http.post(
            path, json={"schema": {"u": "uuid", "at": "datetime", "id": "uint"}, "create_namespace": True}
        )
        answer = http.post(f"{path}?distance_metric=euclidean_squared", content=stream(table), headers=_MEDIA)
        assert answer.status_code == 200, answer.text
        assert answer.json()["rows_upserted"] == 3
        asked = {"rank_by": ["id", "asc"], "top_k": 9, "include_attributes": True}
        rows = http.post(f"{path}/query", json=asked).json()["rows"]
        other = http.post(f"{path}-2", json={"upsert_rows": rows, "schema": {"u": "uuid", "at": "datetime"}})
        assert other.status_code == 200, other.text
        assert http.post(f"{path}-2/query", json=asked).json()["rows"] == rows
    assert [row["vector"] for row in rows] == [[1, 0], [0, 1], [0.5, 0.5]]
    assert [row["text"] for row in rows] == ["a", None, "c"]
    assert rows[0]["u"] == str(UUID(int=5))
    assert rows[1]["at"] == "1970-01-01T00:00:00.000001Z"


def test_it_is_done_once_under_a_key(served: Served, name: str) -> None:
    body = stream(pa.table({"id": ["a", "b"], "vector": vectors([[1, 0], [0, 1]], "float16")}))
    path, headers = f"/v2/namespaces/{name}", {**_MEDIA, "idempotency-key": name}
    with served.http() as http:
        first = http.post(path, content=body, headers=headers)
        assert first.json()["rows_upserted"] == 2, first.text
        http.post(path, json={"deletes": ["a"]})
        assert http.post(path, content=body, headers=headers).json()["rows_upserted"] == 2
        found = http.post(f"{path}/query", json={"rank_by": ["id", "asc"]}).json()["rows"]
    assert [row["id"] for row in found] == ["b"]


def test_a_key_stands_for_the_parameters_too(served: Served, name: str) -> None:
    body = stream(pa.table({"id": [1], "vector": vectors([[1, 0]])}))
    path, headers = f"/v2/namespaces/{name}", {**_MEDIA, "idempotency-key": name}
    with served.http() as http:
        for _ in range(2):
            done = http.post(f"{path}?distance_metric=cosine_distance", content=body, headers=headers)
            assert done.json()["rows_upserted"] == 1, done.text
        other = http.post(f"{path}?distance_metric=euclidean_squared", content=body, headers=headers)
        assert other.status_code == 422


_GOOD = pa.table({"id": [1, 2], "vector": vectors([[1, 0], [0, 1]])})


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "not an Arrow stream"),
        (stream(_GOOD)[:200], "not an Arrow stream"),
        (stream(_GOOD.append_column("name", [[1, 2]])).replace(b"name", b"nam\xff"), "not an Arrow stream"),
        (stream(_GOOD.drop_columns(["id"])), "'id'"),
        (stream(pa.table([[1], [2], [3]], names=["id", "a", "a"])), "twice"),
        (stream(_GOOD.set_column(0, "id", pa.array([1, 1]))), "occurs twice"),
        (stream(_GOOD.set_column(0, "id", pa.array([1, None]))), "row 1"),
        (stream(_GOOD.set_column(1, "vector", vectors([[1, 0], [np.nan, 1]]))), "row 1.*finite"),
        (stream(_GOOD.set_column(1, "vector", vectors([[1, 0], [None, 1]]))), "row 1.*null"),
        (stream(_GOOD.set_column(1, "vector", vectors([[1, 0], None]))), "row 1"),
        (stream(pa.table({"id": [1], "vector": pa.array([[1.0]], pa.list_(pa.float32(), 1))})), "1 dim"),
        (stream(_GOOD.append_column("n", pa.array([b"x", b"y"]))), "attribute 'n'"),
        (stream(_GOOD.append_column("$n", pa.array([1, 2]))), r"\$n"),
    ],
)
def test_what_cannot_be_taken_is_refused_and_nothing_is_written(
    served: Served, body: bytes, why: str, name: str
) -> None:
    path = f"/v2/namespaces/{name}"
    with served.http() as http:
        assert http.post(path, content=stream(_GOOD.slice(0, 1)), headers=_MEDIA).status_code == 200
        answer = http.post(path, content=body, headers=_MEDIA)
        found = http.post(f"{path}/query", json={"rank_by": ["id", "asc"]}).json()["rows"]
    assert answer.status_code == 400, answer.text
    assert re.search(why, answer.json()["error"])
    assert [row["id"] for row in found] == [1]
