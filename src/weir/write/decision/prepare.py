"""User requests, checked and split by shard: nothing is written before everything is checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from weir.errors import FilterError, InputError, OptionError
from weir.rows import as_key_table, as_row_table, check_deletable, tombstone_batches, upsert_batches
from weir.rows.operations import Delete, Insert, OperationInput, Patch, Upsert
from weir.rows.patches import patch_batches
from weir.sharding.shard_values import ShardValues
from weir.write.columns import TableColumns
from weir.write.decision.operation import Kind, Operation
from weir.write.decision.row_expression import RowExpression, condition

__all__ = ["made_operations", "routed_by_shard", "routed_operations", "update_values"]

Routed = dict[ShardValues, list[Operation]]


def made_operations(operations: Sequence[OperationInput], columns: TableColumns) -> list[Operation]:
    """Return the operations in order, before they are split by shard.

    Raises
    ------
    InputError
        If something does not fit the table. The error names it.
    """
    columns.refuse_append_only("a patch, an insert or a condition")
    columns.refuse_merge_engine("a patch, an insert or a condition")
    return [made for asked in operations for made in _made(asked, columns)]


def routed_operations(operations: Sequence[Operation], columns: TableColumns) -> Routed:
    """Return the operations of each shard, in order."""
    routed: Routed = {}
    for operation in operations:
        routed_by_shard(operation, columns, routed)
    return routed


def _made(asked: OperationInput, columns: TableColumns) -> list[Operation]:
    schema, log_schema, key = columns.schema, columns.wal_schema, columns.primary_key
    also = columns.router.source_columns
    if isinstance(asked, (Upsert, Insert)):
        text = asked.condition if isinstance(asked, Upsert) else None
        held = None if text is None else condition(text, schema, has_new=True)
        kind = Kind.UPSERT if isinstance(asked, Upsert) else Kind.INSERT
        return [
            Operation(kind, batch, condition=held)
            for batch in upsert_batches(as_row_table(asked.rows, schema, key), log_schema)
        ]
    if isinstance(asked, Patch):
        if asked.missing not in ("skip", "insert"):
            raise OptionError(f"missing is 'skip' or 'insert', got {asked.missing!r}", where="missing")
        held = None if asked.condition is None else condition(asked.condition, schema, has_new=True)
        makes = asked.missing == "insert"
        return [
            Operation(Kind.PATCH, batch, given=given, makes_rows=makes, condition=held)
            for given, batch in patch_batches(
                asked.rows, schema, log_schema, key, also=also, makes_rows=makes
            )
        ]
    if isinstance(asked, Delete):
        check_deletable(schema, key)
        held = None if asked.condition is None else condition(asked.condition, schema, has_new=False)
        keys = as_key_table(asked.keys, schema, key, also=also, to_delete=True)
        return [
            Operation(Kind.DELETE, batch, condition=held) for batch in tombstone_batches(keys, log_schema)
        ]
    raise InputError(
        f"an operation is weir.Upsert, Insert, Patch or Delete, got {type(asked).__name__}",
        where="operations",
    )


def routed_by_shard(operation: Operation, columns: TableColumns, routed: Routed) -> None:
    """Add an operation to those of the shards that its rows are in."""
    partition = columns.router.partition(operation.rows)
    if len(partition.values) == 1:
        routed.setdefault(partition.values[0], []).append(operation)
        return
    order, ends = partition.grouped()
    ordered = operation.rows.take(pa.array(order))
    start = 0
    for values, end in zip(partition.values, np.asarray(ends).tolist(), strict=True):
        routed.setdefault(values, []).append(operation.with_rows(ordered.slice(start, end - start)))
        start = end


def update_values(set_to: Mapping[str, str], columns: TableColumns) -> tuple[tuple[str, RowExpression], ...]:
    """Return the checked expressions of an update.

    Raises
    ------
    InputError
        If nothing is set, or an unknown column, a key column, or one that decides the shard.
    FilterError
        If an expression cannot be used, or is of a type that the column cannot take.
    """
    schema = columns.schema
    if not isinstance(set_to, Mapping) or not set_to:
        raise InputError(
            f'set is a dict of columns and SQL, such as {{"n": "n + 1"}}, got {set_to!r}', where="set"
        )
    values = []
    for name, text in set_to.items():
        if name not in schema.names:
            raise InputError(
                f"the table has no column {name!r}", where="set", hint=f"They are {', '.join(schema.names)}"
            )
        if name in columns.primary_key:
            raise InputError(
                f"column {name!r} is part of the primary key, which an update cannot change",
                where="set",
                hint="Delete the rows, and write them with another key",
            )
        if name in columns.router.source_columns:
            raise InputError(f"column {name!r} decides the shard of a row, and cannot change", where="set")
        value = RowExpression.of(text, schema, has_new=False, where=f"set[{name!r}]")
        wanted = schema.field(name).type
        try:
            pa.nulls(0, value.type).cast(wanted)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            raise FilterError(
                f"{text!r} is of type {value.type}, and column {name!r} of {wanted}",
                where=f"set[{name!r}]",
                hint="Cast it in the expression",
            ) from error
        values.append((name, value))
    return tuple(values)
