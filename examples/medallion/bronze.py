"""Bronze: files of changes to orders, as a shop's database would hand them out.

``python bronze.py landing 20`` adds 20 files. Each line is a change of one order: a new one, another amount
or customer, or its removal.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

CATEGORIES = ("books", "games", "garden")
ORDERS, CUSTOMERS = 2_000, 100


def changes(number: int, rows: int = 500) -> Iterator[dict[str, object]]:
    """Yield the changes of one file: the same ones whenever it is asked for."""
    chance = random.Random(number)
    for _ in range(rows):
        order = chance.randrange(ORDERS)
        if chance.random() < 0.1:
            yield {"order": order, "gone": True}
        else:
            yield {
                "order": order,
                "customer": chance.randrange(CUSTOMERS),
                "category": chance.choice(CATEGORIES),
                "cents": chance.randrange(100, 20_000),
                "gone": False,
            }


def write_file(landing: Path, number: int) -> None:
    """Put a file where the stream looks for it, whole at once."""
    landing.mkdir(parents=True, exist_ok=True)
    hidden = landing / f".{number:06}.json"
    hidden.write_text("".join(f"{json.dumps(one)}\n" for one in changes(number)), encoding="utf-8")
    hidden.rename(landing / f"{number:06}.json")


def main(landing: str = "landing", files: str = "20") -> None:
    """Add files after those that are there."""
    there = len(list(Path(landing).glob("*.json")))
    for number in range(there, there + int(files)):
        write_file(Path(landing), number)


if __name__ == "__main__":
    main(*sys.argv[1:])
