"""Shard rules as users write them: ``weir.bucket("id", 8)`` and others.

Every constructor returns a :class:`ShardBy`; several make one shard spec with several fields::

    weir.create(uri, schema, primary_key=["site", "id"],
                shard_by=[weir.identity("site"), weir.bucket("id", 4)])

All versions of a row must reach the same shard, or an older one could overwrite a newer one in a merge
(Lance MemWAL spec, section "MemWAL Shard"). So the columns must be primary-key columns. A column outside
the key may be used with ``immutable=True``: the caller's **promise**, which nothing enforces, that a row
keeps its value of that column as long as its key exists. If the promise is broken, older versions of the
row can come back. Deletes on such a table need rows with that column, not keys alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from weir.errors import SchemaError, ShardingError
from weir.sharding.expression import Expression
from weir.sharding.promotion import plain_type
from weir.sharding.transforms import (
    Bucket,
    DatePart,
    Identity,
    MultiBucket,
    Transform,
    Truncate,
    Unsharded,
)

__all__ = ["ShardBy", "bucket", "day", "expression", "hour", "identity", "month", "multi_bucket"]
__all__ += ["truncate", "unsharded", "year"]


@dataclass(frozen=True, slots=True)
class ShardBy:
    """One shard value: a transform of columns. Made by :func:`bucket`, :func:`identity` and so on.

    Parameters
    ----------
    transform : Transform
        The transform of the columns.
    columns : tuple of str
        Names of the source columns.
    immutable : bool, default False
        The promise that rows never change their values of these columns.
    field_id : str, optional
        Name of the shard value in the shard spec; derived from the columns by default.
    """

    transform: Transform
    columns: tuple[str, ...]
    immutable: bool = False
    field_id: str | None = None

    def __post_init__(self) -> None:
        for column in self.columns:
            if not isinstance(column, str):
                raise ShardingError(f"a shard column is named by text, not by {column!r}")
        least, most = self.transform.columns_wanted
        if not least <= len(self.columns) <= most:
            raise ShardingError(
                f"{self.transform.describe(self.columns)} has {len(self.columns)} columns",
                hint=f"It takes at least {least}" if most > 1 else f"It takes {least}",
            )
        if len(set(self.columns)) != len(self.columns):
            raise ShardingError(f"{self.transform.describe(self.columns)} names a column twice")
        if self.field_id is not None and not self.field_id:
            raise ShardingError("the field_id of a shard value must not be empty")

    def __str__(self) -> str:
        return self.transform.describe(self.columns)

    def source_types(self, schema: pa.Schema) -> tuple[pa.DataType, ...]:
        """Return the types of the source columns, without dictionary encoding.

        Raises
        ------
        SchemaError
            The schema lacks a column, or has it twice.
        """
        return tuple(plain_type(_field(schema, column).type) for column in self.columns)

    def validate(self, schema: pa.Schema, primary_key: Sequence[str]) -> pa.DataType:
        """Check that a table can be sharded so, and return the type of the shard value.

        Parameters
        ----------
        schema : pyarrow.Schema
            The table's columns.
        primary_key : sequence of str
            The table's primary-key columns.

        Raises
        ------
        SchemaError
            The schema lacks a column.
        ShardingError
            The transform cannot take a column of that type, or rows could move between shards.

        Examples
        --------
        >>> import pyarrow as pa
        >>> schema = pa.schema([("id", pa.int64()), ("region", pa.string())])
        >>> bucket("id", 8).validate(schema, ["id"])
        DataType(int32)
        """
        result = self.transform.result_type(self.source_types(schema))
        outside = [column for column in self.columns if column not in primary_key]
        if outside and not self.immutable:
            raise ShardingError(
                f"{self} would let a row move to another shard when column {outside[0]!r} changes, "
                "and an older version of the row could then overwrite a newer one",
                where=outside[0],
                hint=f"Shard by primary-key columns ({', '.join(primary_key)}), or promise that the "
                "column never changes for a key with immutable=True",
            )
        return result


def identity(column: str, *, immutable: bool = False, field_id: str | None = None) -> ShardBy:
    """Give every value of a column a shard of its own. For columns with few values.

    Parameters
    ----------
    column : str
        Column of any scalar type.
    immutable : bool, default False
        Promise that a row's value of a column outside the primary key never changes.
    field_id : str, optional
        Name of the shard value in the shard spec.

    Examples
    --------
    >>> str(identity("region"))
    'identity(region)'
    """
    return ShardBy(Identity(), (column,), immutable, field_id)


def bucket(column: str, num_buckets: int, *, immutable: bool = False, field_id: str | None = None) -> ShardBy:
    """Spread rows evenly over a fixed number of shards by a hash of a column.

    Parameters
    ----------
    column : str
        Column of numbers, text, binary, dates or times.
    num_buckets : int
        Number of shards, 1 to 1024.
    immutable, field_id
        See :func:`identity`.

    Raises
    ------
    ShardingError
        The number of buckets is out of range.

    Examples
    --------
    >>> str(bucket("id", 8))
    'bucket(id, 8)'
    """
    return ShardBy(Bucket(_whole(num_buckets, "num_buckets")), (column,), immutable, field_id)


def multi_bucket(
    columns: Sequence[str], num_buckets: int, *, immutable: bool = False, field_id: str | None = None
) -> ShardBy:
    """Spread rows evenly over a fixed number of shards by a hash of several columns.

    Parameters
    ----------
    columns : sequence of str
        One or more columns; nulls are skipped.
    num_buckets : int
        Number of shards, 1 to 1024.
    immutable, field_id
        See :func:`identity`.

    Raises
    ------
    ShardingError
        The number of buckets is out of range.

    Examples
    --------
    >>> str(multi_bucket(["site", "id"], 16))
    'multi_bucket(site, id, 16)'
    """
    return ShardBy(MultiBucket(_whole(num_buckets, "num_buckets")), _columns(columns), immutable, field_id)


def truncate(column: str, width: int, *, immutable: bool = False, field_id: str | None = None) -> ShardBy:
    """Shard by the first characters of a text, or by ranges of a number.

    Parameters
    ----------
    column : str
        Column of text, integers, decimals or floats.
    width : int
        Number of characters; or the multiple to which numbers are rounded towards zero.
    immutable, field_id
        See :func:`identity`.

    Raises
    ------
    ShardingError
        The width is less than 1.

    Examples
    --------
    >>> str(truncate("name", 3))
    'truncate(name, 3)'
    """
    return ShardBy(Truncate(_whole(width, "width")), (column,), immutable, field_id)


def year(column: str, *, immutable: bool = False, field_id: str | None = None) -> ShardBy:
    """Give every year of a date or timestamp (in UTC) a shard of its own. See :func:`identity`."""
    return ShardBy(DatePart("year"), (column,), immutable, field_id)


def month(column: str, *, immutable: bool = False, field_id: str | None = None) -> ShardBy:
    """Shard by the month of the year, 1 to 12, in UTC. See :func:`identity`.

    The same months of different years share a shard; combine with :func:`year` to separate them.
    """
    return ShardBy(DatePart("month"), (column,), immutable, field_id)


def day(column: str, *, immutable: bool = False, field_id: str | None = None) -> ShardBy:
    """Shard by the day of the month, 1 to 31, in UTC. See :func:`identity`.

    The same days of different months share a shard; combine with :func:`year` and :func:`month` to separate
    them.
    """
    return ShardBy(DatePart("day"), (column,), immutable, field_id)


def hour(column: str, *, immutable: bool = False, field_id: str | None = None) -> ShardBy:
    """Shard by the hour of the day, 0 to 23, in UTC. See :func:`identity`."""
    return ShardBy(DatePart("hour"), (column,), immutable, field_id)


def expression(
    sql: str,
    columns: Sequence[str],
    *,
    result_type: str,
    immutable: bool = False,
    field_id: str | None = None,
) -> ShardBy:
    """Shard by a DataFusion SQL expression.

    It must depend on its columns alone: no ``now()``, no ``random()``, no subquery. It runs a query on every
    write, which costs several times as much as the other transforms.

    Parameters
    ----------
    sql : str
        The expression over ``col0``, ``col1``, ..., which stand for ``columns`` in their order.
    columns : sequence of str
        The source columns.
    result_type : str
        The exact type of the expression, such as ``"int64"``.
    immutable, field_id
        See :func:`identity`.

    Raises
    ------
    ShardingError
        The expression is empty or the type unknown. The rest is checked against the table's schema.

    Examples
    --------
    >>> str(expression("col0 % 7", ["id"], result_type="int64"))
    "expression('col0 % 7', id)"
    """
    return ShardBy(Expression(sql, result_type), _columns(columns), immutable, field_id)


def unsharded() -> ShardBy:
    """Keep all rows in one shard.

    Examples
    --------
    >>> str(unsharded())
    'unsharded()'
    """
    return ShardBy(Unsharded(), ())


def _field(schema: pa.Schema, column: str) -> pa.Field:
    found = schema.get_all_field_indices(column)
    if len(found) == 1:
        return schema.field(found[0])
    if found:
        raise SchemaError(f"column {column!r} occurs {len(found)} times", where=column)
    raise SchemaError(
        f"there is no column {column!r} to shard by",
        where=column,
        hint=f"The columns are {', '.join(schema.names)}",
    )


def _columns(columns: Sequence[str]) -> tuple[str, ...]:
    if isinstance(columns, str | Mapping):
        raise ShardingError(f"the shard columns are a list of names, not {columns!r}")
    return tuple(columns)


def _whole(number: int, name: str) -> int:
    if isinstance(number, bool) or not isinstance(number, int):
        raise ShardingError(f"{name} must be a whole number, not {number!r}", where=name)
    return number
