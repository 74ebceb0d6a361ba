"""A service with many namespaces, few of them active: what it holds, and what it costs while nobody asks."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.context import Context, Result
from benchmarks.served import Clients, Served, request_of

__all__ = ["run"]

_DIMENSIONS = 96
_DOCUMENTS = 20
_SECONDS_IDLE = 30.0
_MAKE = """
import sys, weir, weir.namespaces
from weir.namespaces import Declaration, Write
from weir.service.turbopuffer.schema import parse_schema
root, begin, end = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
schema = parse_schema({"id": "uint", "text": "string", "vector": "[96]f32"})
with weir.namespaces.open(root, fsync=False, engine=weir.Engine(maintenance="off")) as namespaces:
    for number in range(begin, end):
        namespace = namespaces.namespace(f"tenant-{number}")
        namespace.write(Write(create=True, declarations=schema))
        namespace.rest(0.0)
"""


@dataclass(frozen=True, slots=True)
class Held:
    """What a process holds: MiB of memory, now and at most, threads, and seconds of the processor so far."""

    memory: float
    peak: float
    threads: int
    seconds: float

    @classmethod
    def by(cls, process_id: int) -> Held:
        """Return what a process holds now."""
        lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
        told = dict(line.split(":", 1) for line in lines if ":" in line)
        times = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
        ticks = int(times[11]) + int(times[12])
        return cls(
            int(told["VmRSS"].split()[0]) / 1024,
            int(told["VmHWM"].split()[0]) / 1024,
            int(told["Threads"]),
            ticks / os.sysconf("SC_CLK_TCK"),
        )


def run(context: Context) -> Result:
    """Measure what a service holds, and what it costs while nobody asks."""
    count, active = (200, 20) if context.scale.quick else (10_000, 500)
    root = context.directory / "many"
    context.say(f"namespaces: {count:,} are made")
    _made(root, count)
    with Served(root) as served, served.clients(4) as clients:
        context.say(f"namespaces: {active:,} are written and searched")
        _used(clients, count, active)
        busy = Held.by(served.process_id)
        context.say("namespaces: upkeep merges what was written")
        _wait(clients, "weir_namespaces_dirty")
        owned = _gauge(clients, "weir_namespaces_owned")
        merged, merged_share = _idle(served, context)
        left = _gauge(clients, "weir_namespaces_owned")
        context.say("namespaces: those that nobody uses are let go of")
        _wait(clients, "weir_namespaces_owned")
        rested, rested_share = _idle(served, context)
    return Result(
        "namespaces",
        f"A service with {count:,} namespaces, {active:,} of them active",
        (
            f"active: {_DOCUMENTS} documents of {_DIMENSIONS} dimensions each are written, and searched",
            _told("while they are used", busy),
            f"{_told('the minute after all is merged', merged)}; {merged_share:.1%} of a processor, in which "
            f"{owned - left:.0f} of {owned:.0f} leases are let go of and the others renewed",
            f"{_told('a minute after all are let go of', rested)}; {rested_share:.1%} of a processor",
            "to be: under 200 threads and 1,536 MiB, and idle under 2%",
        ),
        [],
    )


def _told(when: str, held: Held) -> str:
    return f"{when}: {held.threads} threads, {held.memory:,.0f} MiB resident, at most {held.peak:,.0f}"


def _made(root: Path, count: int) -> None:
    half = count // 2
    makers = [
        subprocess.Popen([sys.executable, "-c", _MAKE, str(root), str(begin), str(end)])
        for begin, end in ((0, half), (half, count))
    ]
    for one in makers:
        if one.wait():
            raise RuntimeError("the namespaces were not made")


def _used(clients: Clients, count: int, active: int) -> None:
    generator = np.random.default_rng(5)
    names = [f"/v2/namespaces/tenant-{number}" for number in range(0, count, count // active)]
    rows = [
        {"id": id, "text": f"text {id}", "vector": generator.random(_DIMENSIONS).tolist()}
        for id in range(_DOCUMENTS)
    ]
    query = {"rank_by": ["vector", "ANN", rows[0]["vector"]], "top_k": 5}
    clients.ask([request_of(name, {"upsert_rows": rows}) for name in names])
    clients.ask([request_of(f"{name}/query", query) for name in names])


def _wait(clients: Clients, gauge: str) -> None:
    until = time.monotonic() + 180
    while value := _gauge(clients, gauge):
        if time.monotonic() > until:
            raise RuntimeError(f"{gauge} {value}, for three minutes")
        time.sleep(1.0)


def _gauge(clients: Clients, name: str) -> float:
    told = clients.ask([b"GET /metrics HTTP/1.1\r\nhost: weir\r\n\r\n"]).decode()
    [line] = [line for line in told.splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])


def _idle(served: Served, context: Context) -> tuple[Held, float]:
    seconds = _SECONDS_IDLE / 10 if context.scale.quick else _SECONDS_IDLE
    before = Held.by(served.process_id)
    time.sleep(seconds)
    after = Held.by(served.process_id)
    return after, (after.seconds - before.seconds) / seconds
