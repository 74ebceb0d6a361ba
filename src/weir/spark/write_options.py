"""Options of writes of the format ``"weir"``, and the writer options that follow from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from weir.config import WriterOptions
from weir.errors import OptionError
from weir.format.source import Source
from weir.rows.changes import INSERT, PATCH, UPSERT
from weir.spark.options import TableLocation, as_switch, as_whole_number, split_options
from weir.table.table import Table

__all__ = ["MAX_TAIL_ENTRIES", "WRITE_MODES", "WriteOptions"]

_COUNTS = ("max_memtable_rows", "max_memtable_bytes", "max_memtable_entries")
_SWITCHES = ("takeover", "flush", "fsync", "mergeSchema")
_NAMES = (
    "write_mode",
    "source",
    "sequence",
    "lease_ttl",
    "lease_wait",
    "max_memtable_age",
    *_COUNTS,
    *_SWITCHES,
)
_LEASE_WAIT_SECONDS = 60.0

_ADDS = "append"
_LOADS = "load"
WRITE_MODES = {"upsert": UPSERT, "patch": PATCH, "insert-if-absent": INSERT, _ADDS: UPSERT, _LOADS: UPSERT}
"""The default operation of rows, by write mode."""

# Every commit claims its shards anew, and reads what former ones have left in the log.
MAX_TAIL_ENTRIES = 64


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a write. A value that can be pickled.

    Parameters
    ----------
    location : TableLocation
        The table.
    source : Source, optional
        Makes a batch write repeatable (options ``source`` and ``sequence``).
    flush : bool, optional
        Whether every commit flushes its rows to generations, for a merge to find. Default: always in batch
        writes; in streams once enough rows have accumulated.
    fsync : bool, default True
        As for :func:`weir.open`.
    writer : mapping of str to object, default {}
        Options of :class:`weir.config.WriterOptions` that were given.
    lease_wait : float, default 60
        Seconds a commit waits for shards that another writer holds.
    merge_schema : bool, default False
        Whether to add columns of the rows that the table lacks.
    write_mode : str, default ""
        One of :data:`WRITE_MODES`. Default: upsert, or append for an append-only table.
    """

    location: TableLocation
    source: Source | None
    flush: bool | None
    fsync: bool
    writer: Mapping[str, Any]
    lease_wait: float = _LEASE_WAIT_SECONDS
    merge_schema: bool = False
    write_mode: str = ""

    @property
    def looks_as(self) -> str | None:
        """The default operation of rows, if the mode depends on existing rows."""
        operation = WRITE_MODES.get(self.write_mode)
        return operation if operation in (PATCH, INSERT) else None

    @property
    def is_merged_at_once(self) -> bool:
        """Whether a write is a bulk load, which is merged by its commit."""
        return self.write_mode == _LOADS

    def check_mode(self, table: Table) -> None:
        """Refuse a mode that the table does not support.

        Raises
        ------
        OptionError
            If the mode contradicts the table, which is append-only or not; or depends on rows that a merge
            engine only resolves on read.
        """
        if not self.write_mode or self.is_merged_at_once:
            return
        if table.is_append_only != (self.write_mode == _ADDS):
            raise OptionError(
                f"the table has no key by which {self.write_mode!r} finds a row: rows are only added"
                if table.is_append_only
                else "rows of the table have a key, by which they replace others",
                where="write_mode",
                hint=f"Leave the option out, or write with {_ADDS!r}"
                if table.is_append_only
                else "Write with 'upsert', or 'insert-if-absent', which leaves rows alone that are there",
            )
        if self.looks_as is not None and table.merge_engine is not None:
            raise OptionError(
                f"{self.write_mode!r} depends on the row that is there, and this table settles rows when "
                f"they are read: its merge engine is {table.merge_engine}",
                where="write_mode",
                hint="Write with 'upsert'; the engine \"partial_update\" keeps what a row leaves null",
            )

    def check_stream(self) -> None:
        """Refuse a mode that a streaming query cannot use.

        Raises
        ------
        OptionError
            If each of its batches would be a bulk load.
        """
        if self.is_merged_at_once:
            raise OptionError(
                "a streaming query writes a little at a time, and does not load",
                where="write_mode",
                hint="Leave the option out: what the query writes is merged by the table's upkeep",
            )

    @staticmethod
    def parse(options: Mapping[str, str]) -> WriteOptions:
        """Parse the options that Spark passes.

        Raises
        ------
        OptionError, UriError, InputError
            If an option is unknown or not valid.
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
            _write_mode(given),
        )

    def of_writer(self, *, holder: str | None, flush: bool) -> dict[str, Any]:
        """Return the writer options for a commit.

        Parameters
        ----------
        holder : str, optional
            Name of the lease holder.
        flush : bool
            Whether to flush if the option does not say.
        """
        return {
            "max_memtable_entries": MAX_TAIL_ENTRIES,
            **self.writer,
            "holder": holder,
            "flush_on_close": flush if self.flush is None else self.flush,
        }


def _write_mode(given: Mapping[str, str]) -> str:
    mode = given.get("write_mode", "").lower()
    if mode and mode not in WRITE_MODES:
        raise OptionError(
            f"the option 'write_mode' must be one of {', '.join(WRITE_MODES)}, got {mode!r:.80}",
            where="write_mode",
        )
    return mode


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
