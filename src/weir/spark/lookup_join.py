"""Lookup joins: a data frame enriched with rows of a table by point reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from weir.errors import KeyValueError, OptionError, SchemaError
from weir.format.plain_keys import stored_keys, stored_type
from weir.rows.cast import is_text
from weir.spark.options import TableLocation
from weir.spark.types import SparkBatches, selected, spark_schema
from weir.table.table import Table

__all__ = ["lookup_join"]

_ROW = "__row"
_AT = "__at"


def lookup_join(
    stream: DataFrame,
    table: Table,
    key: str | Sequence[str],
    columns: Sequence[str] | None = None,
    *,
    how: Literal["left", "inner"] = "left",
) -> DataFrame:
    """Join each row of a data frame with the row of a table that has its key.

    Executors look up keys (:meth:`weir.Table.get`), some thousands at a time: the table is neither read as a
    whole nor shuffled, and each lookup sees everything acknowledged before it, including unmerged rows. A
    task that Spark runs again may therefore find newer rows than the first time.

    Parameters
    ----------
    stream : DataFrame
        A data frame.
    table : Table
        The table, with a primary key, at a location that executors can reach.
    key : str or sequence of str
        Its columns with the primary key of the table, in the order of the key columns. A null matches no row.
    columns : sequence of str, optional
        Columns of the table to add, in order. Default: all but the primary key.
    how : str
        ``"left"``: rows without a match are kept, with nulls. ``"inner"``: they are dropped. Default
        ``"left"``.

    Returns
    -------
    DataFrame
        The columns of the data frame, then those of the table.

    Raises
    ------
    KeyValueError
        If the data lacks a key column, the number of columns differs from that of the primary key, or the
        table is append-only, so that nothing can be looked up by key.
    SchemaError
        If the table lacks a column, or the data has one of that name.
    OptionError
        If ``how`` is neither, or there is nothing to add.
    """
    key = (key,) if isinstance(key, str) else tuple(key)
    if table.is_append_only:
        raise KeyValueError("rows of this table are only added, and not looked up by key", where=table.uri)
    if how not in ("left", "inner"):
        raise OptionError(f"a join by look-ups is 'left' or 'inner', got {how!r}", where="how")
    for name in key:
        if name not in stream.columns:
            raise KeyValueError(f"column {name!r} is missing from the data", where=name)
    if len(key) != len(table.primary_key):
        raise KeyValueError(
            f"the primary key is {', '.join(table.primary_key)}, and {len(key)} columns are given",
            where="key",
            hint="Name the columns that hold it, in that order",
        )
    if columns is None:
        columns = [name for name in table.schema.names if name not in table.primary_key]
    if not columns:
        raise OptionError("there is no column of the table to add", where="columns")
    added = spark_schema(selected(table.schema, columns))
    for name in columns:
        if name in stream.columns:
            raise SchemaError(
                f"the data and the table both have a column {name!r}",
                where=name,
                hint="Rename it in the data, or leave it out of columns",
            )
    nullable = [StructField(one.name, one.dataType, True) for one in added]
    store = table.internals.store
    work = _LookUps(
        TableLocation(store.uri, dict(store.storage_options)), key, StructType(nullable), how == "left"
    )
    return stream.mapInArrow(work, StructType([*stream.schema.fields, *nullable]))


@dataclass(frozen=True, slots=True)
class _LookUps:
    """The join of an executor's rows."""

    location: TableLocation
    key: tuple[str, ...]
    added: StructType
    keeps_others: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table: Table | None = None
        convert: Callable[[pa.RecordBatch], pa.RecordBatch] = SparkBatches(self.added).convert
        for batch in batches:
            if table is None:
                table = self.location.open()
            found, at = self._found(table, batch)
            if not self.keeps_others:
                batch, at = batch.filter(at.is_valid()), at.drop_null()
            taken = found.select(self.added.names).take(at).combine_chunks()
            (looked_up,) = taken.to_batches() or [pa.RecordBatch.from_pylist([], taken.schema)]
            columns = [*batch.columns, *convert(looked_up).columns]
            yield pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, *self.added.names])

    def _found(self, table: Table, batch: pa.RecordBatch) -> tuple[pa.Table, pa.Array]:
        """Return rows of the table, and for each row of the batch the position of its match, or null."""
        pairs = zip(table.primary_key, self.key, strict=True)
        keys = pa.table({name: self._key(table, name, batch, own) for name, own in pairs})
        there = reduce(pc.and_, (column.is_valid() for column in keys.columns))
        known = keys.append_column(_ROW, pa.array(np.arange(keys.num_rows))).filter(there)
        names = list(table.primary_key)
        wanted = known.group_by(names).aggregate([]).select(names)
        found = table.get(wanted, list(dict.fromkeys([*names, *self.added.names])))
        own = pa.table({name: stored_keys(found.column(name)) for name in names})
        places = own.append_column(_AT, pa.array(np.arange(found.num_rows)))
        matched = known.join(places, names, join_type="inner")
        at = np.full(keys.num_rows, -1, dtype=np.int64)
        at[matched.column(_ROW).to_numpy()] = matched.column(_AT).to_numpy()
        return found, pa.array(at, mask=at < 0)

    def _key(self, table: Table, name: str, batch: pa.RecordBatch, own: str) -> pa.Array:
        kind = stored_type(table.schema.field(name).type)
        given = batch.column(own)
        if not _is_comparable(given.type, kind):
            raise KeyValueError(
                f"column {own!r} is {given.type}, and {name!r} in the key of the table {kind}",
                where=own,
                hint=f"Cast it to {kind} first",
            )
        try:
            return given.cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise KeyValueError(
                f"a value of column {own!r} is no key of the table, whose {name!r} is {kind}: {error}",
                where=own,
            ) from error


def _is_comparable(given: pa.DataType, kind: pa.DataType) -> bool:
    """Whether equal-looking values are the same: no number, local time or day is an instant.

    Numbers with a fraction are written in several ways, so that none of them is a text.
    """
    types = pa.types
    if types.is_null(given):
        return True
    if types.is_temporal(given) and types.is_temporal(kind):
        return _is_instant(given) == _is_instant(kind)
    if (types.is_floating(given) or types.is_decimal(given)) and is_text(kind):
        return False
    kinds = (types.is_temporal, types.is_boolean)
    return all(bool(is_kind(given)) == bool(is_kind(kind)) for is_kind in kinds)


def _is_instant(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)
