"""Runs statements: writes to Weir tables by Weir, all others by Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa
import sqlglot
from pyspark.sql import DataFrame, Observation, SparkSession, functions
from sqlglot import exp
from sqlglot.errors import SqlglotError

from weir.errors import FilterError, QueryError, SchemaError, UnsupportedError, WeirError
from weir.spark.statements.constants import Evaluate, condition_text, evaluated_by
from weir.spark.statements.definitions import create_table, is_of_weir
from weir.spark.statements.dialect import PassedOn
from weir.spark.statements.expressions import renamed
from weir.spark.statements.merge_rows import merge_rows
from weir.spark.statements.names import NamedTable, NamedTables, append
from weir.spark.statements.own_names import own_name, with_own_fields

__all__ = ["sql"]

_PARSED = ("CREATE", "DELETE", "FROM", "INSERT", "MERGE", "SELECT", "UPDATE", "VALUES", "WITH", "(")
_COMMENTS = re.compile(r"\A(?:\s+|--[^\n]*|/\*.*?\*/)*", re.DOTALL)
_COUNT = "num_affected_rows"
_TOO_DEEP_FOR_SPARK = ("StackOverflowError", "FAILED_TO_PARSE_TOO_COMPLEX")
_WRITES = (exp.Merge, exp.Update, exp.Delete, exp.Insert, exp.MultitableInserts)
_PARTS = {
    "MERGE": {"this", "using", "on", "whens"},
    "UPDATE": {"this", "expressions", "where"},
    "DELETE": {"this", "where"},
    "INSERT": {"this", "expression", "source", "with_"},
}
"""The permitted parts of write statements, by sqlglot's names, which also cover other databases."""
_PART_NAMES = {"where": "REPLACE WHERE", "conflict": "ON CONFLICT", "default": "DEFAULT VALUES"}
_INSTEAD = {
    "MERGE": "Write a WITH inside USING (...)",
    "INSERT": "INSERT INTO upserts rows by their primary key; a data frame is written by names of columns",
}
_OTHERS = {
    "DROP": "Drop a table with weir.drop(uri)",
    "ALTER": "Alter a table with table.alter(...)",
    "TRUNCATE": "Delete every row with DELETE FROM",
    "OPTIMIZE": "Compact a table with table.maintenance.compact()",
    "VACUUM": "Collect garbage with table.maintenance.collect_garbage()",
    "DESCRIBE": "The columns are in table.schema",
    "DESC": "The columns are in table.schema",
}


def sql(spark: SparkSession, statement: str, tables: Mapping[str, NamedTable] | None = None) -> DataFrame:
    """Run a Spark SQL statement that may write or read Weir tables.

    Spark hands ``CREATE TABLE``, ``MERGE INTO``, ``UPDATE`` and ``DELETE`` to no Python data source. Here
    they are recognised and run as writes by Weir, with its guarantees: durable when the call returns,
    evaluated at their position in the log. Spark runs queries, over the tables as they are when rows are
    first requested, or in a past state: ``FROM flights VERSION AS OF 'a tag'``, or a token, or ``TIMESTAMP AS
    OF '2026-01-31 12:00:00+01:00'``. Other statements are passed to Spark.

    ``MERGE INTO`` compares the primary key with columns of the source. Conditions on the source choose
    between clauses; the last ``WHEN MATCHED`` may also have a condition on the table's row, which is
    evaluated with the write: ``WHEN MATCHED AND t.version < s.version THEN UPDATE SET *``. The executors
    write whole rows and deletes; other rows go through this process, as in the write mode ``patch``. Rows of
    one shard become visible together.

    Parameters
    ----------
    spark : SparkSession
        A session that knows the format (:func:`register`).
    statement : str
        One statement.
    tables : mapping of str to Table, str or Path, optional
        The tables that names in the statement stand for; names are case-insensitive. Without a name, write
        the path of a table: ``weir.`s3://bucket/table```.

    Returns
    -------
    DataFrame
        The rows of a query. For a write, one row with ``num_affected_rows``, the number of rows written and
        keys deleted; a ``MERGE INTO`` without a condition on the table's row also counts keys that did not
        exist.

    Raises
    ------
    UnsupportedError
        If a statement on a Weir table is not supported; the message says why, and what to do.
    QueryError
        If it is not exactly one statement, or a name is ambiguous.
    SchemaError, FilterError, KeyValueError
        If columns, expressions or keys do not fit. Nothing is written.

    Examples
    --------
    >>> sql(spark, "DELETE FROM flights WHERE delay IS NULL", {"flights": table})  # doctest: +SKIP
    DataFrame[num_affected_rows: bigint]
    """
    try:
        statement.encode()
        return _run(spark, statement, NamedTables(tables or {}))
    except UnicodeEncodeError:
        raise QueryError("the statement holds half of a character", where="weir.spark.sql") from None
    except RecursionError:
        raise _too_deep() from None
    except WeirError:
        raise  # its message may show values in which such a sign occurs
    except Exception as error:
        if any(sign in str(error) for sign in _TOO_DEEP_FOR_SPARK):
            raise _too_deep() from error
        raise


def _too_deep() -> QueryError:
    return QueryError(
        "the statement is nested too deeply",
        where="weir.spark.sql",
        hint="Write values as a list, as in id IN (1, 2, 3), and leave out parentheses that say nothing",
    )


def _run(spark: SparkSession, statement: str, known: NamedTables) -> DataFrame:
    begin = _COMMENTS.sub("", statement, count=1)
    first = begin.partition(" ")[0].partition("\n")[0].upper()
    if not first.startswith(_PARSED):
        _refuse_others(first, statement, known)
        return spark.sql(statement)
    parsed = _parse(statement)
    if isinstance(parsed, exp.Create) and is_of_weir(parsed):
        create_table(parsed, known)
        return _counted(spark, 0)
    if isinstance(parsed, _WRITES) and known.place(_target(parsed)) is not None:
        return _counted(spark, _write(spark, parsed, known))
    if not list(known.of(parsed)):
        return spark.sql(statement)
    return spark.sql(known.readable(spark, parsed).sql(PassedOn))


def _parse(statement: str) -> exp.Expression:
    try:
        found = [one for one in sqlglot.parse(statement, read=PassedOn) if one is not None]
    except SqlglotError as error:
        said = " ".join(str(error).split())
        raise QueryError(f"the statement cannot be read: {said:.400}", where="weir.spark.sql") from error
    if len(found) != 1:
        raise QueryError(f"one statement at a time, and these are {len(found)}", where="weir.spark.sql")
    (one,) = found
    assert isinstance(one, exp.Expression)
    return one


def _target(statement: exp.Expression) -> object:
    """Return the target of a statement."""
    if isinstance(statement, exp.MultitableInserts):
        statement = statement.expressions[0]
    return _inserted(statement) if isinstance(statement, exp.Insert) else statement.this


def _write(spark: SparkSession, statement: exp.Expression, tables: NamedTables) -> int:
    _refuse_parts(statement)
    if isinstance(statement, exp.Merge):
        return merge_rows(spark, statement, tables)
    if isinstance(statement, exp.Insert):
        return _insert(spark, statement, tables)
    assert isinstance(statement, exp.Update | exp.Delete)
    return _change_by_filter(spark, statement, tables)


def _refuse_parts(statement: exp.Expression) -> None:
    """Refuse parts that would be ignored, so that other rows would be written than intended."""
    kind = type(statement).__name__.upper()
    if kind not in _PARTS:
        raise UnsupportedError(
            "weir.spark.sql cannot do FROM ... INSERT", where="FROM", hint="Write INSERT INTO ... SELECT"
        )
    found = [part for part, value in statement.args.items() if value and part not in _PARTS[kind]]
    if isinstance(statement, exp.Insert) and _inserted(statement).args.get("alias"):
        found.append("AS")
    for part in found:
        name = _PART_NAMES.get(part, part.strip("_").upper().replace("_", " "))
        raise UnsupportedError(
            f"weir.spark.sql cannot do {kind} with {name}",
            where=name,
            hint=_INSTEAD.get(kind, "Join tables with MERGE INTO"),
        )


def _refuse_others(first: str, statement: str, tables: NamedTables) -> None:
    """Refuse unparsed statements that would write to a Weir table, recognised by their words."""
    words = {word.strip("`;,()").lower() for word in statement.split()}
    names = {name.lower() for name in tables.given}
    if words & names or any(word.startswith("weir.`") for word in words):
        raise UnsupportedError(
            f"weir.spark.sql cannot do {first} on a table of Weir's", where=first, hint=_OTHERS.get(first)
        )


def _counted(spark: SparkSession, count: int) -> DataFrame:
    return spark.createDataFrame([(count,)], f"{_COUNT} BIGINT")


def _change_by_filter(spark: SparkSession, statement: exp.Update | exp.Delete, tables: NamedTables) -> int:
    table = tables.changed(statement.this)
    names = {statement.this.alias_or_name.lower(), statement.this.name.lower()}
    evaluate = evaluated_by(spark)
    where = statement.args.get("where")
    text = "true" if where is None else _own(where.this, names, table.schema, evaluate)
    if isinstance(statement, exp.Delete):
        done = table.delete(where=text)
    else:
        new: dict[str, str] = {}
        for one in statement.expressions:
            name = _set_column(one.this, names, table.schema)
            if name in new:
                raise QueryError(f"column {name!r} is set twice", where=name)
            new[name] = _own(one.expression, names, table.schema, evaluate, of=name)
        done = table.update(text, new)
    return done.rows if done.done is None else done.done.num_rows


def _set_column(column: exp.Expression, names: set[str], schema: pa.Schema) -> str:
    """Return the column of a table that SET names."""
    parts = [part.name for part in column.parts] if isinstance(column, exp.Column) else []
    if len(parts) == 2 and parts[0].lower() in names:
        del parts[0]
    if len(parts) != 1:
        raise UnsupportedError(
            f"weir.spark.sql cannot set {column.sql('spark')}", where="SET", hint="Set a whole column"
        )
    found = own_name(parts[0], schema.names)
    if found is None:
        raise SchemaError(f"the table has no column {column.name!r}", where=column.name)
    return found


def _own(
    expression: exp.Expression, names: set[str], schema: pa.Schema, evaluate: Evaluate, of: str | None = None
) -> str:
    """Return an expression over the columns of a table in Weir's syntax."""
    if expression.find(exp.Select):
        raise UnsupportedError(
            "weir.spark.sql cannot do a query inside UPDATE or DELETE", where="SELECT", hint="Use MERGE INTO"
        )

    def own(column: exp.Column) -> exp.Expression:
        parts = list(column.parts)
        if len(parts) > 1 and parts[0].name.lower() in names:
            del parts[0]
        name = own_name(parts[0].name, schema.names)
        if name is None:
            raise FilterError(f"the table has no column {column.sql('spark')}", where=column.sql("spark"))
        found = [exp.to_identifier(name, quoted=True), *parts[1:]]
        # The names of a column and of the fields of it, the innermost first.
        return exp.Column(**dict(zip(("this", "table", "db", "catalog"), reversed(found), strict=False)))

    return condition_text(with_own_fields(renamed(expression, own), schema), schema, evaluate, of=of)


def _inserted(statement: exp.Insert) -> exp.Table:
    described = statement.this
    found = described.this if isinstance(described, exp.Schema) else described
    return found if isinstance(found, exp.Table) else exp.Table()


def _query(statement: exp.Insert) -> exp.Expression:
    """Return the query whose rows are inserted, including a WITH before INSERT."""
    source = statement.args.get("source")
    query = exp.select("*").from_(source) if source else statement.expression.copy()
    if statement.args.get("with_"):
        if query.args.get("with_"):
            raise UnsupportedError(
                "weir.spark.sql cannot do INSERT with two WITH", where="WITH", hint="Write one, behind INTO"
            )
        query.set("with_", statement.args["with_"].copy())
    return query


def _insert(spark: SparkSession, statement: exp.Insert, tables: NamedTables) -> int:
    table = tables.changed(_inserted(statement))
    rows = spark.sql(tables.readable(spark, _query(statement)).sql(PassedOn))
    named = statement.this.expressions if isinstance(statement.this, exp.Schema) else ()
    names = [one.name for one in named] or table.schema.names
    if len(names) != len(rows.columns):
        raise SchemaError(
            f"{len(rows.columns)} values for {len(names)} columns: {', '.join(names)}", where="INSERT"
        )
    own: list[str] = []
    for name in names:
        found = own_name(name, table.schema.names)
        if found is None:
            raise SchemaError(f"the table has no column {name!r}", where=name)
        if found in own:
            raise QueryError(f"column {name!r} is named twice", where="INSERT")
        own.append(found)
    counted = Observation()
    named_rows = rows.toDF(*own)
    append(named_rows.observe(counted, functions.count(functions.lit(1)).alias(_COUNT)), table)
    return int(counted.get[_COUNT])
