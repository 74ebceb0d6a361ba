"""Searches on an object store, which begin before it is known which rows were replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.storage.s3 import S3Endpoint, s3_endpoint

import weir
from weir.search.vector.later_mask import LaterMask

__all__ = ["s3_endpoint"]

ROWS = 200
SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("vector", pa.list_(pa.float32(), 2))]
)


def rows(ids: range, far: float) -> pa.Table:
    return pa.table({"id": [*ids], "vector": [[id + far, 0.0] for id in ids]}, schema=SCHEMA)


@pytest.mark.parametrize("replaced", [0, 1, 9, 40, 150])
@pytest.mark.parametrize("deleted", [0, 12])
def test_replaced_and_deleted_rows_are_not_found(
    s3_endpoint: S3Endpoint, monkeypatch: pytest.MonkeyPatch, replaced: int, deleted: int
) -> None:
    awaited: list[LaterMask] = []
    beside = LaterMask.beside

    def noted(mask: LaterMask, search: Callable[[], Any]) -> Any:
        awaited.append(mask)
        return beside(mask, search)

    monkeypatch.setattr(LaterMask, "beside", noted)
    uri, options = s3_endpoint.new_uri("t"), s3_endpoint.options
    table = weir.create(uri, SCHEMA, primary_key="id", storage_options=options)
    with table.writer() as writer:
        writer.upsert(rows(range(ROWS), 0))
    table.maintenance.merge()
    alive = {id: float(id) for id in range(ROWS)}
    with table.writer() as writer:
        if replaced:
            writer.upsert(rows(range(replaced), 1_000))
            alive.update({id: id + 1_000.0 for id in range(replaced)})
        if deleted:
            gone = range(replaced, replaced + deleted)
            writer.delete(pa.table({"id": [*gone]}))
            alive = {id: far for id, far in alive.items() if id not in gone}
        for k in (1, 5, 300):
            fresh = weir.open(uri, storage_options=options, engine=weir.Engine(maintenance="off"))
            for _ in range(2):
                found = fresh.search(np.zeros(2, np.float32), k, column="vector", columns=["id"]).to_table()
                nearest = sorted(alive, key=lambda id: (alive[id], id))[:k]
                assert found["id"].to_pylist() == nearest
    # What is in the log is known without a request; each time it was, a search has begun before.
    assert bool(awaited) == bool(0 < replaced + deleted < 100)
