"""What a write of the format ``"weir"`` is told, and which writer comes of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from weir.config import WriterOptions
from weir.errors import OptionError
from weir.format.source import Source
from weir.spark.options import TableLocation, as_switch, as_whole_number, split_options

__all__ = ["WriteOptions"]

_COUNTS = ("max_memtable_rows", "max_memtable_bytes", "max_memtable_entries")
_SWITCHES = ("takeover", "flush", "fsync", "mergeSchema")
_NAMES = ("source", "sequence", "lease_ttl", "lease_wait", "max_memtable_age", *_COUNTS, *_SWITCHES)
_LEASE_WAIT_SECONDS = 60.0

# Every commit claims its shards anew, and reads what former ones have left in the log.
_MAX_TAIL_ENTRIES = 64


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a write. A value that can be pickled.

    Parameters
    ----------
    location : TableLocation
        The table.
    source : Source, optional
        Makes a batch write one that may be repeated (options ``source`` and ``sequence``).
    flush : bool, optional
        Whether every commit leaves its rows in generations, for a merge to find. Default: in batch
        writes; in streams when enough has come together.
    fsync : bool, default True
        As for :func:`weir.open`.
    writer : mapping of str to object, default {}
        Options of :class:`weir.config.WriterOptions` that were given.
    lease_wait : float, default 60
        Seconds a commit waits for shards that another writer has.
    merge_schema : bool, default False
        Whether columns of the rows that the table does not have are added to it.
    """

    location: TableLocation
    source: Source | None
    flush: bool | None
    fsync: bool
    writer: Mapping[str, Any]
    lease_wait: float = _LEASE_WAIT_SECONDS
    merge_schema: bool = False

    @staticmethod
    def parse(options: Mapping[str, str]) -> WriteOptions:
        """Return the options that Spark hands over.

        Raises
        ------
        OptionError, UriError, InputError
            If one is unknown or cannot be.
        """
        location, given = split_options(options, _NAMES)
        switches = {name: as_switch(name, given[name]) for name in _SWITCHES if name in given}
        writer: dict[str, Any] = {
            name: as_whole_number(name, given[name], least=1) for name in _COUNTS if name in given
        }
        if "lease_ttl" in given:
            writer["lease_ttl"] = _seconds("lease_ttl", given["lease_ttl"])
        if "max_memtable_age" in given:
            writer["max_memtable_age"] = _seconds("max_memtable_age", given["max_memtable_age"])
        if "takeover" in switches:
            writer["takeover"] = switches["takeover"]
        WriterOptions.from_keywords(**writer)
        return WriteOptions(
            location,
            _source(given),
            switches.get("flush"),
            switches.get("fsync", True),
            writer,
            _lease_wait(given),
            switches.get("mergeSchema", False),
        )

    def of_writer(self, *, holder: str | None, flush: bool) -> dict[str, Any]:
        """Return the options of the writer of a commit.

        Parameters
        ----------
        holder : str, optional
            Name of who holds the leases.
        flush : bool
            Whether to flush where the option does not say.
        """
        return {
            "max_memtable_entries": _MAX_TAIL_ENTRIES,
            **self.writer,
            "holder": holder,
            "flush_on_close": flush if self.flush is None else self.flush,
        }


def _source(given: Mapping[str, str]) -> Source | None:
    if ("source" in given) != ("sequence" in given):
        missing = "sequence" if "source" in given else "source"
        raise OptionError(
            f"of the options 'source' and 'sequence', {missing!r} is missing",
            where=missing,
            hint="Together they mark a write that may be repeated; in foreachBatch the sequence is the "
            "id of the batch",
        )
    if "source" not in given:
        return None
    return Source(given["source"], as_whole_number("sequence", given["sequence"]))


def _lease_wait(given: Mapping[str, str]) -> float:
    if "lease_wait" not in given:
        return _LEASE_WAIT_SECONDS
    seconds = _seconds("lease_wait", given["lease_wait"])
    if not 0 <= seconds < math.inf:
        raise OptionError(
            f"the option 'lease_wait' must be a number of seconds of at least 0, got {seconds}",
            where="lease_wait",
        )
    return seconds


def _seconds(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise OptionError(
            f"the option {name!r} must be a number of seconds, got {value!r}", where=name
        ) from None
