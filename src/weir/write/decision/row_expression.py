"""SQL over one row, with DataFusion's meaning: conditions of writes, and values of updates.

Column names mean the existing row; ``new.<column>`` means the row to write. Names are case-sensitive, as
everywhere in Weir.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from datafusion import DataFrame, Expr

from weir.errors import FilterError
from weir.schema.relabel import nullable_inside, nulls_inside
from weir.schema.sql_nesting import on_a_deep_stack, refuse_unsafe
from weir.sharding.sql import parse, session, why_not_of_a_row
from weir.write.decision.checked_arithmetic import WrappedError, refuse_wrapped

__all__ = ["NEW", "RowExpression", "condition"]

NEW = "new"
"""The name of the row to write, in conditions."""


@dataclass(frozen=True, slots=True)
class RowExpression:
    """An expression over a row. Made by :meth:`of`, which checks it.

    Parameters
    ----------
    text : str
        The SQL.
    schema : Schema
        The columns of the table that it may name, without field ids.
    has_new : bool
        Whether it may refer to the row to write.
    where : str
        What it was passed as, for errors.

    Examples
    --------
    >>> schema = pa.schema([("id", pa.int64()), ("version", pa.int64())])
    >>> newer = RowExpression.of("version < new.version", schema, has_new=True, where="condition")
    >>> present = pa.table({"id": [1, 2], "version": [7, 7]}, schema=schema)
    >>> rows = pa.table({"id": [1, 2], "version": [8, 6]}, schema=schema)
    >>> newer.evaluate(present, rows).to_pylist()
    [True, False]
    """

    text: str
    schema: pa.Schema
    has_new: bool
    where: str

    @classmethod
    def of(cls, text: str, schema: pa.Schema, *, has_new: bool, where: str) -> RowExpression:
        """Return a checked expression.

        Raises
        ------
        FilterError
            If it does not parse, names unknown columns, or does not depend on a single row alone.
        """
        if not isinstance(text, str) or not text.strip():
            raise FilterError(f'it is SQL text such as "version < 7", got {text!r}', where=where)
        made = cls(text, _plain(schema), has_new, where)
        if has_new and NEW in schema.names and NEW in text:
            raise FilterError(
                f"the table has a column {NEW!r}, and {NEW}.<column> would be the row to be written",
                where=where,
                hint="Rename the column: table.alter(rename=...)",
            )
        made._compiled()
        return made

    @property
    def columns(self) -> list[str]:
        """The columns of the present row that it may name; at least one."""
        return _named(self.text, self.schema)

    @property
    def is_of_numbers(self) -> bool:
        """Whether all columns that it may name are numbers."""
        kinds = [self.schema.field(name).type for name in self.columns]
        return all(
            pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
            for kind in kinds
        )

    @property
    def type(self) -> pa.DataType:
        """Type of its values."""
        return _type_of(self)

    def evaluate(self, present: pa.Table, new: pa.Table | None = None) -> pa.Array:
        """Return its value for every row.

        Parameters
        ----------
        present : Table
            The rows as they are; at least :attr:`columns`.
        new : Table, optional
            The rows to write, aligned with them.

        Raises
        ------
        FilterError
            If it has no value for some row: a division by zero, text that is no number, a number that its
            type has no room for.
        """
        frame, expression = self._compiled()
        schema = frame.schema()
        columns = [_flat(column) for column in nulls_inside(present.select(self.columns)).columns]
        if self.has_new and NEW in schema.names:
            assert new is not None
            fields = list(schema.field(NEW).type)
            values = map(_flat, nulls_inside(new.select([field.name for field in fields])).columns)
            columns.append(pa.StructArray.from_arrays(list(values), fields=fields))
        batch = pa.RecordBatch.from_arrays(columns, schema.names)
        try:
            batches = session().read_batch(batch).select(expression.alias("value")).collect()
            refuse_wrapped(expression, batch)
        except WrappedError as error:
            raise FilterError(
                f"{self.text!r} fails on a row: {error}",
                where=self.where,
                hint="Guard it with CASE, or cast part of it to a wider type; its shard took nothing",
            ) from error
        except Exception as error:  # DataFusion raises nothing more specific
            raise FilterError(
                f"{self.text!r} fails on a row: {_reason(error)}",
                where=self.where,
                hint="Guard it, for instance with nullif() or try_cast(); its shard took nothing",
            ) from error
        if not batches:
            return pa.nulls(0, self.type)
        values = pa.chunked_array([part.column(0) for part in batches]).combine_chunks()
        if pa.types.is_decimal(values.type):
            self._refuse_too_many_digits(values)
        return values

    def _refuse_too_many_digits(self, values: pa.Array) -> None:
        """Refuse decimals that have more digits than their type, as DataFusion makes them."""
        try:
            values.validate(full=True)
        except pa.ArrowInvalid as error:
            raise FilterError(
                f"{self.text!r} fails on a row: {error}",
                where=self.where,
                hint="Cast part of it to a type with more digits; its shard took nothing",
            ) from error

    def holds(self, present: pa.Table, new: pa.Table | None = None) -> npt.NDArray[np.bool_]:
        """Return for which rows it is true; null is not."""
        if not present.num_rows:
            return np.zeros(0, dtype=bool)
        values = pc.fill_null(self.evaluate(present, new).cast(pa.bool_()), False)
        found: npt.NDArray[np.bool_] = values.to_numpy(zero_copy_only=False)
        return found

    def _compiled(self) -> tuple[DataFrame, Expr]:
        return _compiled(self.text, self.schema, self.has_new, self.where)


def condition(text: str, schema: pa.Schema, *, has_new: bool) -> RowExpression:
    """Return a checked condition.

    Raises
    ------
    FilterError
        As :meth:`RowExpression.of`; or if it is no boolean.
    """
    made = RowExpression.of(text, schema, has_new=has_new, where="condition")
    if made.type not in (pa.bool_(), pa.null()):
        raise FilterError(
            f"the condition {text!r} is of type {made.type}, and must be true or false",
            where="condition",
            hint='Compare it with something, as in "version < 7"',
        )
    return made


def _flat(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _named(text: str, schema: pa.Schema) -> list[str]:
    """Return the columns that a text may name: too many cost a copy, too few would be an error."""
    return [name for name in schema.names if name in text] or schema.names[:1]


def _plain(schema: pa.Schema) -> pa.Schema:
    return nullable_inside(pa.schema([pa.field(field.name, field.type) for field in schema]))


def _reason(error: Exception) -> str:
    return str(error).removeprefix("DataFusion error: ").split("\nValid fields are")[0]


@lru_cache(maxsize=256)
def _type_of(expression: RowExpression) -> pa.DataType:
    frame, compiled = expression._compiled()
    return frame.select(compiled.alias("value")).schema().field(0).type


@lru_cache(maxsize=256)
def _compiled(text: str, schema: pa.Schema, has_new: bool, where: str) -> tuple[DataFrame, Expr]:
    depth = refuse_unsafe(text, f"the {where}", where=where, error=FilterError)
    return on_a_deep_stack(depth, _compile, text, schema, has_new, where)


def _compile(text: str, schema: pa.Schema, has_new: bool, where: str) -> tuple[DataFrame, Expr]:
    named = _named(text, schema)
    fields: Sequence[pa.Field] = [schema.field(name) for name in named]
    if has_new and NEW in text:
        fields = [*fields, pa.field(NEW, pa.struct([schema.field(name) for name in named]))]
    frame = session().read_batch(pa.RecordBatch.from_pylist([], schema=pa.schema(fields)))
    try:
        expression = parse(frame, text)
        wrong = why_not_of_a_row(expression)
        if wrong is None:
            frame.select(expression.alias("value")).schema()
    except RecursionError as error:
        raise FilterError(
            f"{text!r:.200} joins too many parts by AND and OR",
            where=where,
            hint="Write values as a list, as in id IN (1, 2, 3)",
        ) from error
    except Exception as error:  # DataFusion raises nothing more specific
        also = f", each of them also as {NEW}.<column>" if has_new else ""
        raise FilterError(
            f"{text!r} cannot be used: {_reason(error)}",
            where=where,
            hint=f"The columns are {', '.join(schema.names)}{also}",
        ) from error
    if wrong is not None:
        raise FilterError(f"{text!r} is not a function of one row: {wrong}", where=where)
    return frame, expression
