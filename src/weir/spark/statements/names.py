"""Table names in statements: Weir tables by a given name or by path."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp

from weir.errors import QueryError, UnsupportedError
from weir.spark.options import TableLocation
from weir.spark.worker_errors import worker_error
from weir.storage.location import parse_location
from weir.table.table import Table

__all__ = ["NamedTable", "NamedTables"]

_FORMAT = "weir"

NamedTable: TypeAlias = "Table | str | Path"
"""An open table, or the location of one."""


@dataclass(frozen=True, slots=True)
class NamedTables:
    """Resolves the names in statements.

    Parameters
    ----------
    given : mapping of str to Table, str or Path
        By name, as used in statements; case-insensitive.
    _opened : dict of str to Table
        By URI, the tables opened for the statement.
    """

    given: Mapping[str, NamedTable]
    _opened: dict[str, Table] = field(default_factory=dict)

    def place(self, name: object) -> NamedTable | None:
        """Return the table that a name in a statement stands for; None if it is not a Weir table."""
        if not isinstance(name, exp.Table):
            # As in DELETE t, where FROM is missing: Spark says what is wrong.
            return None
        if name.db.lower() == _FORMAT and not name.catalog:
            return str(name.name)
        if name.db or name.catalog:
            return None
        known = {text.lower(): place for text, place in self.given.items()}
        return known.get(name.name.lower())

    def table(self, name: exp.Table) -> Table:
        """Open the table that a name stands for.

        Raises
        ------
        QueryError
            If the name does not stand for a Weir table.
        TableNotFoundError
            If there is none.
        """
        place = self.place(name)
        if place is None:
            raise QueryError(
                f"{name.sql('spark')} is no table of Weir's",
                where=name.sql("spark"),
                hint="Name it in the argument tables, or write its path: weir.`s3://bucket/table`",
            )
        if isinstance(place, Table):
            return place
        uri = parse_location(place).uri
        if uri not in self._opened:
            self._opened[uri] = TableLocation(uri).open()
        return self._opened[uri]

    def changed(self, name: exp.Table) -> Table:
        """Open the table that a statement changes.

        Raises
        ------
        QueryError, TableNotFoundError
            As :meth:`table`.
        UnsupportedError
            If the statement refers to a part of the table or a past state of it.
        """
        for part, value in name.args.items():
            if value and part not in ("this", "db", "catalog", "alias"):
                raise UnsupportedError(
                    f"weir.spark.sql cannot change {name.sql('spark')}", where=name.sql("spark")
                )
        return self.table(name)

    def of(self, statement: exp.Expression) -> Iterator[exp.Table]:
        """Yield the places where a statement names Weir tables, except names hidden by a WITH."""
        for name in statement.find_all(exp.Table):
            if self.place(name) is not None and (name.db or not _is_hidden(name)):
                yield name

    def readable(self, spark: SparkSession, statement: exp.Expression) -> exp.Expression:
        """Return a statement for Spark that reads Weir tables through views.

        Raises
        ------
        UnsupportedError
            If the state of a table is given by an expression.
        """
        statement = statement.copy()
        for name in list(self.of(statement)):
            table = self.table(name)
            at = _state(name)
            of = table.uri if at is None else f"{at} {table.uri}"
            view = f"weir_{hashlib.sha256(of.encode()).hexdigest()[:24]}"
            read(spark, table, at).createOrReplaceTempView(view)
            if name.args.get("alias") is None:
                name.set("alias", exp.TableAlias(this=exp.to_identifier(name.name, quoted=True)))
            # What else belongs to a name stays: a sample, a pivot, what is joined to it.
            for part, value in {"this": exp.to_identifier(view), "db": None, "version": None}.items():
                name.set(part, value)
        return statement


def _is_hidden(name: exp.Table) -> bool:
    """Whether a name stands for a query of a WITH around it. Such a query sees only those before it."""
    inside: exp.Expr = name
    while (above := inside.parent) is not None:
        queries: list[exp.Expr] = []
        if isinstance(above, exp.With):
            queries = above.expressions[: (inside.index or 0) + bool(above.recursive)]
        elif (found := above.args.get("with_")) is not None and found is not inside:
            queries = found.expressions
        if any(one.alias.lower() == name.name.lower() for one in queries):
            return True
        inside = above
    return False


def _state(name: exp.Table) -> str | None:
    """Return the state named after VERSION AS OF or TIMESTAMP AS OF."""
    version = name.args.get("version")
    if version is None:
        return None
    if version.args.get("kind") != "AS OF" or not isinstance(version.expression, exp.Literal):
        raise UnsupportedError(
            f"weir.spark.sql cannot read {name.sql('spark')}",
            where=name.sql("spark"),
            hint="Write VERSION AS OF and a token or a tag as text, or TIMESTAMP AS OF "
            "'2026-01-31 12:00:00+01:00'",
        )
    return str(version.expression.name)


def options_of(table: Table) -> dict[str, str]:
    """Return the data source options for a table."""
    store = table.internals.store
    return {"path": store.uri, **{f"storage.{name}": value for name, value in store.storage_options.items()}}


def read(spark: SparkSession, table: Table, at: str | None = None) -> DataFrame:
    """Return the rows of a table, now or in a named state."""
    options = options_of(table) if at is None else {**options_of(table), "at": at}
    return spark.read.format(_FORMAT).options(**options).load()


def append(rows: DataFrame, table: Table) -> None:
    """Have executors write rows to a table.

    Raises
    ------
    WeirError
        What the data source has raised, on the driver or in a task.
    """
    try:
        rows.write.format(_FORMAT).mode("append").options(**options_of(table)).save()
    except Exception as error:
        own = worker_error(str(error))
        if own is None:
            raise
        raise own from error
