"""The writer process of the event demo: appends each batch once, and reports what is durable."""

from __future__ import annotations

import sys

import weir
import weir.events
from weir.demo.typed_events import loaded, typed_batches

__all__ = ["write"]


def write(path: str, first: int, flights: int | None) -> None:
    """Append the batches from one on, and print the number of each once it is durable."""
    with weir.events.open(path) as store, store.writer(takeover=True) as writer:
        for number, batch in enumerate(typed_batches(loaded(flights))):
            if number < first:
                continue
            # Parts of it that a killed process had written are skipped.
            writer.ingest_all(batch, source=weir.Source("flights", number))
            print(number, flush=True)


if __name__ == "__main__":
    write(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) or None)
