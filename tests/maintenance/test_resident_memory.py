"""Rounds of updates, reads, merges and collection take no more memory the longer they go on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        sys.platform != "linux", reason="what a process has resident is read where Linux tells it"
    ),
]

ROUNDS = 45
SETTLED_AFTER = 15
ALLOWANCE = 60
"""MiB more in the last rounds: what is of former versions would take 73 in the cache."""

SOAK = """
import json, random, sys
from datetime import timedelta
from pathlib import Path
import pyarrow as pa, weir

schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("value", pa.string())])
uri, rounds, live = sys.argv[1], int(sys.argv[2]), 200_000
chosen = random.Random(1)

def rows(ids):
    values = [f"{one}-{chosen.random()}" + "x" * 230 for one in ids]
    return pa.table({"id": ids, "value": values}, schema=schema)

def resident():
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmRSS"))

found = []
with weir.Engine(maintenance="off") as engine:
    table = engine.create(uri, schema, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert(rows(list(range(live))))
        for number in range(rounds):
            for _ in range(5):
                writer.upsert(rows(chosen.sample(range(live), 4_000)))
                table.get(chosen.sample(range(live), 100))
            writer.flush()
            table.scan(["id"], filter="id % 1000 = 7").count() if number % 2 else table.scan().to_table()
            table.maintenance.run(horizon=timedelta(0))
            found.append((resident(), engine.cache.nbytes >> 20))
print(json.dumps(found))
"""


def test_memory_does_not_grow_with_merges_and_collections(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SOAK, str(tmp_path / "t"), str(ROUNDS)],
        capture_output=True,
        text=True,
        check=True,
    )
    resident, cached = zip(*json.loads(ran.stdout), strict=True)
    settled = sorted(resident[SETTLED_AFTER : SETTLED_AFTER + 10])[5]
    last = sorted(resident[-10:])[5]
    assert last - settled < ALLOWANCE, resident
    assert max(cached[-10:]) <= max(cached[SETTLED_AFTER : SETTLED_AFTER + 10]) + 8, cached
