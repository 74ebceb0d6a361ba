"""A pipeline as a TOML file.

::

    name = "flights"                          # of the Spark application and of the query

    [source]
    format = "kafka"                          # or: callable = "package.module:function"
    schema = "id BIGINT, name STRING"         # for formats of files
    path = "landing"                          # for formats of files
    in_order = true                           # rows in the order of their files, read by one task
    [source.options]
    subscribe = "flights"
    [source.value]                            # reads the column `value`, which becomes a struct
    format = "json"                           # or "csv"
    schema = "id BIGINT, name STRING"
    options = { mode = "PERMISSIVE" }

    [transform]
    sql = "SELECT ... FROM source"

    [table]
    uri = "s3://bucket/flights"
    schema = "id: int64!, name: string"       # creates the table if there is none
    primary_key = "id"                        # or a list
    shard_by = "bucket(id, 8)"
    fsync = true
    merge_engine = "first_row"                # or "partial_update"; for aggregation a table:
    # merge_engine = { total = "sum", seen = "max" }
    [table.storage_options]
    region = "eu-west-1"

    [events]                                  # instead of [table]: rows are events of a type
    uri = "s3://bucket/store"
    type = "departed"
    fields = { carrier = ["UA", "DL"], delay = "int | null" }   # creates store and type if there are none
    buckets = 4
    fsync = true
    [events.storage_options]
    region = "eu-west-1"

    [stream]
    checkpoint = "s3://bucket/checkpoints/flights"
    trigger = "10s"                           # or "available-now"; default: one batch after the other
    cluster_by_shard = true                   # a shuffle, so that each shard is written by one task
    on_bad_record = "quarantine"              # or "fail", the default

    [quarantine]
    uri = "s3://bucket/flights-quarantine"
    alarm_share = 0.01                        # of the rows, above which there is a warning

    [write]                                   # options of the format "weir", or "weir-events"

    [services]
    merge = "1m"                              # a length of time, or "off"
    index = "5m"
    compact = "10m"
    collect = "15m"
    maintain = "15m"                          # of an event store
    horizon = "15m"
    version_retention = "7d"
    runner = "spark"                          # or "threads"
    grace = "30s"
    merge_share = 0.02                        # of the base table's rows; merges wait for as many
    merge_generations = 64                    # of a shard, at which they do not
    merge_age = "1d"                          # since a flush, at which they do not; or "off"

    [metrics]
    every = "10s"
    file = "metrics.jsonl"
    log = true
    arrival = "timestamp"

    [spark]                                   # of the session that `weir pipeline` starts
    master = "local[*]"                       # or "spark://host:7077", "sc://host"
    [spark.settings]
    "spark.sql.shuffle.partitions" = 8

Durations are texts like ``90s`` and ``1d 12h``. Only ``source``, ``table.uri`` (or ``events.uri`` and
``events.type``) and ``stream.checkpoint`` are needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from weir.errors import OptionError
from weir.events.definitions import fields_of
from weir.format.merge_engine import Function, MergeEngine
from weir.merge.policy import MergePolicy
from weir.schema.text import parse_schema
from weir.sharding.shard_by import ShardBy
from weir.sharding.shard_text import parse_shard_by
from weir.spark.pipeline.pipeline import Pipeline
from weir.spark.pipeline.settings import (
    AVAILABLE_NOW,
    CallableSource,
    FormatSource,
    Metrics,
    OnBadRecord,
    Quarantine,
    Services,
    TargetEvents,
    TargetTable,
    Trigger,
    ValueFormat,
    check_on_bad_record,
)
from weir.spark.pipeline.toml_table import TomlTable, read_toml

__all__ = ["PipelineFile", "SessionSettings", "read_pipeline_file"]

_TABLES = (
    "name",
    "source",
    "transform",
    "table",
    "events",
    "stream",
    "quarantine",
    "write",
    "services",
    "metrics",
    "spark",
)
_SOURCE = ("format", "callable", "schema", "path", "options", "value", "in_order")
_VALUE = ("format", "schema", "options")
_TARGET = ("uri", "schema", "primary_key", "shard_by", "fsync", "merge_engine", "storage_options")
_STREAM = ("checkpoint", "trigger", "cluster_by_shard", "on_bad_record")
_QUARANTINE = ("uri", "alarm_share")
_EVENTS = ("uri", "type", "fields", "buckets", "fsync", "storage_options")
_INTERVALS = ("merge", "index", "compact", "collect", "maintain")
_MERGE_POLICY = ("merge_share", "merge_generations", "merge_age")
_SERVICES = (*_INTERVALS, "horizon", "version_retention", "runner", "grace", *_MERGE_POLICY)
_METRICS = ("every", "file", "log", "arrival")
_SPARK = ("master", "settings")


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """The Spark session that a command starts for a pipeline.

    Parameters
    ----------
    master : str, optional
        Where Spark runs, or a Spark Connect server, ``sc://host``. Default: as configured in Spark, or else
        ``local[*]``.
    settings : mapping of str to str, default {}
        Further settings.
    """

    master: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class PipelineFile:
    """The content of a file.

    Parameters
    ----------
    pipeline : Pipeline
        The pipeline.
    session : SessionSettings
        The session it runs in.
    directory : Path
        The directory of the file; modules that it names may be in it.
    """

    pipeline: Pipeline
    session: SessionSettings
    directory: Path


def read_pipeline_file(path: str | Path) -> PipelineFile:
    """Read a file.

    Parameters
    ----------
    path : str or Path
        The file.

    Raises
    ------
    OptionError, SchemaError, ShardingError
        If it cannot be read, a key is unknown or missing, or a value does not fit; the message names the
        file, the table and the key.
    """
    path = Path(path)
    whole = read_toml(path, _TABLES)
    for needed in ("source", "stream"):
        if not whole.has(needed):
            raise OptionError(f"the table [{needed}] is missing", where=path.name)
    if whole.has("table") == whole.has("events"):
        raise OptionError(
            "both the tables [table] and [events] are there"
            if whole.has("table")
            else "the table [table] is missing",
            where=path.name,
            hint="Rows go to a table, [table], or to an event store, [events]",
        )
    stream = whole.table("stream", _STREAM)
    values: dict[str, Any] = {"name": whole.text("name")} if whole.has("name") else {}
    with whole.placing():
        pipeline = Pipeline(
            source=_source(whole.table("source", _SOURCE)),
            table=_target(whole.table("table", _TARGET))
            if whole.has("table")
            else _events(whole.table("events", _EVENTS)),
            checkpoint=stream.needed_text("checkpoint"),
            transform=whole.table("transform", ("sql",)).text("sql"),
            trigger=_trigger(stream),
            cluster_by_shard=stream.switch("cluster_by_shard", False),
            on_bad_record=_on_bad_record(stream),
            quarantine=_quarantine(whole.table("quarantine", _QUARANTINE)),
            write=whole.options("write"),
            services=_services(whole.table("services", _SERVICES)),
            metrics=_metrics(whole.table("metrics", _METRICS)),
            **values,
        )
    return PipelineFile(pipeline, _session(whole.table("spark", _SPARK)), path.parent)


def _source(table: TomlTable) -> FormatSource | CallableSource:
    if table.has("format") == table.has("callable"):
        raise OptionError(
            "the source has both a format and a callable"
            if table.has("format")
            else "the source has no format",
            where=table.place("format"),
            hint='Give it one: format = "kafka", or callable = "package.module:function"',
        )
    if table.has("callable"):
        for key in ("schema", "path", "options", "value", "in_order"):
            if table.has(key):
                raise OptionError(f"a callable takes no {key!r}", where=table.place(key))
        with table.placing("callable"):
            return CallableSource(table.needed_text("callable"))
    return FormatSource(
        table.needed_text("format"),
        table.options("options"),
        table.text("path"),
        table.text("schema"),
        _value(table.table("value", _VALUE)) if table.has("value") else None,
        table.switch("in_order", False),
    )


def _value(table: TomlTable) -> ValueFormat:
    format: Any = table.needed_text("format")
    return ValueFormat(format, table.needed_text("schema"), table.options("options"))


def _target(table: TomlTable) -> TargetTable:
    schema, shard_by = table.text("schema"), table.text("shard_by")
    columns, shards = None, tuple[ShardBy, ...]()
    if schema is not None:
        with table.placing("schema"):
            columns = parse_schema(schema)
    if shard_by is not None:
        with table.placing("shard_by"):
            shards = parse_shard_by(shard_by)
    return TargetTable(
        table.needed_text("uri"),
        table.options("storage_options"),
        columns,
        table.names("primary_key"),
        shards,
        fsync=table.switch("fsync", True),
        merge_engine=_merge_engine(table),
    )


def _events(table: TomlTable) -> TargetEvents:
    fields = dict(table.table("fields", None).values) if table.has("fields") else None
    kind = table.needed_text("type")
    if fields is not None:
        with table.placing("fields"):
            fields_of(fields, kind)
    return TargetEvents(
        table.needed_text("uri"),
        kind,
        table.options("storage_options"),
        fields,
        table.whole_number("buckets", 4) if table.has("buckets") else None,
        fsync=table.switch("fsync", True),
    )


def _merge_engine(table: TomlTable) -> MergeEngine | str | None:
    if not isinstance(table.values.get("merge_engine"), Mapping):
        return table.text("merge_engine")
    functions = table.options("merge_engine")
    try:
        return MergeEngine.aggregation(**functions)
    except ValueError as error:
        known = ", ".join(Function)
        raise OptionError(
            str(error), where=table.place("merge_engine"), hint=f"Functions are {known}"
        ) from error


def _trigger(table: TomlTable) -> Trigger:
    if table.values.get("trigger") == AVAILABLE_NOW:
        return AVAILABLE_NOW
    return table.duration("trigger", timedelta(0))


def _on_bad_record(table: TomlTable) -> OnBadRecord:
    chosen = table.text("on_bad_record") or "fail"
    with table.placing("on_bad_record"):
        return check_on_bad_record(chosen)


def _quarantine(table: TomlTable) -> Quarantine:
    usual = Quarantine()
    return Quarantine(uri=table.text("uri"), alarm_share=table.number("alarm_share", usual.alarm_share))


def _services(table: TomlTable) -> Services:
    usual = Services()
    intervals: dict[str, Any] = {
        name: table.duration_or_off(name, getattr(usual, name)) for name in _INTERVALS
    }
    runner: Any = table.text("runner") or usual.runner
    return Services(
        **intervals,
        horizon=table.duration("horizon", usual.horizon),
        version_retention=table.duration_or_off("version_retention", None),
        runner=runner,
        grace=table.duration("grace", usual.grace),
        merge_policy=_merge_policy(table, usual.merge_policy),
    )


def _merge_policy(table: TomlTable, usual: MergePolicy) -> MergePolicy:
    share = table.number("merge_share", usual.min_share)
    generations = table.whole_number("merge_generations", usual.max_generations)
    age = table.duration_or_off("merge_age", usual.max_age)
    # Checked one after the other, so that an error has the name of its key.
    with table.placing("merge_share"):
        policy = replace(usual, min_share=share, max_age=age)
    with table.placing("merge_generations"):
        return replace(policy, max_generations=generations)


def _metrics(table: TomlTable) -> Metrics:
    usual = Metrics()
    return Metrics(
        every=table.duration("every", usual.every),
        file=table.text("file"),
        log=table.switch("log", usual.log),
        arrival=table.text("arrival"),
    )


def _session(table: TomlTable) -> SessionSettings:
    return SessionSettings(table.text("master"), table.options("settings"))
