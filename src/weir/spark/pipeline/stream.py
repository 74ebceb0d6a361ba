"""The Spark stream of a pipeline: source, transform, and the progress of its query."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from weir.errors import MissingDependencyError, OptionError, SchemaError
from weir.spark.pipeline.decoding import CORRUPT, decoded
from weir.spark.pipeline.micro_batch import MicroBatch
from weir.spark.pipeline.settings import CallableSource, FormatSource

__all__ = ["SOURCE_VIEW", "MicroBatches", "read_source", "resolve", "transformed"]

SOURCE_VIEW = "source"
"""The name of the stream in the SQL of a transform."""

_PACKAGES = {
    "kafka": "org.apache.spark:spark-sql-kafka-0-10_2.13",
    "avro": "org.apache.spark:spark-avro_2.13",
}
_TEXT_FORMATS = ("csv", "json")
_NO_SUCH_FORMAT = ("DATA_SOURCE_NOT_FOUND", "KAFKA_DATA_SOURCE_NOT_ENABLED", "AVRO_NOT_LOADED")

# The view has one name for all pipelines of a session.
_one_view = threading.Lock()


def read_source(
    spark: SparkSession, source: FormatSource | CallableSource, *, keep_unreadable: bool = False
) -> DataFrame:
    """Return the stream of a source.

    Parameters
    ----------
    spark : SparkSession
        The session.
    source : FormatSource or CallableSource
        The source.
    keep_unreadable : bool, default False
        Whether to include unreadable records, with their text in a separate column.

    Raises
    ------
    MissingDependencyError
        If Spark lacks its format, or a module is missing.
    OptionError
        If an option is wrong, or a function does not return a stream.
    SchemaError
        If its values are to be parsed but it has none.
    """
    if isinstance(source, CallableSource):
        stream = resolve(source)(spark)
        where = "source.callable"
    else:
        stream = _load(spark, source, keep_unreadable)
        where = "source.format"
    if not stream.isStreaming:
        raise OptionError(
            "the source is no stream", where=where, hint="Make it with spark.readStream, not with spark.read"
        )
    return stream


def resolve(source: CallableSource) -> Callable[[SparkSession], DataFrame]:
    """Return the function of a source.

    Raises
    ------
    MissingDependencyError
        If a module it needs cannot be imported.
    OptionError
        If the module has no such function.
    """
    if not isinstance(source.function, str):
        return source.function
    module, _, path = source.function.partition(":")
    try:
        found: object = import_module(module)
    except ImportError as error:
        raise MissingDependencyError(
            f"the module {module!r} of the source cannot be imported: {error}",
            where="source.callable",
            hint="It has to be beside the pipeline file, or installed",
        ) from error
    for name in path.split("."):
        found = getattr(found, name, None)
    if not callable(found):
        raise OptionError(f"there is no function {path!r} in module {module!r}", where="source.callable")
    return found


def _load(spark: SparkSession, source: FormatSource, keep_unreadable: bool) -> DataFrame:
    reader = spark.readStream.format(source.format).options(**source.options)
    schema = source.schema
    if keep_unreadable and schema is not None and source.format in _TEXT_FORMATS:
        reader = reader.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", CORRUPT)
        schema = f"{schema.rstrip().rstrip(',')}, {CORRUPT} STRING"
    try:
        if schema is not None:
            reader = reader.schema(schema)
        stream = reader.load(source.path)
        # On Spark Connect nothing is looked up before somebody asks.
        stream.schema  # noqa: B018
    except Exception as error:
        # Classic sessions let some errors through as those of the gateway to Java.
        text = str(error)
        if any(condition in text for condition in _NO_SUCH_FORMAT):
            package = _PACKAGES.get(source.format.lower())
            raise MissingDependencyError(
                f"Spark has no format {source.format!r}",
                where="source.format",
                hint=f"Start Spark with the package that brings it: --packages {package}:{spark.version}, or "
                "the same as the setting spark.jars.packages"
                if package is not None
                else "Start Spark with the jar that brings it, or register the data source with the session",
            ) from error
        if not isinstance(error, PySparkException):
            raise
        raise OptionError(
            f"the source cannot be read: {_first_line(text)}", where="source.options"
        ) from error
    return stream if source.value is None else decoded(stream, source.value, keep_unreadable=keep_unreadable)


@contextmanager
def transformed(spark: SparkSession, source: DataFrame, sql: str | None) -> Iterator[DataFrame]:
    """Yield the result of a query over the view ``source`` of a stream; the stream itself without a query.

    The view exists only inside the ``with`` block, in which a query of the stream must be started: a Spark
    Connect server looks it up then.

    Raises
    ------
    OptionError
        If the SQL cannot be parsed, or the session already has a view of that name.
    SchemaError
        If it names columns that do not exist.
    """
    if sql is None:
        yield source
        return
    with _one_view:
        if any(one.isTemporary for one in spark.catalog.listTables(pattern=SOURCE_VIEW)):
            raise OptionError(
                f"the session has a temporary view {SOURCE_VIEW!r}, which is the name of the stream",
                where="transform.sql",
                hint=f"Drop it: spark.catalog.dropTempView({SOURCE_VIEW!r})",
            )
        source.createTempView(SOURCE_VIEW)
        try:
            yield _query(spark, sql)
        finally:
            spark.catalog.dropTempView(SOURCE_VIEW)


def _query(spark: SparkSession, sql: str) -> DataFrame:
    try:
        stream = spark.sql(sql)
        # On Spark Connect nothing is looked up before somebody asks.
        stream.schema  # noqa: B018
    except PySparkException as error:
        kind = SchemaError if "UNRESOLVED_COLUMN" in str(error) else OptionError
        raise kind(
            f"the SQL of the transform fails: {_first_line(str(error))}", where="transform.sql"
        ) from error
    if not stream.isStreaming:
        raise OptionError(
            "the SQL of the transform does not read the stream",
            where="transform.sql",
            hint=f"The stream is the view {SOURCE_VIEW!r}",
        )
    return stream


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


class MicroBatches:
    """The micro-batches of a query as they end.

    Parameters
    ----------
    query : StreamingQuery
        The query.
    """

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._seen: tuple[str, int] | None = None

    def ended(self) -> tuple[MicroBatch, ...]:
        """Return the micro-batches with rows that ended since the last call, in order.

        Spark remembers the last hundred, so this must be called regularly.
        """
        last = self._query.lastProgress
        if last is None or _identity(last) == self._seen:
            return ()
        recent = self._query.recentProgress
        new = []
        for progress in reversed(recent):
            if _identity(progress) == self._seen:
                break
            new.append(progress)
        if recent:
            self._seen = _identity(recent[-1])
        batches = (MicroBatch.of(json.loads(progress.json)) for progress in reversed(new))
        return tuple(batch for batch in batches if batch.rows)


def _identity(progress: StreamingQueryProgress) -> tuple[str, int]:
    return progress.timestamp, progress.batchId
