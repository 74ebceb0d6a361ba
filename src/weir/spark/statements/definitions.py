"""``CREATE TABLE ... USING weir``."""

from __future__ import annotations

from typing import Any, NoReturn

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.types import StringType, StructType
from sqlglot import exp

import weir
from weir.errors import QueryError, SchemaError, UnsupportedError
from weir.sharding.shard_by import ShardBy
from weir.spark.statements.dialect import PassedOn
from weir.spark.statements.names import NamedTables
from weir.spark.types import arrow_schema
from weir.storage.location import parse_location
from weir.table.table import Table

__all__ = ["create_table", "is_of_weir"]

_WHERE = "CREATE TABLE"
_PROPERTIES = ("merge_engine", "sequence_by", "expire_by")


def is_of_weir(statement: exp.Create) -> bool:
    """Whether a statement creates a Weir table."""
    of = statement.find(exp.FileFormatProperty)
    return statement.kind == "TABLE" and of is not None and of.name.lower() == "weir"


def create_table(statement: exp.Create, tables: NamedTables) -> None:
    """Create the table that a statement describes.

    Raises
    ------
    TableExistsError
        If it exists and the statement does not say IF NOT EXISTS.
    UnsupportedError
        If the statement requests something Weir does not support.
    SchemaError, OptionError, ShardingError
        As :func:`weir.create`.
    """
    if statement.args.get("replace") or statement.expression is not None:
        _refuse(
            "CREATE OR REPLACE TABLE" if statement.args.get("replace") else "CREATE TABLE ... AS SELECT",
            "Create the table, then INSERT INTO it",
        )
    described = statement.this
    if not isinstance(described, exp.Schema):
        raise SchemaError("the statement names no columns", where=_WHERE)
    columns, primary_key = _columns(described)
    options = _Options(statement.args.get("properties"))
    uri = _place(described.this, options.location, tables)
    storage = options.storage or None
    if statement.args.get("exists") and _exists(uri, storage):
        return
    weir.create(
        uri,
        columns,
        primary_key=primary_key or None,
        shard_by=options.shard_by,
        storage_options=storage,
        **options.settings,
    )


def _refuse(what: str, hint: str | None = None) -> NoReturn:
    raise UnsupportedError(f"weir.spark.sql cannot do {what}", where=_WHERE, hint=hint)


def _exists(uri: str, storage: dict[str, str] | None) -> bool:
    try:
        weir.open(uri, storage_options=storage, maintenance="off")
    except weir.errors.TableNotFoundError:
        return False
    return True


def _place(name: exp.Table, location: str | None, tables: NamedTables) -> str:
    place = tables.place(name)
    if isinstance(place, Table):
        return place.uri
    if place is not None and location is not None:
        raise QueryError("the name of the table says where it is, and LOCATION too", where=_WHERE)
    found = location or place
    if found is None:
        raise QueryError(
            f"nothing says where {name.sql('spark')} is to be",
            where=_WHERE,
            hint="Add LOCATION 's3://bucket/table', or write its path: weir.`s3://bucket/table`",
        )
    return parse_location(found).uri


def _columns(described: exp.Schema) -> tuple[pa.Schema, list[str]]:
    """Return the columns, and those of the primary key."""
    texts: list[str] = []
    key: list[str] = []
    for one in described.expressions:
        if isinstance(one, exp.PrimaryKey):
            key = [part.name for part in one.expressions]
            continue
        if not isinstance(one, exp.ColumnDef) or one.kind is None:
            _refuse(one.sql("spark"))
        kinds = [constraint.kind for constraint in one.constraints]
        known = (exp.NotNullColumnConstraint, exp.CommentColumnConstraint, exp.PrimaryKeyColumnConstraint)
        for kind in kinds:
            if not isinstance(kind, known):
                _refuse(f"{one.name} {kind.sql('spark')}")
            if isinstance(kind, exp.PrimaryKeyColumnConstraint):
                key.append(one.name)
        is_null = not any(
            isinstance(kind, exp.NotNullColumnConstraint) and not kind.args.get("allow_null")
            for kind in kinds
        )
        name = exp.to_identifier(one.name, quoted=True).sql("spark")
        texts.append(f"{name} {one.kind.sql(PassedOn)}{'' if is_null else ' NOT NULL'}")
    try:
        described_by_spark = StructType.fromDDL(", ".join(texts))
    except PySparkException as error:
        said = " ".join(str(error).split())
        raise SchemaError(f"Spark cannot read the columns: {said:.400}", where=_WHERE) from error
    assert isinstance(described_by_spark, StructType)
    for column in described_by_spark:
        if isinstance(column.dataType, StringType) and column.dataType.simpleString() != "string":
            _refuse(f"{column.name} {column.dataType.simpleString()}", "Texts are compared by their bytes")
    schema = arrow_schema(described_by_spark)
    for name in key:
        if name not in schema.names:
            raise SchemaError(f"there is no column {name!r} to be the primary key", where=name)
    return pa.schema([one.with_nullable(one.nullable and one.name not in key) for one in schema]), key


class _Options:
    """The part of the statement after the columns."""

    def __init__(self, properties: exp.Properties | None) -> None:
        self.location: str | None = None
        self.shard_by: list[ShardBy] | None = None
        self.storage: dict[str, str] = {}
        self.settings: dict[str, Any] = {}
        for one in properties.expressions if properties is not None else []:
            if isinstance(one, exp.FileFormatProperty):
                continue
            if isinstance(one, exp.LocationProperty):
                self.location = one.name
            elif isinstance(one, exp.ClusteredByProperty):
                names = [column.name for column in one.expressions]
                if len(names) != 1:
                    _refuse("CLUSTERED BY of several columns", "Shard by one of them")
                self.shard_by = [weir.bucket(names[0], int(one.args["buckets"].name))]
            elif isinstance(one, exp.PartitionedByProperty):
                self.shard_by = [_transform(part) for part in one.this.expressions]
            elif isinstance(one, exp.OptionsProperty):
                for option in one.expressions:
                    self.storage[option.name.removeprefix("storage.")] = option.args["value"].name
            elif isinstance(one, exp.Property) and one.name in _PROPERTIES:
                self.settings[one.name] = one.args["value"].name
            else:
                known = ", ".join(_PROPERTIES)
                _refuse(one.sql("spark"), f"Its TBLPROPERTIES are {known}; weir.create knows more")


def _transform(part: exp.Expression) -> ShardBy:
    if isinstance(part, exp.PartitionedByBucket):
        return weir.bucket(part.this.name, int(part.expression.name))
    if isinstance(part, exp.Identifier | exp.Column):
        return weir.identity(part.name)
    _refuse(
        f"PARTITIONED BY ({part.sql('spark')})",
        "Shard by bucket(8, column) or column",
    )
