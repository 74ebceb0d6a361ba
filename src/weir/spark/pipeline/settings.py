"""Settings of a pipeline, as frozen values: source, target, services and metrics.

Durations are :class:`~datetime.timedelta`. Every value is checked on construction; an error names the field
as in a pipeline file, ``services.merge``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from weir.errors import OptionError
from weir.format.merge_engine import MergeEngine
from weir.maintenance.garbage.garbage import DEFAULT_HORIZON
from weir.merge.policy import ALWAYS, MergePolicy
from weir.sharding.shard_by import ShardBy

__all__ = [
    "AVAILABLE_NOW",
    "FILE_FORMATS",
    "CallableSource",
    "FormatSource",
    "Metrics",
    "OnBadRecord",
    "Quarantine",
    "Services",
    "TargetEvents",
    "TargetTable",
    "Trigger",
    "ValueFormat",
    "check_on_bad_record",
    "check_trigger",
]

AVAILABLE_NOW: Final = "available-now"
"""The trigger of a stream that processes what is there at its start, and ends."""

Trigger = timedelta | Literal["available-now"]
"""The time between the beginnings of micro-batches; or :data:`AVAILABLE_NOW`."""

OnBadRecord = Literal["fail", "quarantine"]
"""What to do with a record that is not a valid row of the table."""

Runners = Literal["spark", "threads"]

FILE_FORMATS: Final = ("avro", "csv", "json", "orc", "parquet", "text")
"""Formats that read files."""


@dataclass(frozen=True, slots=True)
class ValueFormat:
    """The encoding of messages, such as Kafka's: the column ``value`` of a source.

    Parameters
    ----------
    format : str
        ``json`` or ``csv``.
    schema : str
        Their fields, as Spark DDL, ``id BIGINT, name STRING``.
    options : mapping of str to str, default {}
        Spark's options for the format, such as ``timestampFormat``. An unreadable value fails the stream,
        except with ``mode`` set to ``PERMISSIVE``, which gives nulls.
    """

    format: Literal["json", "csv"]
    schema: str
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.format not in ("json", "csv"):
            raise OptionError(
                f"values are 'json' or 'csv', not {self.format!r}",
                where="source.value.format",
                hint="Read others in the SQL of the transform, as from_avro(value, ...) does",
            )
        if not self.schema.strip():
            raise OptionError("the schema of the values is empty", where="source.value.schema")
        # Spark takes a mode that it does not know for PERMISSIVE.
        if self.mode not in ("FAILFAST", "PERMISSIVE"):
            raise OptionError(
                f"the mode is 'FAILFAST' or 'PERMISSIVE', not {self.mode!r}", where="source.value.options"
            )

    @property
    def mode(self) -> str:
        """What to do with an unreadable value."""
        given = {name.lower(): mode for name, mode in self.options.items()}
        return given.get("mode", "FAILFAST").upper()


@dataclass(frozen=True, slots=True)
class FormatSource:
    """A stream in a format that Spark supports, such as ``kafka``, ``json``, ``parquet`` or ``rate``.

    Parameters
    ----------
    format : str
        The format.
    options : mapping of str to str, default {}
        Its options, named as in Spark.
    path : str, optional
        Where to load from, for file formats.
    schema : str, optional
        The columns as Spark DDL, ``id BIGINT, name STRING``; required by file formats.
    value : ValueFormat, optional
        How to parse the column ``value`` into a struct. Default: leave it as it is.
    in_order : bool, default False
        For file formats: whether the rows of a micro-batch are in the order of their files, by modification
        time, and within each file in file order. If files contain changes of the same keys, the last one then
        wins, however many files a micro-batch has: after a crash there may be two even if
        ``maxFilesPerTrigger`` is one. A single task reads the micro-batch and holds it in memory.
    """

    format: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    path: str | None = None
    schema: str | None = None
    value: ValueFormat | None = None
    in_order: bool = False

    def __post_init__(self) -> None:
        if not self.format:
            raise OptionError("the format of the source is empty", where="source.format")
        if self.in_order and self.format not in FILE_FORMATS:
            raise OptionError(
                f"the format {self.format!r} is not one of files, whose order could be kept",
                where="source.in_order",
                hint=f"These are: {', '.join(FILE_FORMATS)}",
            )


@dataclass(frozen=True, slots=True)
class CallableSource:
    """A stream returned by a function.

    Parameters
    ----------
    function : str or callable
        Takes the session and returns a streaming DataFrame: itself, or as ``package.module:function``.
    """

    function: str | Callable[[SparkSession], DataFrame]

    def __post_init__(self) -> None:
        if isinstance(self.function, str):
            module, colon, name = self.function.partition(":")
            parts = (*module.split("."), *name.split("."))
            if not colon or not all(part.isidentifier() for part in parts):
                raise OptionError(
                    f"a function is named as package.module:function, got {self.function!r}",
                    where="source.callable",
                )


@dataclass(frozen=True, slots=True)
class TargetTable:
    """The table that receives the rows.

    Parameters
    ----------
    uri : str
        Where it is.
    storage_options : mapping of str to str, default {}
        Credentials and other options of the store, as for :func:`weir.open`.
    schema : pyarrow.Schema, optional
        The columns. If there is no table, it is created with them; an existing table must have them.
    primary_key : tuple of str, default ()
        The columns that identify a row; required and checked together with the schema.
    shard_by : tuple of ShardBy, default ()
        How rows are split into shards. Default: one shard.
    fsync : bool, default True
        As for :func:`weir.open`.
    merge_engine : MergeEngine or str, optional
        As for :func:`weir.create`. Default: that of the table; for a new table, the last row of a key wins.
    """

    uri: str
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    schema: pa.Schema | None = None
    primary_key: tuple[str, ...] = ()
    shard_by: tuple[ShardBy, ...] = ()
    fsync: bool = True
    merge_engine: MergeEngine | str | None = None

    def __post_init__(self) -> None:
        if not self.uri:
            raise OptionError("the location of the table is empty", where="table.uri")
        if self.schema is not None and not self.primary_key:
            raise OptionError(
                "the table has a schema and no primary key",
                where="table.primary_key",
                hint="Name the columns that identify a row",
            )
        described = ("primary_key", "shard_by", "merge_engine")
        named = next((name for name in described if getattr(self, name)), None)
        if self.schema is None and named is not None:
            raise OptionError(
                "the table has no schema, so it cannot be created",
                where=f"table.{named}",
                hint="Give a schema too, or leave this out if the table exists",
            )


@dataclass(frozen=True, slots=True)
class TargetEvents:
    """The event store that receives the rows, each as an event of one type.

    Parameters
    ----------
    uri : str
        Where it is.
    type : str
        The type. Rows have the columns ``context_id``, the fields, and optionally ``timestamp``, by default
        the time of ingestion.
    storage_options : mapping of str to str, default {}
        Credentials and other options of the store, as for :func:`weir.events.open`.
    fields : mapping of str to object, optional
        The fields, as for :meth:`weir.events.EventStore.define`. The store, the type or a version of it is
        created if necessary.
    buckets : int, optional
        Number of shards of a new store.
    fsync : bool, default True
        As for :func:`weir.events.open`.
    """

    uri: str
    type: str
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    fields: Mapping[str, Any] | None = None
    buckets: int | None = None
    fsync: bool = True

    def __post_init__(self) -> None:
        if not self.uri:
            raise OptionError("the location of the event store is empty", where="events.uri")
        if not self.type:
            raise OptionError("the type of the events is empty", where="events.type")
        if self.buckets is not None and self.fields is None:
            raise OptionError(
                "the type has no fields, so that no store can be created",
                where="events.buckets",
                hint="Give fields too, or leave this out if the store exists",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The services for the table while rows stream into it, each with its own interval; None is off.

    The interval is from the beginning of one run to that of the next, which begins at once if a run took
    longer. The first run begins an interval after the stream. A failed run is logged and retried.

    Parameters
    ----------
    merge : timedelta, optional
        Merge generations into the base table. Default 1 minute.
    index : timedelta, optional
        Catch up indexes with merged rows. Default 5 minutes.
    compact : timedelta, optional
        Compact small fragments into large ones. Default 10 minutes.
    collect : timedelta, optional
        Collect garbage. Default 15 minutes.
    maintain : timedelta, optional
        For an event store: erase what is forgotten or too old, refresh materialisations, and maintain their
        tables. Default 15 minutes.
    horizon : timedelta
        How long garbage is kept after it was marked. Default 15 minutes.
    version_retention : timedelta, optional
        How long superseded versions of the base table are kept. Default: for ever.
    runner : str, default "spark"
        Where tasks run: ``spark``, or ``threads`` of the driver.
    grace : timedelta
        How long a stopping pipeline waits for running services. Each is safe to interrupt. Default 30
        seconds.
    merge_policy : MergePolicy
        Decides whether a merge that is due has enough to merge. Default: any amount is.
    """

    merge: timedelta | None = timedelta(minutes=1)
    index: timedelta | None = timedelta(minutes=5)
    compact: timedelta | None = timedelta(minutes=10)
    collect: timedelta | None = timedelta(minutes=15)
    maintain: timedelta | None = timedelta(minutes=15)
    horizon: timedelta = DEFAULT_HORIZON
    version_retention: timedelta | None = None
    runner: Runners = "spark"
    grace: timedelta = timedelta(seconds=30)
    merge_policy: MergePolicy = ALWAYS

    def __post_init__(self) -> None:
        for name in ("merge", "index", "compact", "collect", "maintain"):
            _check_length(getattr(self, name), f"services.{name}", more_than_none=True)
        for name in ("horizon", "version_retention", "grace"):
            _check_length(getattr(self, name), f"services.{name}")
        if self.runner not in ("spark", "threads"):
            raise OptionError(
                f"services run on 'spark' or on 'threads', not on {self.runner!r}", where="services.runner"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The metrics of a pipeline.

    Parameters
    ----------
    every : timedelta
        Time from one sample to the next. Default 10 seconds.
    file : str, optional
        A local file that every sample is appended to as a line of JSON.
    log : bool, default True
        Whether every sample is a log event, ``pipeline.metrics``.
    arrival : str, optional
        SQL over the columns of the source for the arrival time of a row. Default: the column ``timestamp`` of
        ``kafka`` and ``rate``, the modification time of its file for file formats, and otherwise the
        beginning of the micro-batch that read the row.
    """

    every: timedelta = timedelta(seconds=10)
    file: str | None = None
    log: bool = True
    arrival: str | None = None

    def __post_init__(self) -> None:
        _check_length(self.every, "metrics.every", more_than_none=True)
        if self.arrival is not None and not self.arrival.strip():
            raise OptionError("the instant of arrival is empty", where="metrics.arrival")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """The quarantine for records that cannot be read or do not fit the table.

    Parameters
    ----------
    uri : str, optional
        The table for them, which is created; storage options are those of the pipeline's table. Default:
        beside that table, with ``-quarantine`` appended to its name.
    alarm_share : float
        Share of the rows since the last sample above which a sample is logged as a warning. Default 0.01.
    """

    uri: str | None = None
    alarm_share: float = 0.01

    def __post_init__(self) -> None:
        if self.uri is not None and not self.uri:
            raise OptionError("the location of the quarantine is empty", where="quarantine.uri")
        if not 0 <= self.alarm_share <= 1:
            raise OptionError(
                f"the share for the alarm is from 0 to 1, got {self.alarm_share}",
                where="quarantine.alarm_share",
            )


def check_on_bad_record(chosen: object) -> OnBadRecord:
    """Parse what to do with a bad record.

    Raises
    ------
    OptionError
        If it is neither ``"fail"`` nor ``"quarantine"``.
    """
    if chosen == "fail":
        return "fail"
    if chosen == "quarantine":
        return "quarantine"
    raise OptionError(
        f"on_bad_record is 'fail' or 'quarantine', not {chosen!r}", where="stream.on_bad_record"
    )


def check_trigger(trigger: object) -> None:
    """Check a trigger.

    Raises
    ------
    OptionError
        If it is neither a duration nor :data:`AVAILABLE_NOW`.
    """
    if trigger == AVAILABLE_NOW:
        return
    if not isinstance(trigger, timedelta):
        raise OptionError(
            f"the trigger is a duration or {AVAILABLE_NOW!r}, not {trigger!r}", where="stream.trigger"
        )
    _check_length(trigger, "stream.trigger")


def _check_length(length: object, where: str, *, more_than_none: bool = False) -> None:
    if length is None:
        return
    if not isinstance(length, timedelta):
        raise OptionError(f"a duration is a timedelta, not {length!r}", where=where)
    if length < timedelta(0) or (more_than_none and not length):
        least = "more than none" if more_than_none else "not negative"
        raise OptionError(f"the duration has to be {least}, got {length}", where=where)
