"""Pipeline files: what they say, and what is wrong with them. No Spark session anywhere."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import weir
from weir.errors import InputError, OptionError, SchemaError, ShardingError
from weir.spark.pipeline import (
    AVAILABLE_NOW,
    CallableSource,
    FormatSource,
    Metrics,
    Pipeline,
    PipelineFile,
    Services,
    SessionSettings,
    TargetTable,
    ValueFormat,
    read_pipeline_file,
)

LEAST = """
[source]
format = "rate"
[table]
uri = "ticks"
[stream]
checkpoint = "checkpoints"
"""

WHOLE = """
name = "flights"

[source]
format = "kafka"
[source.options]
subscribe = "flights"
"kafka.bootstrap.servers" = "kafka:9092"
maxOffsetsPerTrigger = 10_000
failOnDataLoss = false
[source.value]
format = "json"
schema = "id BIGINT, carrier STRING"
options = { mode = "PERMISSIVE" }

[transform]
sql = "SELECT * FROM source"

[table]
uri = "s3://bucket/flights"
schema = "id: int64!, carrier: string"
primary_key = "id"
shard_by = "bucket(id, 8)"
fsync = false
merge_engine = { carrier = "max" }
[table.storage_options]
region = "eu-west-1"

[stream]
checkpoint = "s3://bucket/checkpoints/flights"
trigger = "10s"
cluster_by_shard = true

[write]
some_option = true

[services]
merge = "30s"
index = "off"
compact = "1h"
collect = "1d"
horizon = "2h"
version_retention = "7d"
runner = "threads"
grace = "1m"
merge_share = 0.02
merge_generations = 9
merge_age = "1d 12h"

[metrics]
every = "5s"
file = "metrics.jsonl"
log = false
arrival = "timestamp"

[spark]
master = "local[2]"
settings = { "spark.sql.shuffle.partitions" = 8 }
"""


def read(tmp_path: Path, text: str) -> PipelineFile:
    path = tmp_path / "pipeline.toml"
    path.write_text(text, encoding="utf-8")
    return read_pipeline_file(path)


def refused(tmp_path: Path, text: str) -> InputError:
    with pytest.raises(InputError) as caught:
        read(tmp_path, text)
    return caught.value


def test_a_file_and_the_same_pipeline_in_python_are_equal(tmp_path: Path) -> None:
    found = read(tmp_path, WHOLE)
    assert found.pipeline == Pipeline(
        name="flights",
        source=FormatSource(
            "kafka",
            {
                "subscribe": "flights",
                "kafka.bootstrap.servers": "kafka:9092",
                "maxOffsetsPerTrigger": "10000",
                "failOnDataLoss": "false",
            },
            value=ValueFormat("json", "id BIGINT, carrier STRING", {"mode": "PERMISSIVE"}),
        ),
        transform="SELECT * FROM source",
        table=TargetTable(
            "s3://bucket/flights",
            {"region": "eu-west-1"},
            pa.schema([pa.field("id", pa.int64(), nullable=False), ("carrier", pa.string())]),
            ("id",),
            (weir.bucket("id", 8),),
            fsync=False,
            merge_engine=weir.MergeEngine.aggregation(carrier="max"),
        ),
        checkpoint="s3://bucket/checkpoints/flights",
        trigger=timedelta(seconds=10),
        cluster_by_shard=True,
        write={"some_option": "true"},
        services=Services(
            merge=timedelta(seconds=30),
            index=None,
            compact=timedelta(hours=1),
            collect=timedelta(days=1),
            horizon=timedelta(hours=2),
            version_retention=timedelta(days=7),
            runner="threads",
            grace=timedelta(minutes=1),
            merge_policy=weir.MergePolicy(min_share=0.02, max_generations=9, max_age=timedelta(hours=36)),
        ),
        metrics=Metrics(every=timedelta(seconds=5), file="metrics.jsonl", log=False, arrival="timestamp"),
    )
    assert found.session == SessionSettings("local[2]", {"spark.sql.shuffle.partitions": "8"})
    assert found.directory == tmp_path


def test_little_is_needed(tmp_path: Path) -> None:
    found = read(tmp_path, LEAST)
    assert found.pipeline == Pipeline(
        source=FormatSource("rate"), table=TargetTable("ticks"), checkpoint="checkpoints"
    )
    assert found.session == SessionSettings()


def test_a_source_may_be_a_function(tmp_path: Path) -> None:
    found = read(tmp_path, LEAST.replace('format = "rate"', 'callable = "package.module:make"'))
    assert found.pipeline.source == CallableSource("package.module:make")


def test_files_and_composite_keys(tmp_path: Path) -> None:
    text = LEAST.replace('format = "rate"', 'format = "json"\npath = "in"\nschema = "id BIGINT"').replace(
        'uri = "ticks"', 'uri = "ticks"\nschema = "a: int64, b: string"\nprimary_key = ["a", "b"]'
    )
    found = read(tmp_path, text.replace("[stream]", '[stream]\ntrigger = "available-now"')).pipeline
    assert found.source == FormatSource("json", path="in", schema="id BIGINT")
    assert isinstance(found.table, TargetTable)
    assert found.table.primary_key == ("a", "b")
    assert found.trigger == AVAILABLE_NOW


@pytest.mark.parametrize(
    ("old", "new", "where", "says"),
    [
        ("[services]", "[service]", "service", "Did you mean 'services'?"),
        ('merge = "30s"', 'marge = "30s"', "services.marge", "Did you mean 'merge'?"),
        ("fsync = false", "fsnyc = false", "table.fsnyc", "Did you mean 'fsync'?"),
        ('trigger = "10s"', 'tigger = "10s"', "stream.tigger", "Did you mean 'trigger'?"),
        ('master = "local[2]"', 'mastr = "local[2]"', "spark.mastr", "Did you mean 'master'?"),
        ("[source]", "[source]\nzzz = 1", "source.zzz", "Known here: format, callable"),
        ("cluster_by_shard = true", "cluster_by_shard = 4", "stream.cluster_by_shard", "true or false"),
        ('format = "json"', 'format = "avro"', "source.value.format", "from_avro(value, ...)"),
        ('format = "json"', "", "source.value.format", "is missing"),
        ('schema = "id BIGINT, carrier STRING"', "", "source.value.schema", "is missing"),
        ('schema = "id BIGINT, carrier STRING"', 'schema = " "', "source.value.schema", "is empty"),
        ('"PERMISSIVE"', '"SLOPPY"', "source.value.options", "'FAILFAST' or 'PERMISSIVE', not 'SLOPPY'"),
        ("options = { mode", "option = { mode", "source.value.option", "Did you mean 'options'?"),
        ("fsync = false", 'fsync = "no"', "table.fsync", "has to be true or false, and is text"),
        ('every = "5s"', "every = 5", "metrics.every", 'such as "90s", and is a whole number'),
        ('every = "5s"', 'every = "5"', "metrics.every", "a number with a unit"),
        ('every = "5s"', 'every = "0s"', "metrics.every", "more than none"),
        ('merge = "30s"', 'merge = "often"', "services.merge", "a number with a unit"),
        ('merge = "30s"', 'merge = "0s"', "services.merge", "more than none"),
        ("merge_share = 0.02", "merge_share = -1", "services.merge_share", "at least 0"),
        ("merge_share = 0.02", 'merge_share = "2%"', "services.merge_share", "a number"),
        ('merge_age = "1d 12h"', "merge_age = 3600", "services.merge_age", "length of time"),
        ('merge_age = "1d 12h"', 'merge_age = "soon"', "services.merge_age", "length of time"),
        ("merge_share = 0.02", "merge_share = true", "services.merge_share", "a number"),
        ("merge_generations = 9", "merge_generations = 0", "services.merge_generations", "at least 1"),
        ("merge_generations = 9", "merge_generations = 9.5", "services.merge_generations", "whole number"),
        ('trigger = "10s"', 'trigger = "once"', "stream.trigger", "a number with a unit"),
        ('runner = "threads"', 'runner = "dask"', "services.runner", "'spark' or on 'threads'"),
        ('primary_key = "id"', "primary_key = 7", "table.primary_key", "text or a list of texts"),
        ('primary_key = "id"', "", "table.primary_key", "no primary key"),
        ('schema = "id: int64!, carrier: string"', "", "table.primary_key", "no schema"),
        ("int64!", "int65!", "table.schema, character 5", "unknown type 'int65'"),
        ("bucket(id, 8)", "buckets(id, 8)", "table.shard_by", "unknown shard transform"),
        ('carrier = "max"', 'carrier = "most"', "table.merge_engine", "there is no function 'most'"),
        ('carrier = "max"', "carrier = [1]", "table.merge_engine.carrier", "text, a number"),
        ('{ carrier = "max" }', "7", "table.merge_engine", "has to be text"),
        ('uri = "s3://bucket/flights"', "", "table.uri", "'uri' is missing"),
        ('checkpoint = "s3://bucket/checkpoints/flights"', "", "stream.checkpoint", "is missing"),
        ('format = "kafka"', "", "source.format", "no format"),
        ('format = "kafka"', 'format = "kafka"\ncallable = "a:b"', "source.format", "both"),
        ('region = "eu-west-1"', "region = [1]", "table.storage_options.region", "text, a number"),
        ('sql = "SELECT * FROM source"', 'sql = " "', "transform.sql", "is empty"),
        ('name = "flights"', "name = 1", "name", "has to be text"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(
    tmp_path: Path, old: str, new: str, where: str, says: str
) -> None:
    assert old in WHOLE
    error = refused(tmp_path, WHOLE.replace(old, new, 1))
    assert error.where == f"pipeline.toml: {where}"
    assert says in str(error)


@pytest.mark.parametrize("table", ["source", "table", "stream"])
def test_a_table_that_is_missing(tmp_path: Path, table: str) -> None:
    error = refused(tmp_path, LEAST.replace(f"[{table}]", f"[{table}]".replace(table, "metrics")))
    assert isinstance(error, OptionError)


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ('format = "rate"', 'callable = "no_colon"', "source.callable"),
        ('format = "rate"', 'callable = "package:not a name"', "source.callable"),
        ('format = "rate"', 'callable = "a:b"\npath = "x"', "source.path"),
        ('format = "rate"', 'callable = "a:b"\nvalue = {}', "source.value"),
    ],
)
def test_functions_are_named_in_full(tmp_path: Path, old: str, new: str, where: str) -> None:
    assert refused(tmp_path, LEAST.replace(old, new)).where == f"pipeline.toml: {where}"


def test_errors_keep_their_kind(tmp_path: Path) -> None:
    assert isinstance(refused(tmp_path, WHOLE.replace("int64!", "int65")), SchemaError)
    assert isinstance(refused(tmp_path, WHOLE.replace("bucket(id, 8)", "bucket(id, x)")), ShardingError)


@pytest.mark.parametrize("text", [b"[source", b"\xff\xfe", b"a = " + b"[" * 5_000, None])
def test_a_file_that_is_none(tmp_path: Path, text: bytes | None) -> None:
    path = tmp_path / "pipeline.toml"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(OptionError) as caught:
        read_pipeline_file(path)
    assert caught.value.where == str(path)


def test_a_secret_is_not_shown(tmp_path: Path) -> None:
    text = WHOLE.replace('region = "eu-west-1"', 'secret_access_key = ["hunter2"]')
    assert "hunter2" not in str(refused(tmp_path, text))
    shown = repr(read(tmp_path, WHOLE.replace('"eu-west-1"', '"hunter2"')))
    assert "hunter2" not in shown


@pytest.mark.parametrize(
    "make",
    [
        lambda: Services(merge=5),  # type: ignore[arg-type]
        lambda: Services(merge=timedelta(0)),
        lambda: Services(grace=timedelta(seconds=-1)),
        lambda: Metrics(arrival=" "),
        lambda: TargetTable(""),
        lambda: FormatSource(""),
        lambda: Pipeline(source=FormatSource("rate"), table=TargetTable("t"), checkpoint=""),
        lambda: Pipeline(
            source=FormatSource("rate"),
            table=TargetTable("t"),
            checkpoint="c",
            trigger="once",  # type: ignore[arg-type]
        ),
    ],
)
def test_values_are_checked_in_python_too(make: object) -> None:
    assert callable(make)
    with pytest.raises(OptionError):
        make()
