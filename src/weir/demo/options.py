"""The options of the demo."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import weir
from weir.demo.flights import FLIGHT_SCHEMA, NUM_SHARDS, PRIMARY_KEY
from weir.table.table import Table

__all__ = ["DemoOptions", "create_table", "location"]

_ALL_FLIGHTS = 336_776
_EVENTS_PER_FLIGHT = 3


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What the demo is to do.

    Parameters
    ----------
    directory : Path, optional
        Where to build the table, which is then kept. Default: a temporary directory.
    flights : int, optional
        Only so many flights, from the beginning of the year. Default: all.
    seed : int
        Decides when the process that writes is killed.
    keep : bool
        Whether to keep a temporary directory.
    fsync : bool
        Whether an acknowledgement means that the disk has the rows.
    """

    directory: Path | None = None
    flights: int | None = None
    seed: int = 2013
    keep: bool = False
    fsync: bool = True

    @property
    def about_events(self) -> int:
        """About how many events there will be; flights that are cancelled have fewer."""
        return (self.flights or _ALL_FLIGHTS) * _EVENTS_PER_FLIGHT


@contextmanager
def location(options: DemoOptions) -> Iterator[Path]:
    """Yield the directory of the demo; one that is temporary is removed in the end."""
    if options.directory is not None:
        yield options.directory
        return
    directory = Path(tempfile.mkdtemp(prefix="weir-demo-"))
    try:
        yield directory
    finally:
        if not options.keep:
            shutil.rmtree(directory, ignore_errors=True)


def create_table(directory: Path, options: DemoOptions) -> Table:
    """Create the table of the demo.

    Parameters
    ----------
    directory : Path
        The directory of the demo.
    options : DemoOptions
        What to do.

    Raises
    ------
    TableExistsError
        If the directory has a table already.
    """
    return weir.create(
        directory / "flights",
        FLIGHT_SCHEMA,
        primary_key=PRIMARY_KEY,
        shard_by=weir.bucket(PRIMARY_KEY, NUM_SHARDS),
        fsync=options.fsync,
        maintenance="off",
    )
