"""Execution of ``MERGE INTO``: assigns a clause to each source row, and makes all writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession, functions
from sqlglot import exp

from weir.errors import KeyValueError, LeaseHeldError, UnsupportedError
from weir.rows.changes import OPERATION
from weir.rows.operations import Delete, Insert, OperationInput, Patch, Upsert
from weir.spark.lease_retry import in_turn
from weir.spark.statements.constants import evaluated_by
from weir.spark.statements.dialect import PassedOn
from weir.spark.statements.merge_plan import Clause, MergePlan, plan_merge_rows
from weir.spark.statements.names import NamedTables, append
from weir.table.table import Table
from weir.write.write_result import WriteResult

__all__ = ["merge_rows"]

_MATCHED = "__matched"
_ABSENT = "__absent"
_NONE = -1
_WHERE = "MERGE INTO"
_LEASE_WAIT_SECONDS = 30.0
"""As long as other writes of a table wait: streams and other commits hold its shards briefly."""


def merge_rows(spark: SparkSession, statement: exp.Merge, tables: NamedTables) -> int:
    """Execute a ``MERGE INTO``, and return how many rows were written and keys deleted.

    Raises
    ------
    UnsupportedError, SchemaError, QueryError
        As :func:`~weir.spark.statements.merge_plan.plan_merge_rows`.
    KeyValueError
        If two source rows have the same key, or one has none. Nothing is written.
    """
    table = tables.changed(statement.this)
    source = tables.readable(spark, statement.args["using"])
    plan = plan_merge_rows(
        statement,
        table.schema,
        table.primary_key,
        spark.sql(exp.select("*").from_(source).sql(PassedOn)).columns,
        evaluated_by(spark),
    )
    chosen = spark.sql(_choice(source, plan).sql(PassedOn)).persist()
    try:
        _check_keys(chosen, table.primary_key)
        counted = chosen.groupBy(_MATCHED, _ABSENT).count().collect()
        counts = {(row[_MATCHED], row[_ABSENT]): row["count"] for row in counted}
        counts.pop((_NONE, _NONE), None)
        _refuse_delete_or_insert(plan, counts)
        if _fits_sink(plan, counts, table.schema.names):
            _write_by_sink(chosen, plan, table)
            return sum(counts.values())
        operations = list(_operations(chosen.toArrow(), plan, table.schema.names, counts))

        def write() -> WriteResult:
            with table.writer() as writer:
                return writer.apply(operations)

        # A lease that is held is found before anything is written.
        done = in_turn(
            write,
            seconds=_LEASE_WAIT_SECONDS,
            may_repeat=lambda error: isinstance(error, LeaseHeldError),
            where=table.uri,
        )
        return 0 if done.done is None else done.done.num_rows
    finally:
        chosen.unpersist()


def _choice(source: exp.Expression, plan: MergePlan) -> exp.Select:
    """Return the query that gives each source row its clauses and the values that these set."""
    columns = [
        _case(plan.matched).as_(_MATCHED),
        _case(plan.absent).as_(_ABSENT),
        *(value.copy().as_(name, quoted=True) for name, value in plan.keys.items()),
    ]
    for name, value in _values(plan):
        columns.append(value.copy().as_(name, quoted=True))
    return exp.select(*columns).from_(source)


def _case(clauses: Sequence[Clause]) -> exp.Expression:
    """Return the number of the first clause that applies, or -1."""
    case = exp.Case()
    for number, clause in enumerate(clauses):
        if clause.chosen_by is None:
            # Nothing after it is ever chosen.
            return case.else_(exp.Literal.number(number)) if case.args.get("ifs") else _number(number)
        case = case.when(clause.chosen_by.copy(), exp.Literal.number(number))
    return case.else_(_number(_NONE)) if case.args.get("ifs") else _number(_NONE)


def _number(value: int) -> exp.Expression:
    return exp.cast(exp.Literal.number(value), "int")


def _value_name(kind: str, number: int, column: str) -> str:
    return f"__{kind}_{number}_{column}"


def _values(plan: MergePlan) -> Iterator[tuple[str, exp.Expression]]:
    for kind, clauses in (("matched", plan.matched), ("absent", plan.absent)):
        for number, clause in enumerate(clauses):
            for column, value in (clause.values or {}).items():
                yield _value_name(kind, number, column), value


def _check_keys(chosen: DataFrame, primary_key: Sequence[str]) -> None:
    keys = [functions.col(f"`{name}`") for name in primary_key]
    lacking = reduce(lambda one, other: one | other, [key.isNull() for key in keys])
    own = chosen.where((functions.col(_MATCHED) != _NONE) | (functions.col(_ABSENT) != _NONE))
    twice = own.groupBy(*keys).count().where((functions.col("count") > 1) | lacking).limit(1).collect()
    for row in twice:
        key = ", ".join(f"{name} = {row[name]!r}" for name in primary_key)
        many = row["count"] > 1
        raise KeyValueError(
            f"{row['count']} rows of the source have the key {key}" if many else f"a row has the key {key}",
            where=_WHERE,
            hint="Leave one row for each key in the source: which of them counts is not defined"
            if many
            else "A row of the source needs a key: leave the others out",
        )


def _refuse_delete_or_insert(plan: MergePlan, counts: dict[tuple[int, int], int]) -> None:
    for (matched, absent), count in counts.items():
        if matched != _NONE and absent != _NONE and plan.matched[matched].values is None:
            raise UnsupportedError(
                f"{count} rows of the source delete the row with their key if it exists, and are inserted if "
                "not",
                where=_WHERE,
                hint="Give WHEN NOT MATCHED a condition that leaves them out",
            )


def _fits_sink(plan: MergePlan, counts: dict[tuple[int, int], int], columns: Sequence[str]) -> bool:
    """Whether executors can write everything: only whole rows and deletes, independent of existing rows."""
    for matched, absent in counts:
        if matched == _NONE or plan.matched[matched].condition is not None:
            return False
        is_delete = absent == _NONE and plan.matched[matched].values is None
        if not is_delete and (absent == _NONE or not plan.is_upsert(matched, absent, columns)):
            return False
    return True


def _write_by_sink(chosen: DataFrame, plan: MergePlan, table: Table) -> None:
    columns = []
    for name in table.schema.names:
        if name in table.primary_key:
            columns.append(functions.col(f"`{name}`"))
            continue
        value = functions.lit(None)
        for number, clause in enumerate(plan.matched):
            if clause.values is not None and name in clause.values:
                own = functions.col(f"`{_value_name('matched', number, name)}`")
                value = functions.when(functions.col(_MATCHED) == number, own).otherwise(value)
        columns.append(value.alias(name))
    deletes = [number for number, clause in enumerate(plan.matched) if clause.values is None]
    is_delete = functions.col(_MATCHED).isin(deletes) if deletes else functions.lit(False)
    operation = functions.when(is_delete, "delete").otherwise("upsert").alias(OPERATION)
    rows = chosen.where(functions.col(_MATCHED) != _NONE).select(*columns, operation)
    append(rows, table)


def _operations(
    chosen: pa.Table, plan: MergePlan, columns: Sequence[str], counts: dict[tuple[int, int], int]
) -> Iterator[OperationInput]:
    """Yield the writes, in an order in which none sees another's write to the same key."""
    for matched, absent in counts:
        both = pc.and_(pc.equal(chosen[_MATCHED], matched), pc.equal(chosen[_ABSENT], absent))
        rows = chosen.filter(both)
        is_inserted = absent != _NONE
        if matched != _NONE:
            clause = plan.matched[matched]
            if clause.values is None:
                yield Delete(rows.select(list(plan.keys)), clause.condition)
                continue
            new = _rows(rows, "matched", matched, clause)
            if is_inserted and plan.is_upsert(matched, absent, columns):
                yield Upsert(new, clause.condition)
                continue
            if len(new.column_names) > len(plan.keys):
                yield Patch(new, clause.condition)
        if is_inserted:
            # Where the row was there, it still is, so that this leaves it alone.
            yield Insert(_rows(rows, "absent", absent, plan.absent[absent]))


def _rows(rows: pa.Table, kind: str, number: int, clause: Clause) -> pa.Table:
    names = list(clause.values or {})
    return rows.select([_value_name(kind, number, name) for name in names]).rename_columns(names)
