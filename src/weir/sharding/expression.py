"""Custom shard expressions: DataFusion SQL over ``col0``, ``col1``, ...

Lance MemWAL spec, section "Shard Expression". An expression must be a function of its columns alone: what
depends on time, chance or other rows is refused when the shard spec is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import pyarrow as pa
from datafusion import DataFrame, Expr

from weir.errors import ShardingError
from weir.schema.sql_nesting import on_a_deep_stack, refuse_unsafe
from weir.sharding.promotion import plain_type
from weir.sharding.sql import parse, session, why_unstable
from weir.sharding.transforms import Transform, one_zero_one_nan
from weir.sharding.type_names import parse_type, type_name

__all__ = ["Expression"]


@dataclass(frozen=True, slots=True)
class Expression(Transform):
    """A shard value computed by a SQL expression.

    Parameters
    ----------
    sql : str
        A DataFusion SQL expression over ``col0``, ``col1``, ... in the order of the source columns.
    declared_type : str
        Type of the shard value, such as ``"int64"``; the expression must have exactly this type.

    Examples
    --------
    >>> import pyarrow as pa
    >>> Expression("col0 % 7", "int64").evaluate([pa.array([8, None, -1])], [pa.int64()]).to_pylist()
    [1, None, -1]
    """

    sql: str
    declared_type: str

    name: ClassVar[None] = None

    def __post_init__(self) -> None:
        parse_type(self.declared_type)
        if not self.sql.strip():
            raise ShardingError(
                "the shard expression is empty", hint="Write SQL over col0, col1, ..., such as col0 % 7"
            )

    @property
    def columns_wanted(self) -> tuple[int, int]:
        """One column or more."""
        return 1, 1_000

    def describe(self, columns: Sequence[str]) -> str:
        """Return the call that makes the expression."""
        return f"expression({self.sql!r}, {', '.join(columns)})"

    @property
    def parameters(self) -> Mapping[str, str]:
        """None; the expression is a part of the shard spec itself."""
        return {}

    def result_type(self, source_types: Sequence[pa.DataType]) -> pa.DataType:
        """Return the declared type, after checking the expression against the source types.

        Raises
        ------
        ShardingError
            The expression does not parse, is not deterministic and stateless, has another type than
            declared, or fails on nulls.
        """
        declared = parse_type(self.declared_type)
        frame, expression = _compiled(self.sql, tuple(source_types))
        actual = plain_type(frame.select(expression.alias("value")).schema().field(0).type)
        if actual != declared:
            raise ShardingError(
                f"shard expression {self.sql!r} is of type {_name(actual)}, not {self.declared_type}",
                hint=f"Declare result_type={_name(actual)!r}, or cast it in the expression",
            )
        self.evaluate([pa.nulls(1, source_type) for source_type in source_types], source_types)
        return declared

    def evaluate(self, columns: Sequence[pa.Array], source_types: Sequence[pa.DataType]) -> pa.Array:
        """Return the shard value of every row.

        Raises
        ------
        ShardingError
            The expression fails on a row: a division by zero, text that is not a number, ...
        """
        _, expression = _compiled(self.sql, tuple(source_types))
        declared = parse_type(self.declared_type)
        batch = pa.RecordBatch.from_arrays(list(columns), _names(len(columns)))
        try:
            batches = session().read_batch(batch).select(expression.alias("value")).collect()
        except Exception as error:  # DataFusion raises nothing more specific
            raise ShardingError(
                f"shard expression {self.sql!r} fails on a row: {_reason(error)}",
                hint="Guard it, for instance with nullif() or try_cast()",
            ) from error
        values = pa.chunked_array([part.column(0) for part in batches], type=None) if batches else None
        if values is None:
            return pa.nulls(0, declared)
        return one_zero_one_nan(values.combine_chunks().cast(declared))


def _names(count: int) -> list[str]:
    return [f"col{number}" for number in range(count)]


def _name(data_type: pa.DataType) -> str:
    try:
        return type_name(data_type)
    except ShardingError:
        return str(data_type)


def _reason(error: Exception) -> str:
    return str(error).removeprefix("DataFusion error: ")


@lru_cache(maxsize=256)
def _compiled(sql: str, source_types: tuple[pa.DataType, ...]) -> tuple[DataFrame, Expr]:
    """Return an empty frame of the source columns, and the expression over it."""
    depth = refuse_unsafe(sql, "the shard expression", where="expression", error=ShardingError)
    return on_a_deep_stack(depth, _compile, sql, source_types)


def _compile(sql: str, source_types: tuple[pa.DataType, ...]) -> tuple[DataFrame, Expr]:
    names = _names(len(source_types))
    columns = [pa.nulls(0, source_type) for source_type in source_types]
    frame = session().read_batch(pa.RecordBatch.from_arrays(columns, names))
    try:
        expression = parse(frame, sql)
    except ValueError as error:
        raise ShardingError(
            f"shard expression {sql!r} is not valid SQL over {', '.join(names)}", hint=str(error)
        ) from error
    unstable = why_unstable(expression)
    if unstable is not None:
        raise ShardingError(
            f"shard expression {sql!r} is not deterministic and stateless: {unstable}",
            hint="A row must always get the same shard value",
        )
    try:
        frame.select(expression.alias("value")).schema()
    except Exception as error:  # DataFusion raises nothing more specific
        raise ShardingError(
            f"shard expression {sql!r} does not fit its columns "
            f"({', '.join(_name(source_type) for source_type in source_types)})",
            hint=_reason(error),
        ) from error
    return frame, expression
