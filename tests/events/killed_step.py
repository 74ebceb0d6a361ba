"""One step of an event store, in a process of its own that is killed in the middle of it.

Run by ``test_kills.py`` with a failpoint armed in its environment.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import weir
import weir.events

NOW = timedelta(0)


def main(step: str, place: str, folder: str) -> None:
    """Do what a step is called."""
    store: Any = weir.events.open(place, fsync=False)
    if step == "refresh":
        for name in store.materializations():
            store.refresh(name)
    elif step == "export":
        store.export(folder, format="snp" if folder.endswith("snp") else "parquet")
    elif step == "restore":
        store.restore(folder)
    elif step == "forget":
        store.forget("c1")
    elif step == "retain":
        store.retain("a", timedelta(days=365))
    elif step == "maintain":
        store.maintain(horizon=NOW)
    else:
        raise SystemExit(f"there is no step {step!r}")


if __name__ == "__main__":
    main(*sys.argv[1:])
