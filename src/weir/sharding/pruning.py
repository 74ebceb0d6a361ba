"""Which shards a filter or a set of keys can touch.

Lance MemWAL spec, section "Shard Pruning". A shard is pruned only if no row that belongs to it can make
the filter true; what is not understood prunes nothing. For every condition on source columns:

* If it leaves a finite number of values (``=``, ``IN``, short ranges of integers), they are sent through
  the transform, whatever it is, and the shards they lead to are kept.
* If it leaves a range, ``identity``, ``truncate`` and ``year`` are compared with the range of source
  values that a shard stands for; so are ``year``, ``month``, ``day`` and ``hour`` together. ``month``,
  ``day`` and ``hour`` alone are compared with the parts that occur within the range.

Pruning a shard also drops its tombstones and newer rows. That is right because all versions of a row are
in one shard: what a pruned shard would replace cannot match the filter either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from uuid import UUID

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from weir.errors import SchemaError, ShardingError
from weir.format import arrow_scalar
from weir.format.index_details import ShardSpec
from weir.sharding.bound import BoundField, Source, bind
from weir.sharding.date_parts import PARTS, has_date_parts, instants_with
from weir.sharding.predicate import AllOf, AnyOf, Anything, Place, Predicate, Where, read_filter
from weir.sharding.promotion import plain_type
from weir.sharding.router import Router
from weir.sharding.shard_values import ShardValues
from weir.sharding.transforms import DatePart, Unsharded
from weir.sharding.value_set import (
    ANY_VALUE,
    NO_VALUE,
    Ordinal,
    ValueSet,
    is_discrete,
    ordinal,
    ordinals_to_array,
)

__all__ = ["PruneResult", "prune", "shards_of_keys"]

_MOST_CANDIDATES = 1_000
"""Combinations of source values beyond which a condition is not worked out value by value."""

Test = Callable[[ShardValues], bool]


@dataclass(frozen=True, slots=True)
class PruneResult:
    """Which shards to read.

    Parameters
    ----------
    kept : tuple of UUID
        Shards that may hold matching rows, in the order given.
    pruned : tuple of UUID
        Shards that cannot.
    reason : str
        The conclusion, as text.
    """

    kept: tuple[UUID, ...]
    pruned: tuple[UUID, ...]
    reason: str


def prune(
    filter: str | None,
    spec: ShardSpec,
    schema: pa.Schema,
    field_ids: Mapping[str, int],
    shards: Sequence[tuple[UUID, ShardValues | None]],
) -> PruneResult:
    """Find the shards that may hold rows matching a filter.

    Parameters
    ----------
    filter : str or None
        The filter, SQL with DataFusion's meaning.
    spec : ShardSpec
        The spec the shards were made under.
    schema : pyarrow.Schema
        The table's columns.
    field_ids : mapping of str to int
        Lance field id of each column.
    shards : sequence of (UUID, ShardValues or None)
        The shards; one whose values are not known (None) is always kept.

    Returns
    -------
    PruneResult
        Never an error: a filter or a spec that is not understood keeps every shard.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from uuid import UUID
    >>> from weir.sharding.shard_by import bucket
    >>> from weir.sharding.spec import build_spec
    >>> schema, ids = pa.schema([("id", pa.int64())]), {"id": 0}
    >>> spec = build_spec(bucket("id", 8), schema, ["id"], ids)
    >>> one_to_nine = pa.record_batch({"id": list(range(1, 10))})
    >>> shards = [(UUID(int=n), v) for n, (v, _) in enumerate(Router(spec, schema, ids).route(one_to_nine))]
    >>> prune("id = 3", spec, schema, ids, shards).reason
    '1 of 5 shards can hold matching rows, by bucket(id, 8)'
    """
    everything = tuple(shard for shard, _ in shards)
    if filter is None:
        return PruneResult(everything, (), "there is no filter")
    serialized = schema.serialize().to_pybytes()
    test, how = _test_of(filter, spec, serialized, tuple(field_ids.items()))
    if test is None:
        return PruneResult(everything, (), how)
    pruned = tuple(shard for shard, values in shards if values is not None and not test(values))
    if not pruned:
        return PruneResult(everything, (), f"every shard can hold matching rows, by {how}")
    kept = tuple(shard for shard in everything if shard not in pruned)
    found = f"{len(kept)} of {len(everything)} shards can hold matching rows, by {how}"
    return PruneResult(kept, pruned, found)


@lru_cache(maxsize=1024)
def _test_of(
    filter: str, spec: ShardSpec, serialized: bytes, field_ids: tuple[tuple[str, int], ...]
) -> tuple[Test | None, str]:
    """Return a filter's constraints on shard values, and the transforms used; or that every shard is kept."""
    try:
        schema, fields = _fields_of(spec, serialized, field_ids)
    except ShardingError as error:
        return None, f"the shard spec is not understood: {error.message}"
    try:
        predicate = read_filter(filter, schema)
    except (ValueError, RecursionError) as error:
        return None, f"the filter is not understood: {error}"
    how = ", ".join(one.transform.describe([source.name or "?" for source in one.sources]) for one in fields)
    test = _Compiler(fields, schema).compile(predicate)
    return test, how if test is not None else f"every shard can hold matching rows, by {how}"


@lru_cache(maxsize=64)
def _fields_of(
    spec: ShardSpec, serialized: bytes, field_ids: tuple[tuple[str, int], ...]
) -> tuple[pa.Schema, Sequence[BoundField]]:
    schema = pa.ipc.read_schema(pa.py_buffer(serialized))
    return schema, bind(spec, schema, dict(field_ids))


def shards_of_keys(
    router: Router,
    keys: pa.RecordBatch | pa.Table,
    shards: Sequence[tuple[UUID, ShardValues | None]],
) -> list[tuple[UUID, NDArray[np.int64]]]:
    """Find the shards that may hold some keys.

    Parameters
    ----------
    router : Router
        Router of the spec the shards were made under.
    keys : pyarrow.RecordBatch or pyarrow.Table
        The keys. If they lack a column the table is sharded by, or the table does, or their shard values
        cannot be computed, every shard may hold every key.
    shards : sequence of (UUID, ShardValues or None)
        The shards; one whose values are not known (None) may hold every key.

    Returns
    -------
    list of (UUID, numpy array of int64)
        The shards to look into, in the order given, and the row numbers of the keys they may hold,
        ascending.
    """
    everywhere = np.arange(keys.num_rows, dtype=np.int64)
    try:
        partition = None if router.has_lost_columns else router.partition(keys)
    except (SchemaError, ShardingError):
        partition = None
    if partition is None:
        return [(shard, everywhere) for shard, _ in shards if len(everywhere)]
    rows = dict(zip(partition.values, partition.rows(), strict=True))
    found = ((shard, everywhere if values is None else rows.get(values)) for shard, values in shards)
    return [(shard, numbers) for shard, numbers in found if numbers is not None and len(numbers)]


class _Compiler:
    """Turns a predicate into a test of shard values; None means a test that is always true."""

    def __init__(self, fields: Sequence[BoundField], schema: pa.Schema) -> None:
        self._fields = fields
        self._at = {one.field_id: number for number, one in enumerate(fields)}
        self._schema = schema

    def compile(self, predicate: Predicate) -> Test | None:
        if isinstance(predicate, Anything):
            return None
        if isinstance(predicate, AnyOf):
            tests = [self.compile(part) for part in predicate.parts]
            if any(test is None for test in tests):
                return None
            some = [test for test in tests if test is not None]
            return lambda values: any(test(values) for test in some)
        parts = predicate.parts if isinstance(predicate, AllOf) else (predicate,)
        # All that is known of a place together decides more than each condition alone: a range of
        # months needs both its ends.
        tests = self._field_tests(_confined(predicate))
        tests += [self.compile(part) for part in parts if isinstance(part, AnyOf)]
        every = [test for test in tests if test is not None]
        return (lambda values: all(test(values) for test in every)) if every else None

    def _field_tests(self, known: Mapping[Place, ValueSet]) -> list[Test | None]:
        if any(values.is_empty for values in known.values()):
            return [lambda values: False]
        tests = [self._field_test(one, known) for one in self._fields]
        tests += [
            self._calendar_test(place.column, values) for place, values in known.items() if place.part is None
        ]
        return tests

    def _field_test(self, one: BoundField, known: Mapping[Place, ValueSet]) -> Test | None:
        """Return whether a shard's value of one field can occur among rows so confined."""
        if isinstance(one.transform, Unsharded) or any(source.name is None for source in one.sources):
            return None
        at = self._at[one.field_id]
        if isinstance(one.transform, DatePart):
            direct = known.get(Place(one.sources[0].name or "", one.transform.part))
            if direct is not None:
                return lambda values: _holds(direct, _ordinal_at(values, at))
        confined = [known.get(Place(source.name or "")) for source in one.sources]
        candidates = self._candidates(one, confined)
        if candidates is not None:
            return lambda values: values.values[at].data in candidates
        if len(one.sources) == 1 and confined[0] is not None:
            return self._range_test(one, one.sources[0], confined[0], at)
        return None

    def _candidates(
        self, one: BoundField, confined: Sequence[ValueSet | None]
    ) -> frozenset[bytes | None] | None:
        """Return the shard values of all combinations of source values, None if there are too many."""
        choices: list[list[Ordinal | None]] = []
        size = 1
        for source, values in zip(one.sources, confined, strict=True):
            listed = None if values is None else _list(values, self._type(source))
            if listed is None:
                return None
            size *= len(listed)
            if size > _MOST_CANDIDATES:
                return None
            choices.append(listed)
        rows = list(product(*choices))
        if not rows:
            return frozenset()
        try:
            columns = [
                ordinals_to_array(column, self._type(source))
                for source, column in zip(one.sources, zip(*rows, strict=True), strict=True)
            ]
            return frozenset(arrow_scalar.encode(one.evaluate(columns, len(rows))))
        except (ShardingError, pa.ArrowException, ValueError, OverflowError):
            # A literal the column cannot hold, or a value the spec has no shard for.
            return None

    def _range_test(self, one: BoundField, source: Source, values: ValueSet, at: int) -> Test | None:
        kind = self._type(source)
        if kind != source.type and not pa.types.is_integer(kind):
            # The range is in units of the promoted type, the shard's value in those of the old one.
            return None
        image: frozenset[int] | None = None
        if isinstance(values.lower, int) and isinstance(values.upper, int):
            image = one.transform.image(values.lower, values.upper, source.type)

        def test(shard: ShardValues) -> bool:
            value = _ordinal_at(shard, at)
            if isinstance(one.transform, DatePart) and value is None:
                # Null also represents instants beyond the calendar.
                return True
            if image is not None:
                return value in image
            preimage = one.transform.preimage(value, source.type)
            return preimage is None or not values.intersect(preimage).is_empty

        return test

    def _calendar_test(self, column: str, values: ValueSet) -> Test | None:
        """Return whether year, month, ... of a shard together can meet a range of instants."""
        at: dict[str, int] = {}
        kind: pa.DataType | None = None
        for number, one in enumerate(self._fields):
            if isinstance(one.transform, DatePart) and one.sources[0].name == column:
                at[one.transform.part] = number
                kind = one.sources[0].type
        chain = PARTS[: next((n for n, part in enumerate(PARTS) if part not in at), len(PARTS))]
        if kind is None or len(chain) < 2 or values.null or not has_date_parts(kind):
            return None
        if plain_type(self._schema.field(column).type) != kind:
            return None

        def test(shard: ShardValues) -> bool:
            parts = {part: _ordinal_at(shard, at[part]) for part in chain}
            whole = {part: value for part, value in parts.items() if isinstance(value, int)}
            if len(whole) < len(chain):
                return True
            first, last = instants_with(whole, kind)
            return not values.intersect(ValueSet(lower=first, upper=last)).is_empty

        return test

    def _type(self, source: Source) -> pa.DataType:
        return plain_type(self._schema.field(source.name).type)


def _confined(predicate: Predicate) -> dict[Place, ValueSet]:
    """Return what must hold at each place for a predicate to be true."""
    if isinstance(predicate, Where):
        return {predicate.place: predicate.values}
    known: dict[Place, ValueSet] = {}
    if isinstance(predicate, AllOf):
        for part in predicate.parts:
            for place, values in _confined(part).items():
                known[place] = known.get(place, ANY_VALUE).intersect(values)
    elif isinstance(predicate, AnyOf):
        choices = [_confined(part) for part in predicate.parts]
        for place in set.intersection(*(set(choice) for choice in choices)) if choices else ():
            together = NO_VALUE
            for choice in choices:
                together = together.union(choice[place])
            known[place] = together
    return known


def _list(values: ValueSet, kind: pa.DataType) -> list[Ordinal | None] | None:
    """Return the values one by one, None if they are too many."""
    listed: list[Ordinal | None] = [None] if values.null else []
    if values.values is not None:
        fitting: Iterable[Ordinal] = values.values
        if pa.types.is_integer(kind):
            # Literals beyond the type's range equal no value of the column.
            limits = np.iinfo(kind.to_pandas_dtype())
            fitting = (one for one in fitting if isinstance(one, int) and limits.min <= one <= limits.max)
        listed.extend(fitting)
        if pa.types.is_floating(kind) and 0 in values.values:
            # Equal in a filter, but not in a custom expression.
            listed += [0.0, -0.0]
        return listed
    if not is_discrete(kind) or not isinstance(values.lower, int) or not isinstance(values.upper, int):
        return None
    if values.upper - values.lower >= _MOST_CANDIDATES:
        return None
    listed.extend(one for one in range(values.lower, values.upper + 1) if values.holds(one))
    return listed


def _holds(values: ValueSet, value: Ordinal | None) -> bool:
    return True if value is None else values.holds(value)


def _ordinal_at(shard: ShardValues, at: int) -> Ordinal | None:
    return ordinal(shard.values[at].scalar)
