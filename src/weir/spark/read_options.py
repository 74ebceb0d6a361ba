"""Options of reads: what to read of a table, and which state of it.

======================  =====  ======  =============================================================
option                  batch  stream  meaning
======================  =====  ======  =============================================================
``columns``             yes    yes     columns to read, in order: ``id, delay``, with backticks
                                       around a name that has a comma. Default: all
``rowsPerPartition``    yes    yes     rows after which a task ends. Default 1,048,576
``filter``              yes            only rows that match this SQL condition, as for
                                       :meth:`weir.Table.scan`
``pushFilters``         yes            ``true`` lets Lance evaluate the filters of a query, and leaves
                                       out shards by them: only for a data frame that is used in a
                                       single query, and once in it
``consistency``         yes            ``strong``, ``bounded(500)`` or ``snapshot``
``at``                  yes            a snapshot token, a tag or an instant
                                       (``2026-01-31 12:00:00+01:00``): the table as it was then
``retainSeconds``       yes    yes     how long collection keeps the state that is read. Default 0 in
                                       a batch, and 86,400 for a stream that begins with the content
``readChangeFeed``             yes     ``true``, which a stream has to say: its rows are changes
``startingFrom``               yes     where a stream without a checkpoint begins: ``snapshot``
                                       (default), ``earliest``, ``latest``, or what ``at`` takes
``consumer``                   yes     name under which the table keeps how far the stream has come
``maxRowsPerTrigger``          yes     the most changes of a micro-batch
``maxBytesPerTrigger``         yes     the most bytes of changes, as they are stored
``schemaChange``               yes     what becomes of the stream when columns that it reads are
                                       altered: ``fail`` (default) ends it with an error, ``keep``
                                       goes on with the columns that it began with
``beforeImage``                yes     ``true`` gives the rows before the changes as rows of their
                                       own, and ``_op`` the values of :mod:`weir.changes.images`
======================  =====  ======  =============================================================
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta

from weir.errors import OptionError
from weir.format.feed_consumer import consumer_path
from weir.snapshots.snapshot import STRONG, Consistency
from weir.spark.options import TableLocation, as_switch, as_whole_number, split_options

__all__ = ["LATEST", "SNAPSHOT", "BatchReadOptions", "StreamReadOptions", "reads_changes"]

SNAPSHOT = "snapshot"
"""``startingFrom``: the whole content first, then every later change."""

FAIL, KEEP = "fail", "keep"
"""``schemaChange``: whether a stream ends, or continues with the columns it began with."""

LATEST = "latest"
"""``startingFrom``: changes committed from now on."""

_READ_CHANGE_FEED = "readChangeFeed"
_BATCH = ("columns", "rowsPerPartition", "filter", "pushFilters", "consistency", "at", "retainSeconds")
_STREAM = (
    "columns",
    "rowsPerPartition",
    "retainSeconds",
    _READ_CHANGE_FEED,
    "startingFrom",
    "consumer",
    "maxRowsPerTrigger",
    "maxBytesPerTrigger",
    "schemaChange",
    "beforeImage",
)
_ROWS_PER_PARTITION = 1024 * 1024
_STREAM_RETAIN = timedelta(days=1)
_MOST_SECONDS = timedelta.max // timedelta(seconds=1)
_NAME = re.compile(r"\s*(?:`([^`]+)`|([^,`\s][^,`]*?))\s*(,|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReadOptions:
    """Options of a batch read.

    Parameters
    ----------
    location : TableLocation
        The table.
    columns : tuple of str, optional
        Columns, in order. None for all.
    filter : str, optional
        SQL condition.
    push_filters : bool
        Whether to take filters that Spark pushes down.
    consistency : Consistency
        How fresh the read has to be.
    at : str, optional
        The state to read, instead of the newest: a token, a tag or an instant.
    retain : timedelta
        How long garbage collection keeps the state being read.
    rows_per_partition : int
        Rows after which a task ends.
    """

    location: TableLocation
    columns: tuple[str, ...] | None
    filter: str | None
    push_filters: bool
    consistency: Consistency
    at: str | None
    retain: timedelta
    rows_per_partition: int

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> BatchReadOptions:
        """Parse the options that Spark passes.

        Raises
        ------
        OptionError
            If an option is unknown, out of range, contradicts another, or is only for streams.
        """
        _refuse_others(options, _STREAM, _BATCH, "a batch read")
        location, given = split_options(options, _BATCH)
        consistency = Consistency.parse(given.get("consistency", STRONG))
        retain = _retain(given, timedelta(0))
        at = given.get("at")
        if at is not None and "consistency" in given:
            raise _contradiction("consistency", "at")
        if retain and at is not None:
            raise _contradiction("retainSeconds", "at")
        if retain and consistency != STRONG:
            raise _contradiction("retainSeconds", "consistency")
        return cls(
            location=location,
            columns=_columns(given),
            filter=given.get("filter"),
            push_filters=as_switch("pushFilters", given.get("pushFilters", "false")),
            consistency=consistency,
            at=at,
            retain=retain,
            rows_per_partition=_rows_per_partition(given),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReadOptions:
    """Options of a stream read.

    Parameters
    ----------
    location : TableLocation
        The table.
    columns : tuple of str, optional
        Columns, in order, including those of the feed. None for all.
    starting_from : str
        Where a stream without a checkpoint begins.
    consumer : str, optional
        Name under which the table records the position of the stream.
    max_rows, max_bytes : int, optional
        Most changes of a micro-batch, and most bytes of them as stored.
    retain : timedelta
        How long garbage collection keeps the content that a stream begins with.
    rows_per_partition : int
        Rows of the content after which a task ends.
    keep_schema : bool, default False
        Whether the stream continues with the columns it began with if they are altered.
    before_image : bool, default False
        Whether the stream includes the rows before the changes.
    """

    location: TableLocation
    columns: tuple[str, ...] | None
    starting_from: str
    consumer: str | None
    max_rows: int | None
    max_bytes: int | None
    retain: timedelta
    rows_per_partition: int
    keep_schema: bool = False
    before_image: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> StreamReadOptions:
        """Parse the options that Spark passes.

        Raises
        ------
        OptionError
            If an option is unknown, out of range, or only for batches.
        """
        _refuse_others(options, _BATCH, _STREAM, "a streaming read")
        location, given = split_options(options, _STREAM)
        consumer = given.get("consumer")
        if consumer is not None:
            consumer_path(consumer)  # refuses what is no name
        return cls(
            location=location,
            columns=_columns(given),
            starting_from=given.get("startingFrom", SNAPSHOT),
            consumer=consumer,
            max_rows=_limit(given, "maxRowsPerTrigger"),
            max_bytes=_limit(given, "maxBytesPerTrigger"),
            retain=_retain(given, _STREAM_RETAIN),
            rows_per_partition=_rows_per_partition(given),
            keep_schema=_keeps_schema(given),
            before_image=as_switch("beforeImage", given.get("beforeImage", "false")),
        )


def reads_changes(options: Mapping[str, str]) -> bool:
    """Whether to read the change feed instead of the table."""
    given = {name.lower(): value for name, value in options.items()}.get(_READ_CHANGE_FEED.lower())
    return given is not None and as_switch(_READ_CHANGE_FEED, given)


def _keeps_schema(given: Mapping[str, str]) -> bool:
    text = given.get("schemaChange", FAIL)
    if text not in (FAIL, KEEP):
        raise OptionError(
            f"schemaChange is {FAIL!r} or {KEEP!r}, got {text!r}",
            where="schemaChange",
            hint="With fail a stream ends when its columns are altered; with keep it continues with the old "
            "ones",
        )
    return text == KEEP


def _columns(given: Mapping[str, str]) -> tuple[str, ...] | None:
    text = given.get("columns")
    if text is None:
        return None
    names: list[str] = []
    at = 0
    follows = True
    while follows:
        found = _NAME.match(text, at)
        if found is None:
            no_more = bool(names) and not text[at:].strip()
            raise OptionError(
                "columns are names with commas between them, "
                + (f"and no name follows the last comma of {text!r}" if no_more else f"got {text!r}"),
                where="columns",
                hint="Write backticks around a name that has a comma",
            )
        names.append(found.group(1) or found.group(2))
        at, follows = found.end(), found.group(3) == ","
    return tuple(names)


def _rows_per_partition(given: Mapping[str, str]) -> int:
    rows = _limit(given, "rowsPerPartition")
    return _ROWS_PER_PARTITION if rows is None else rows


def _retain(given: Mapping[str, str], usual: timedelta) -> timedelta:
    text = given.get("retainSeconds")
    if text is None:
        return usual
    return timedelta(seconds=as_whole_number("retainSeconds", text, most=_MOST_SECONDS))


def _limit(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    return None if text is None else as_whole_number(name, text, least=1)


def _refuse_others(
    options: Mapping[str, str], others: Collection[str], known: Collection[str], what: str
) -> None:
    """Refuse an option of the other kind of read."""
    misplaced = {name.lower(): name for name in others if name not in known}
    for given in options:
        if given.lower() in misplaced:
            raise OptionError(
                f"{what} has no option {misplaced[given.lower()]!r}",
                where=given,
                hint=f"Its options are {', '.join(known)}",
            )


def _contradiction(one: str, other: str) -> OptionError:
    return OptionError(f"the options {one!r} and {other!r} contradict each other", where=one, hint="Give one")
