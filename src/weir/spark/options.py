"""Options common to all reads and writes of the format ``"weir"``: where the table is, and how to reach it.

Spark passes options as text, with names in lower case. One mapping holds three kinds: ``path``; storage
options, as ``storage.`` and any name that :func:`weir.open` takes, or by the bare name where it starts with
the name of its store (``aws_region``, ``google_service_account``, ``azure_account_key``); and those of the
source or the sink, which are in separate modules. Any other option is an error: silently ignoring a misspelt
option would do harm later.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import weir
from weir.errors import OptionError
from weir.storage.location import parse_location
from weir.table.table import Table

__all__ = ["TableLocation", "as_switch", "as_whole_number", "split_options"]

_PATH = "path"
_STORAGE_PREFIX = "storage."
_STORE_PREFIXES = ("aws_", "azure_", "google_")
_OF_SPARK = frozenset({"checkpointlocation", "queryname"})
"""Options of streaming queries, which Spark also passes to the sink."""

_OF_CATALOG = frozenset({"owner", "provider"})
"""Options that Spark adds for a table in its catalog."""

_MOST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TableLocation:
    """The location of a table, as a value that can be pickled and means the same in every process.

    Parameters
    ----------
    uri : str
        The table; a local path is absolute, since executors have other working directories.
    storage_options : mapping of str to str, default {}
        Credentials and other options of the store, as for :func:`weir.open`.
    """

    uri: str
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def open(self, *, fsync: bool = True) -> Table:
        """Open the table.

        Parameters
        ----------
        fsync : bool, default True
            As for :func:`weir.open`.

        Raises
        ------
        TableNotFoundError
            If there is no table.
        """
        return weir.open(
            self.uri, storage_options=self.storage_options or None, fsync=fsync, maintenance="off"
        )


def split_options(
    options: Mapping[str, str], known: Collection[str], *, of: str = "weir"
) -> tuple[TableLocation, dict[str, str]]:
    """Return the location of the table and the options of the source or sink.

    Parameters
    ----------
    options : mapping of str to str
        The options that Spark passes.
    known : collection of str
        Names of the options of the source or sink, as documented. Spark ignores case, so ``mergeSchema`` and
        ``mergeschema`` are the same.
    of : str, default "weir"
        The format they belong to.

    Returns
    -------
    tuple of TableLocation and dict of str to str
        The second uses the names as in ``known``.

    Raises
    ------
    OptionError
        If there is no path, or an option is unknown.
    UriError
        If the path cannot be parsed.

    Examples
    --------
    >>> location, rest = split_options({"path": "/data/flights", "columns": "id"}, ["columns", "filter"])
    >>> location, rest
    (TableLocation(uri='/data/flights'), {'columns': 'id'})
    >>> split_options({"path": "/data/flights", "colums": "id"}, ["columns", "filter"])
    Traceback (most recent call last):
    weir.errors.OptionError: the format "weir" has no option 'colums' [colums]. Did you mean 'columns'?
    """
    if {name.lower() for name in options} >= _OF_CATALOG:
        raise OptionError(
            "a Weir table cannot be in the catalog of Spark, which does not pass a Python data source the "
            "location of such a table",
            where="CREATE TABLE",
            hint="Make a view: CREATE TEMPORARY VIEW flights USING weir OPTIONS (path 's3://bucket/flights')",
        )
    names = {name.lower(): name for name in known}
    storage: dict[str, str] = {}
    own: dict[str, str] = {}
    uri = ""
    for given, value in options.items():
        name = given.lower()
        if name == _PATH:
            uri = value
        elif name in names:
            own[names[name]] = value
        elif name.startswith(_STORAGE_PREFIX):
            storage[name.removeprefix(_STORAGE_PREFIX)] = value
        elif name.startswith(_STORE_PREFIXES):
            storage[name] = value
        elif name not in _OF_SPARK:
            raise _unknown(given, names, of)
    if not uri:
        raise OptionError(
            "the table is not named",
            where=_PATH,
            hint='Give its path, as in .load("s3://bucket/flights"), .save(...) or .start(...); for a table '
            "in its catalog Spark does not pass it on",
        )
    return TableLocation(parse_location(uri).uri, storage), own


def as_switch(name: str, value: str) -> bool:
    """Parse a boolean option.

    Raises
    ------
    OptionError
        If it is neither ``true`` nor ``false``.
    """
    if value.lower() not in ("true", "false"):
        raise OptionError(f"the option {name!r} must be true or false, got {value!r}", where=name)
    return value.lower() == "true"


def as_whole_number(name: str, value: str, *, least: int = 0, most: int = _MOST) -> int:
    """Parse an integer option.

    Raises
    ------
    OptionError
        If it is not an integer, below ``least`` or above ``most``.
    """
    is_number = value.isascii() and value.isdigit()
    if not is_number or (len(value) <= len(str(_MOST)) and int(value) < least):
        raise OptionError(
            f"the option {name!r} must be a whole number of at least {least}, got {value!r}", where=name
        )
    # Python itself refuses to read a number of thousands of digits.
    if len(value) > len(str(_MOST)) or int(value) > most:
        raise OptionError(
            f"the option {name!r} must be a whole number of at most {most:,}, got {value:.30}", where=name
        )
    return int(value)


def _unknown(given: str, names: Mapping[str, str], of: str) -> OptionError:
    near = difflib.get_close_matches(given.lower(), [*names, _PATH], n=1, cutoff=0.75)
    known = ", ".join(sorted([*names.values(), _PATH]))
    return OptionError(
        f'the format "{of}" has no option {given!r}',
        where=given,
        hint=f"Did you mean {names.get(near[0], near[0])!r}?"
        if near
        else f"The options are {known}, and storage options as storage.NAME",
    )
