"""Which modules a call passes, in order, for ``docs/architecture.md``: ``python -m docs.modules_passed``.

Each call is made on a small table on a local disk that has all there is to read: rows in the base table, in
a generation and in the log. It is made several times before, so that what is kept from one call to the next
is there; and in a process of its own, whose threads are all watched. What goes on in the background beside a
call, by the clock, may add to what is seen.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import FrameType

import numpy as np
import pyarrow as pa

import weir

__all__ = ["PAGE", "lists_in", "modules_passed", "with_lists"]

SOURCE = Path(weir.__file__).resolve().parent
PAGE = Path(__file__).resolve().parent / "architecture.md"
_MARKED = re.compile(
    r"(?P<start><!-- modules passed: (?P<call>\w+) -->\n)(?P<list>.*?)(?P<end><!-- /modules passed -->)",
    re.DOTALL,
)
_WARM = 3


class _Watch:
    """Notes every function of Weir that is entered, on any thread."""

    def __init__(self) -> None:
        self.entered: list[str] = []
        self._is_on = False
        threading.setprofile(self._see)
        sys.setprofile(self._see)

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        if self._is_on and event == "call":
            with suppress(ValueError):
                self.entered.append(str(Path(frame.f_code.co_filename).relative_to(SOURCE)))

    def during(self, call: Callable[[], object]) -> list[str]:
        self.entered.clear()
        self._is_on = True
        try:
            call()
        finally:
            self._is_on = False
        return list(self.entered)


def _rows(first: int, count: int) -> pa.Table:
    numbers = np.arange(first, first + count)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.repeat(numbers, 4), pa.float32()), 4)
    return pa.table({"id": numbers, "name": [f"row {n}" for n in numbers], "vector": vectors})


def _watch_all(uri: str) -> dict[str, list[str]]:
    watch = _Watch()
    # One thread for tasks, so that they begin in their order.
    with weir.Engine(threads=1) as engine:
        table = engine.create(uri, _rows(0, 1).schema, primary_key="id")
        with table.writer() as writer:

            def generation() -> None:
                writer.upsert(_rows(100, 50))
                writer.flush()

            writer.upsert(_rows(0, 300))
            generation()
            table.maintenance.merge()
            generation()
            writer.upsert(_rows(120, 10))
            found: dict[str, list[str]] = {}
            calls: dict[str, Callable[[], object]] = {
                "scan": lambda: table.scan(filter="id > 110").to_table(),
                "search": lambda: table.search([1.0, 1.0, 1.0, 1.0], k=3).to_table(),
                "write": lambda: writer.upsert(_rows(5, 3)),
            }
            for name, call in calls.items():
                for _ in range(_WARM):
                    call()
                found[name] = watch.during(call)
            for _ in range(_WARM):
                generation()
                table.maintenance.merge()
            generation()
            found["merge"] = watch.during(table.maintenance.merge)
    return found


@cache
def _entered() -> dict[str, list[str]]:
    with tempfile.TemporaryDirectory() as directory:
        program = [sys.executable, "-m", "docs.modules_passed", f"{directory}/table"]
        # A merge that begins when it is due would come in between.
        environment = {**os.environ, "WEIR_MAINTENANCE": "off"}
        printed = subprocess.run(
            program, check=True, capture_output=True, text=True, cwd=PAGE.parents[1], env=environment
        ).stdout
    found: dict[str, list[str]] = json.loads(printed)
    return found


def modules_passed(call: str) -> list[str]:
    """Return the modules that a call passes, each where it comes first, by their paths below ``src/weir``.

    Of storage only what every store is reached through is among them: what is below differs from store to
    store.
    """
    passed = dict.fromkeys(_entered()[call])
    return [path for path in passed if not path.startswith("storage/") or path == "storage/metered.py"]


def lists_in(page: str) -> dict[str, list[str]]:
    """Return the modules that a page lists for each call."""
    return {
        found["call"]: re.findall(r"^\d+\. \[`([\w/.]+)`\]", found["list"], re.MULTILINE)
        for found in _MARKED.finditer(page)
    }


def with_lists(page: str) -> str:
    """Return a page with its lists as the code has them now."""
    return _MARKED.sub(lambda found: f"{found['start']}\n{_list_of(found['call'])}\n\n{found['end']}", page)


def _list_of(call: str) -> str:
    lines = []
    for number, path in enumerate(modules_passed(call), 1):
        documented = ast.get_docstring(ast.parse((SOURCE / path).read_text(encoding="utf-8"))) or ""
        sentence = " ".join(documented.split("\n\n")[0].split())
        lines.append(f"{number}. [`{path}`](../src/weir/{path}): {sentence}")
    return "\n".join(lines)


def main() -> None:
    """Write the lists of the page anew; or print what is seen, in a process that is started for it."""
    if len(sys.argv) > 1:
        print(json.dumps(_watch_all(sys.argv[1])))
    else:
        PAGE.write_text(with_lists(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
