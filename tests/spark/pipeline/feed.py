"""What the tests of running pipelines share: events in files, and the rows that they leave."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import weir

__all__ = ["TRANSFORM", "Feed", "rows_of", "rows_of_table"]

TRANSFORM = """
SELECT id, amount * 2 AS doubled, CASE WHEN amount IS NULL THEN 'delete' ELSE 'upsert' END AS _op
FROM source
WHERE id % 10 <> 7
"""
"""Doubles amounts, deletes where there is none, and leaves some rows away."""


@dataclass
class Feed:
    """Files of events, and the plain model of what they leave: a dict.

    Parameters
    ----------
    directory : Path
        Where files land.
    rows : dict of int to int
        The table that all events so far leave behind the transform.
    """

    directory: Path
    rows: dict[int, int] = field(default_factory=dict)
    files: int = 0
    _chance: Random = field(default_factory=lambda: Random(5))

    def land(self, files: int, events: int = 200, keys: int = 500) -> None:
        """Let files arrive, in which keys come again and again; in a file each key once."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for _ in range(files):
            lines = []
            for key in self._chance.sample(range(keys), events):
                amount = None if self._chance.random() < 0.2 else self._chance.randrange(1_000_000)
                lines.append(json.dumps({"id": key, "amount": amount}))
                if key % 10 == 7:
                    continue
                if amount is None:
                    self.rows.pop(key, None)
                else:
                    self.rows[key] = amount * 2
            path = self.directory / f"{self.files:06}.json"
            hidden = path.with_name(f"_{path.name}")
            hidden.write_text("\n".join(lines) + "\n")
            # Spark takes files in the order of their times; files of one moment would be in none.
            os.utime(hidden, (1_500_000_000 + self.files, 1_500_000_000 + self.files))
            hidden.rename(path)
            self.files += 1

    def source(self) -> dict[str, Any]:
        """Return the arguments of the source: one file in every micro-batch."""
        return {
            "format": "json",
            "options": {"maxFilesPerTrigger": "1"},
            "path": str(self.directory),
            "schema": "id BIGINT, amount BIGINT",
        }


def rows_of(uri: str | Path) -> dict[int, int]:
    """Return the table as a strong reader sees it."""
    return rows_of_table(weir.open(uri))


def rows_of_table(table: weir.Table) -> dict[int, int]:
    """Return a table that is open as a strong reader sees it."""
    found = table.scan().to_table()
    rows = dict(zip(found.column("id").to_pylist(), found.column("doubled").to_pylist(), strict=True))
    assert len(rows) == found.num_rows
    return rows
