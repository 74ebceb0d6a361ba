"""A shard spec bound to the current columns of a table, which computes shard values of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from weir.errors import ShardingError
from weir.format.index_details import ShardFieldSpec, ShardSpec
from weir.sharding.expression import Expression
from weir.sharding.promotion import conform, is_promotion, plain_type
from weir.sharding.transforms import Transform, transform_named
from weir.sharding.type_names import parse_type, type_name

__all__ = ["IMMUTABLE", "SOURCE_TYPES", "BoundField", "Source", "bind", "recorded_types", "transform_of"]

SOURCE_TYPES = "weir:source_types"
"""Parameter that records the types of the source columns when the spec was made, parted by semicolons."""
IMMUTABLE = "weir:immutable"
"""Parameter that records the promise that rows never change their values of the source columns."""


@dataclass(frozen=True, slots=True)
class Source:
    """A source column of a shard field.

    Parameters
    ----------
    name : str or None
        The column's name; None if the table no longer has it, and it reads as null (spec rule "column
        removal resistant").
    type : pyarrow.DataType
        Its type when the spec was made.
    """

    name: str | None
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class BoundField:
    """One field of a shard spec, able to compute its values.

    Parameters
    ----------
    field_id : str
        The field.
    transform : Transform
        What it does with its source columns.
    sources : tuple of Source
        The source columns.
    type : pyarrow.DataType
        Type of the shard value.
    """

    field_id: str
    transform: Transform
    sources: tuple[Source, ...]
    type: pa.DataType

    @property
    def source_types(self) -> tuple[pa.DataType, ...]:
        """The types of the source columns when the spec was made."""
        return tuple(source.type for source in self.sources)

    def column(self, source: Source, column: pa.Array) -> pa.Array:
        """Return the values of a source column as the transform takes them.

        Raises
        ------
        ShardingError
            A value does not fit the type the shards were made for.
        """
        if column.type == source.type:
            return column
        if self.transform.hashes and _both_numbers(column.type, source.type):
            return column
        return conform(column, source.type, name=source.name or "")

    def evaluate(self, columns: Sequence[pa.Array | None], rows: int) -> pa.Array:
        """Return the shard value of every row.

        Parameters
        ----------
        columns : sequence of pyarrow.Array or None
            The source columns as in the table; None for a missing one, which reads as null.
        rows : int
            Number of rows.

        Raises
        ------
        ShardingError
            A value does not fit, or a custom expression fails.
        """
        taken = [
            pa.nulls(rows, source.type) if column is None else self.column(source, column)
            for source, column in zip(self.sources, columns, strict=True)
        ]
        return self.transform.evaluate(taken, self.source_types)


def bind(spec: ShardSpec, schema: pa.Schema, field_ids: Mapping[str, int]) -> tuple[BoundField, ...]:
    """Find the source columns of a shard spec in a table.

    Parameters
    ----------
    spec : ShardSpec
        The spec.
    schema : pyarrow.Schema
        The table's columns as they are now.
    field_ids : mapping of str to int
        Lance field id of each of them.

    Raises
    ------
    ShardingError
        The spec has a transform, a type or an expression that is not known here, or a column has changed
        to a type its shard values cannot be computed from.
    """
    names = {field_id: name for name, field_id in field_ids.items()}
    return tuple(_bind(field, schema, names) for field in spec.fields)


def transform_of(field: ShardFieldSpec) -> Transform:
    """Return the transform or expression of a field.

    Raises
    ------
    ShardingError
        It is unknown, or has neither or both.
    """
    if (field.transform is None) == (field.expression is None):
        raise ShardingError(f"shard field {field.field_id!r} must have a transform or an expression")
    if field.expression is not None:
        return Expression(field.expression, type_name(parse_type(field.result_type)))
    assert field.transform is not None
    return transform_named(field.transform, field.parameters)


def recorded_types(field: ShardFieldSpec) -> tuple[pa.DataType, ...] | None:
    """Return the source types a field records, None if it was not made by Weir.

    Raises
    ------
    ShardingError
        They are malformed.
    """
    text = field.parameters.get(SOURCE_TYPES)
    if text is None:
        return None
    types = tuple(parse_type(name) for name in text.split(";") if name)
    if len(types) != len(field.source_ids):
        raise ShardingError(
            f"shard field {field.field_id!r} records {len(types)} source types "
            f"for {len(field.source_ids)} columns"
        )
    return types


def _bind(field: ShardFieldSpec, schema: pa.Schema, names: Mapping[int, str]) -> BoundField:
    transform = transform_of(field)
    types = recorded_types(field)
    result = parse_type(field.result_type)
    sources = []
    for number, source_id in enumerate(field.source_ids):
        name = names.get(source_id)
        if name is None or schema.get_field_index(name) < 0:
            # Without a record the result type is the nearest thing to the type of the lost column.
            sources.append(Source(None, types[number] if types else result))
            continue
        current = plain_type(schema.field(name).type)
        recorded = types[number] if types else current
        if not is_promotion(recorded, current):
            raise ShardingError(
                f"column {name!r} is now {current}, and shard values are computed from {recorded}",
                where=name,
                hint="Change the column back, or to a wider type of the same kind",
            )
        sources.append(Source(name, recorded))
    least, most = transform.columns_wanted
    if not least <= len(sources) <= most:
        raise ShardingError(
            f"shard field {field.field_id!r} has {len(sources)} source columns, "
            f"which {transform.describe([])} cannot take"
        )
    return BoundField(field.field_id, transform, tuple(sources), result)


def _both_numbers(one: pa.DataType, other: pa.DataType) -> bool:
    return bool(
        (pa.types.is_integer(one) and pa.types.is_integer(other))
        or (pa.types.is_floating(one) and pa.types.is_floating(other))
    )
