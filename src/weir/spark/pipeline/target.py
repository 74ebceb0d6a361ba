"""The table of a pipeline: opens it, or creates it if it does not exist."""

from __future__ import annotations

import pyarrow as pa

import weir
from weir.base.merge_engine import chosen_engine
from weir.errors import OptionError, SchemaError, ShardingError, TableExistsError, TableNotFoundError
from weir.format.merge_engine import MergeEngine
from weir.schema.text import format_type
from weir.spark.pipeline.settings import TargetTable
from weir.table.table import Table

__all__ = ["check_target", "find_table", "open_or_create"]


def find_table(target: TargetTable) -> Table | None:
    """Return the table; None if it does not exist but can be created.

    Raises
    ------
    TableNotFoundError
        If it does not exist, and no schema is given to create it.
    SchemaError, ShardingError
        If it exists but differs from the description.
    """
    try:
        table = weir.open(target.uri, storage_options=target.storage_options or None, fsync=target.fsync)
    except TableNotFoundError as error:
        if target.schema is None:
            raise TableNotFoundError(
                error.message,
                where=error.where,
                hint="Create it, or give the pipeline a schema and a primary key to create it with",
            ) from error
        return None
    check_target(table, target)
    return table


def open_or_create(target: TargetTable) -> Table:
    """Return the table; create it if it does not exist.

    Raises
    ------
    TableNotFoundError
        If it does not exist, and no schema is given to create it.
    SchemaError, ShardingError
        If it differs from the description, or cannot be created like this.
    """
    table = find_table(target)
    if table is not None:
        return table
    try:
        return weir.create(
            target.uri,
            target.schema,
            primary_key=target.primary_key,
            shard_by=target.shard_by or None,
            merge_engine=target.merge_engine,
            storage_options=target.storage_options or None,
            fsync=target.fsync,
        )
    except TableExistsError:
        # Another driver was faster, or a dataset that is no table is in the way: opening says which.
        table = weir.open(target.uri, storage_options=target.storage_options or None, fsync=target.fsync)
        check_target(table, target)
        return table


def check_target(table: Table, target: TargetTable) -> None:
    """Check that a table matches a pipeline's description, which may leave things open.

    Raises
    ------
    SchemaError
        If columns or primary key differ.
    ShardingError
        If it is sharded differently.
    OptionError
        If it has another merge engine.
    """
    if target.schema is not None:
        _check_columns(table.schema, target.schema, table.uri)
        if table.primary_key != target.primary_key:
            raise SchemaError(
                f"the primary key of the table is {', '.join(table.primary_key)}, "
                f"and of the pipeline {', '.join(target.primary_key)}",
                where=table.uri,
            )
    if target.shard_by:
        described = ", ".join(str(one) for one in target.shard_by)
        if described != table.sharded_by:
            raise ShardingError(
                f"the table is sharded by {table.sharded_by}, and the pipeline by {described}",
                where=table.uri,
            )
    if target.merge_engine is not None:
        wanted = chosen_engine(target.merge_engine, None, table.schema, table.primary_key)
        if wanted != table.merge_engine:
            raise OptionError(
                f"the merge engine of the table is {_named(table.merge_engine)}, "
                f"and of the pipeline {_named(wanted)}",
                where=table.uri,
            )


def _named(engine: MergeEngine | None) -> str:
    return "the last row" if engine is None else str(engine)


def _check_columns(actual: pa.Schema, wanted: pa.Schema, where: str) -> None:
    for field in wanted:
        if field.name not in actual.names:
            raise SchemaError(f"the table has no column {field.name!r}", where=where)
        kind = actual.field(field.name).type
        if kind != field.type:
            raise SchemaError(
                f"column {field.name!r} of the table is {format_type(kind)}, "
                f"and of the pipeline {format_type(field.type)}",
                where=where,
            )
    for name in actual.names:
        if name not in wanted.names:
            raise SchemaError(f"the pipeline has no column {name!r}, which the table has", where=where)
