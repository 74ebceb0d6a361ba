"""Routing of rows to their shards."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from weir.errors import SchemaError
from weir.format import arrow_scalar
from weir.format.index_details import ShardSpec
from weir.sharding.bound import IMMUTABLE, BoundField, bind
from weir.sharding.shard_values import ShardValue, ShardValues
from weir.sharding.transforms import Unsharded

__all__ = ["Partition", "Router"]

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)

_REMEMBERED = 65_536


@dataclass(frozen=True, slots=True)
class Partition:
    """Which shard each of some rows belongs to.

    Parameters
    ----------
    values : tuple of ShardValues
        The shards, in the order in which their first rows come.
    shards : numpy array of int64
        For every row, the number of its shard in ``values``.
    """

    values: tuple[ShardValues, ...]
    shards: NDArray[np.int64]

    def rows(self) -> list[NDArray[np.int64]]:
        """Return the row numbers of each shard, ascending."""
        order, ends = self.grouped()
        return np.split(order, ends[:-1]) if self.values else []

    def grouped(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the row numbers shard by shard, and where each shard ends in them."""
        count = len(self.values)
        # Up to 16 bits, NumPy's stable sort is a radix sort.
        codes = self.shards.astype(np.uint16) if count <= 65_536 else self.shards
        return np.argsort(codes, kind="stable"), np.cumsum(np.bincount(self.shards, minlength=count))


class Router:
    """Computes shard values and splits rows by them. Safe to use from many threads.

    Parameters
    ----------
    spec : ShardSpec
        The table's shard spec. One without fields sends all rows to one shard.
    schema : pyarrow.Schema
        The table's columns.
    field_ids : mapping of str to int
        Lance field id of each column.

    Attributes
    ----------
    only : ShardValues or None
        The values of all rows, of a table that is not sharded; None until rows were routed.

    Notes
    -----
    The spec is bound to the columns at the first use, so that a table whose spec has a transform that is
    not known here can still be read.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from weir.sharding.shard_by import bucket
    >>> from weir.sharding.spec import build_spec
    >>> schema = pa.schema([("id", pa.int64())])
    >>> router = Router(build_spec(bucket("id", 8), schema, ["id"], {"id": 0}), schema, {"id": 0})
    >>> batch = pa.record_batch({"id": [1, 2, 3, 9]})
    >>> [(str(values), rows.column(0).to_pylist()) for values, rows in router.route(batch)]
    [('bucket=4', [1, 2]), ('bucket=3', [3]), ('bucket=7', [9])]
    """

    def __init__(self, spec: ShardSpec, schema: pa.Schema, field_ids: Mapping[str, int]) -> None:
        self.spec = spec
        self._schema = schema
        self._field_ids = field_ids
        self._bound: tuple[BoundField, ...] | None = None
        self._known: dict[tuple[bytes | None, ...], ShardValues] = {}
        self.only: ShardValues | None = None
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[object, ...]:
        # Bound and cached state is recreated where it is needed.
        return Router, (self.spec, self._schema, dict(self._field_ids))

    @property
    def fields(self) -> tuple[BoundField, ...]:
        """The fields of the spec, bound to the table's columns.

        Raises
        ------
        ShardingError
            The spec cannot be evaluated here; see :func:`weir.sharding.bound.bind`.
        """
        if self._bound is None:
            self._bound = bind(self.spec, self._schema, self._field_ids)
        return self._bound

    @property
    def source_columns(self) -> frozenset[str]:
        """The columns that shard values depend on."""
        return frozenset(
            source.name for one in self.fields for source in one.sources if source.name is not None
        )

    @property
    def has_lost_columns(self) -> bool:
        """Whether the table has dropped a column that shard values depend on.

        It reads as null, so that rows of a key may be in another shard than the one they are computed for.
        """
        return any(source.name is None for one in self.fields for source in one.sources)

    def columns_that_may_change(self, primary_key: Collection[str]) -> tuple[str, ...]:
        """Return the columns outside the key, without the promise, that could move a key to another shard."""
        found = (
            source.name
            for one, recorded in zip(self.fields, self.spec.fields, strict=True)
            if recorded.parameters.get(IMMUTABLE) != "true"
            for source in one.sources
        )
        return tuple(name for name in found if name is not None and name not in primary_key)

    def route(self, rows: Rows) -> list[tuple[ShardValues, Rows]]:
        """Split rows by shard.

        Parameters
        ----------
        rows : pyarrow.RecordBatch or pyarrow.Table
            Rows with at least the source columns.

        Returns
        -------
        list of (ShardValues, RecordBatch or Table)
            One item per shard, in the order in which their first rows come; the rows of a shard keep
            their order. All rows of one shard are returned as they are, without a copy.

        Raises
        ------
        SchemaError
            A source column the table has is missing from the rows.
        ShardingError
            A shard value cannot be computed.
        """
        if rows.num_rows == 0:
            return []
        only = self._only_values(rows)
        if only is not None:
            return [(only, rows)]
        partition = self._partition(rows)
        if len(partition.values) == 1:
            return [(partition.values[0], rows)]
        order, ends = partition.grouped()
        sorted_rows = rows.take(pa.array(order))
        start = 0
        routed = []
        for values, end in zip(partition.values, ends.tolist(), strict=True):
            routed.append((values, sorted_rows.slice(start, end - start)))
            start = end
        return routed

    def partition(self, rows: pa.RecordBatch | pa.Table) -> Partition:
        """Return the shard of every row, without moving any. Raises as :meth:`route` does."""
        if rows.num_rows == 0:
            return Partition((), np.empty(0, np.int64))
        only = self._only_values(rows)
        if only is not None:
            return Partition((only,), np.zeros(rows.num_rows, np.int64))
        return self._partition(rows)

    def _only_values(self, rows: pa.RecordBatch | pa.Table) -> ShardValues | None:
        """Return the shard of all rows if that is plain to see: one row, or one shard in all."""
        if self.only is not None:
            return self.only
        fields = self.fields
        unsharded = all(isinstance(one.transform, Unsharded) for one in fields)
        if not unsharded and rows.num_rows > 1:
            return None
        row = rows if rows.num_rows == 1 else rows.slice(0, 1)
        values = self._values([arrow_scalar.encode(_evaluate(one, row))[0] for one in fields])
        if unsharded:
            self.only = values
        return values

    def _partition(self, rows: pa.RecordBatch | pa.Table) -> Partition:
        fields = self.fields
        columns = [_evaluate(one, rows).dictionary_encode("encode") for one in fields]
        shards, example = _number(columns)
        pieces = [
            _pick(arrow_scalar.encode(column.dictionary), column.indices.to_numpy()[example])
            for column in columns
        ]
        values = tuple(self._values(one) for one in zip(*pieces, strict=True))
        return Partition(values, shards)

    def _values(self, encoded: Iterable[bytes | None]) -> ShardValues:
        key = tuple(encoded)
        values = self._known.get(key)
        if values is None:
            values = ShardValues(
                tuple(
                    ShardValue(one.field_id, data, one.type)
                    for one, data in zip(self.fields, key, strict=True)
                )
            )
            with self._lock:
                if len(self._known) >= _REMEMBERED:
                    self._known.clear()
                self._known[key] = values
        return values


def _evaluate(one: BoundField, rows: pa.RecordBatch | pa.Table) -> pa.Array:
    columns = [None if source.name is None else _column(rows, source.name) for source in one.sources]
    return one.evaluate(columns, rows.num_rows)


def _column(rows: pa.RecordBatch | pa.Table, name: str) -> pa.Array:
    at = rows.schema.get_field_index(name)
    if at < 0:
        raise SchemaError(
            f"the rows lack column {name!r}, which decides their shard",
            where=name,
            hint="Pass whole rows, or at least the key and the columns the table is sharded by",
        )
    column = rows.column(at)
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def _number(columns: Sequence[pa.DictionaryArray]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the number of every row, the same for equal rows, and one row for each number."""
    codes = columns[0].indices.to_numpy().astype(np.int64)
    count = len(columns[0].dictionary)
    for column in columns[1:]:
        joined = codes * len(column.dictionary) + column.indices.to_numpy()
        encoded = pa.array(joined).dictionary_encode()
        codes = encoded.indices.to_numpy().astype(np.int64)
        count = len(encoded.dictionary)
    example = np.empty(count, np.int64)
    example[codes] = np.arange(len(codes))
    return codes, example


def _pick(values: Sequence[bytes | None], at: NDArray[np.int32]) -> list[bytes | None]:
    return [values[number] for number in at.tolist()]
