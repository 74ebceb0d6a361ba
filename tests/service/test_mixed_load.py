"""A service under mixed load for a while: memory, threads and descriptors stay where they are.

``MIXED_LOAD_SECONDS=600`` in the environment makes the while ten minutes.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from pathlib import Path
from threading import Event
from typing import Any

import httpx2
import pytest

from tests.service.conftest import Served

_SECONDS = float(os.environ.get("MIXED_LOAD_SECONDS", "20"))
_CLIENTS = 8
_IDS = 2_000
_SCHEMA = {"text": {"type": "string", "full_text_search": True}}
_WORDS = [f"word{number}" for number in range(50)]


@dataclass(frozen=True, slots=True)
class Held:
    """What a process holds: MiB of memory, threads, and descriptors."""

    memory: float
    threads: float
    descriptors: float

    @classmethod
    def by(cls, pid: int) -> Held:
        """Return what a process holds now."""
        told = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
        )
        memory = int(told["VmRSS"].split()[0]) / 1024
        return cls(memory, int(told["Threads"]), len(os.listdir(f"/proc/{pid}/fd")))


def _row(chance: random.Random) -> dict[str, Any]:
    text = " ".join(chance.choices(_WORDS, k=12))
    vector = [chance.random() for _ in range(16)]
    return {"id": chance.randrange(_IDS), "vector": vector, "text": text, "n": chance.randrange(100)}


def _asked(chance: random.Random, name: str) -> tuple[str, str, dict[str, Any] | None]:
    """Return one request of the mix."""
    path, row = f"/v2/namespaces/{name}", _row(chance)
    query = f"{path}/query"
    nearest = {"rank_by": ["vector", "ANN", row["vector"]], "top_k": 10, "include_attributes": True}
    metric = {"distance_metric": "cosine_distance", "schema": _SCHEMA}
    rows = list({one["id"]: one for one in (_row(chance) for _ in range(20))}.values())
    requests: list[tuple[int, str, str, dict[str, Any] | None]] = [
        (20, "POST", path, {"upsert_rows": rows, **metric}),
        (10, "POST", path, {"upsert_rows": [row], "upsert_condition": ["n", "Lt", row["n"]], **metric}),
        (5, "POST", path, {"patch_rows": [{"id": row["id"], "n": row["n"]}]}),
        (5, "POST", path, {"deletes": [row["id"]]}),
        (2, "POST", path, {"delete_by_filter": ["n", "Eq", row["n"]]}),
        (20, "POST", query, nearest),
        (10, "POST", query, {**nearest, "filters": ["n", "Gte", 50]}),
        (10, "POST", query, {"rank_by": ["text", "BM25", row["text"][:20]], "top_k": 10}),
        (5, "POST", query, {"rank_by": ["n", "desc"], "top_k": 10}),
        (5, "POST", query, {"aggregate_by": {"count": ["Count"]}, "group_by": ["n"]}),
        (2, "GET", f"{path}/metadata", None),
        (2, "POST", query, {"rank_by": ["nothing", "asc"], "top_k": 0}),
    ]
    weights = [one[0] for one in requests]
    _, method, asked, body = chance.choices(requests, weights)[0]
    return method, asked, body


@pytest.mark.long
@pytest.mark.timeout(_SECONDS + 300)
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts what Linux tells of processes")
def test_memory_threads_and_descriptors_stay_flat(tmp_path: Path) -> None:
    served = Served(tmp_path)
    url, is_over = served.process.url, Event()
    answers: Counter[int] = Counter()
    wrong: list[str] = []

    def load(seed: int) -> None:
        chance = random.Random(seed)
        headers = {"authorization": f"Bearer {served.key}"}
        with httpx2.Client(base_url=url, headers=headers, timeout=120, trust_env=False) as http:
            http.post(
                f"/v2/namespaces/load-{seed % 4}",
                json={"upsert_rows": [_row(chance)], "schema": _SCHEMA, "distance_metric": "cosine_distance"},
            )
            while not is_over.is_set():
                method, path, body = _asked(chance, f"load-{seed % 4}")
                headers = {"idempotency-key": str(chance.random())} if chance.random() < 0.2 else {}
                answer = http.request(method, path, json=body, headers=headers)
                answers[answer.status_code] += 1
                if answer.status_code not in (200, 429) and not (body and body.get("top_k") == 0):
                    wrong.append(f"{method} {path} {body!s:.200}: {answer.status_code} {answer.text:.300}")

    held: list[Held] = []
    with ThreadPoolExecutor(_CLIENTS) as threads:
        loading = [threads.submit(load, seed) for seed in range(_CLIENTS)]
        until = time.monotonic() + _SECONDS
        while time.monotonic() < until and not any(one.done() for one in loading):
            time.sleep(min(1.0, _SECONDS / 60))
            held.append(Held.by(served.process.process.pid))
        is_over.set()
        for one in loading:
            one.result()
    code, error = served.process.stop()
    assert code == 0, error
    assert not wrong, wrong[:3]
    third = len(held) // 3
    middle, last = (
        Held(*map(statistics.median, zip(*map(astuple, part), strict=True)))
        for part in (held[third : 2 * third], held[2 * third :])
    )
    print(f"{sum(answers.values()):,} requests, {dict(answers)}, {held[0]}, then {middle}, then {last}")
    assert last.memory <= 1.3 * middle.memory + 64
    # Pools have more threads while the machine is slow: what counts is that there are not ever more.
    assert last.threads <= max(one.threads for one in held[: 2 * third]) + 8
    assert last.descriptors <= middle.descriptors + 32
