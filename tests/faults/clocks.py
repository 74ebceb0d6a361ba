"""A process whose wall clock can be set, and that does as it is told, line by line.

Run as ``python -m tests.faults.clocks URI``. Each line on standard input is a call of :class:`Told`, as
JSON: the name of a method, and its arguments. Each line on standard output is what came of it.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from datetime import timedelta
from typing import Any

import weir
from weir.engine.context import default_context
from weir.errors import WeirError
from weir.write.table_writer import TableWriter


class Told:
    """What the process can do."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._table = weir.open(uri, fsync=False)
        self._writer: TableWriter | None = None

    def now(self) -> float:
        return time.time()

    def write(self, key: int, name: str, takeover: bool = False) -> int:
        if self._writer is None:
            self._writer = self._table.writer(takeover=takeover, lease_ttl=3600.0)
        try:
            (position,) = self._writer.upsert([{"id": key, "name": name}]).positions.values()
        except WeirError:
            self._writer.close()
            self._writer = None
            raise
        return position

    def flush(self) -> None:
        assert self._writer is not None
        self._writer.flush()

    def merge(self) -> int:
        return self._table.maintenance.merge().generations

    def snapshot(self, hours: float) -> str:
        return str(self._table.snapshot(retain=timedelta(hours=hours)))

    def scan(self, at: str | None = None) -> dict[str, str]:
        default_context().cache.clear()
        found = weir.open(self._uri, fsync=False).scan(at=at).to_table()
        return {str(row["id"]): row["name"] for row in found.to_pylist()}

    def collect(self, minutes: float) -> int:
        horizon = timedelta(minutes=minutes)
        return self._table.maintenance.collect_garbage(
            horizon=horizon, version_retention=horizon
        ).deleted_objects


def main(uri: str) -> None:
    logging.getLogger("weir").setLevel(logging.CRITICAL)
    told = Told(uri)
    for line in sys.stdin:
        name, arguments = json.loads(line)
        answer: dict[str, Any]
        try:
            answer = {"result": getattr(told, name)(*arguments)}
        except WeirError as error:
            answer = {"error": type(error).__name__, "text": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
