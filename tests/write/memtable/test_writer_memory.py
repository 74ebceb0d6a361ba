"""How much memory a writer takes that is given far more rows than it may hold (in a process of its own)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="the peak of a process can be reset on Linux only"
)

BUDGET = 16 * 1024 * 1024
ALLOWANCE = 128 * 1024 * 1024
"""What a writer may take beside its rows, whatever the budget: the pieces of two generations that are being
written, the library's buffers for their columns and files, and what allocators keep for later. Measured:
some 90 MiB, the same after 50 MiB of rows as after 500."""

WRITER = """
import json, sys
from pathlib import Path
import numpy as np, pyarrow as pa, weir

uri, budget, times = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("value", pa.binary(1024))])
table = weir.create(uri, schema, primary_key="id", fsync=False, shard_by=weir.bucket("id", 2))
generator = np.random.default_rng(1)

def rows(count, start):
    values = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(1024), count, [None, pa.py_buffer(generator.bytes(count * 1024))]
    )
    return pa.table([pa.array(np.arange(start, start + count)), values], schema)

def memory(field):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024

options = dict(max_unflushed_bytes=budget, max_memtable_bytes=1 << 40, max_memtable_rows=1 << 40)
# What is loaded and allocated once is no part of what writing takes: the code of the library, its threads.
with table.writer(**options) as writer:
    writer.upsert(rows(2000, 0))
sizes = [1, 100, 1000, 4000]
Path("/proc/self/clear_refs").write_text("5")
before = memory("VmRSS")
written, at = 0, 0
with table.writer(**options) as writer:
    while written < times * budget:
        count = sizes[at % len(sizes)]
        writer.upsert(rows(count, 2000 + 4000 * at))
        written, at = written + count * 1024, at + 1
    counted = writer._shards.unflushed.peak
print(json.dumps({"written": written, "counted": counted, "grown": memory("VmHWM") - before,
                  "rows": table.scan().count(), "expected": 2000 + written // 1024}))
"""


@pytest.mark.parametrize("times", [14, pytest.param(40, marks=pytest.mark.long)])
def test_many_times_the_budget_stays_within_it(tmp_path: Path, times: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WRITER, str(tmp_path / "table"), str(BUDGET), str(times)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["written"] >= times * BUDGET
    assert found["rows"] == found["expected"]
    assert found["counted"] <= BUDGET
    # Without a bound it would be all that was written.
    assert found["written"] > 1.5 * (BUDGET + ALLOWANCE)
    assert found["grown"] <= BUDGET + ALLOWANCE, found
