"""What says which rows of generations are live leaves the cache when they have been merged."""

from __future__ import annotations

import gc
from pathlib import Path

import pyarrow as pa
import pytest

import weir

_SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])


@pytest.mark.parametrize("engine", [None, "partial_update"])
def test_live_masks_and_folded_versions_leave(tmp_path: Path, engine: str | None) -> None:
    with weir.Engine(maintenance="off") as made:
        table = made.create(str(tmp_path / "table"), _SCHEMA, primary_key="id", merge_engine=engine)
        held = []
        with table.writer() as writer:
            for turn in range(6):
                for n in range(3):
                    ids = list(range(10 * n, 10 * n + 20))
                    writer.upsert(pa.table({"id": ids, "n": [turn] * 20}, schema=_SCHEMA))
                    writer.flush()
                    assert table.scan().count() >= 20
                table.maintenance.merge()
                assert table.scan().count() == 40
                gc.collect()
                assert made.cache.nbytes
                kinds = [key[0] for key in made.cache.held()]
                held.append(kinds.count("overlay") + kinds.count("versions"))
        # Those of the present version, and of the one before it while a thread still has that.
        assert held[0]
        assert max(held) <= 2 * held[0]
