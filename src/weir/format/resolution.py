"""Matching of source columns to table columns: by Lance field id, at every level of nesting.

A *source* is anything that holds rows of a table: a log entry, a MemTable, a generation. It was written under
the schema of its time, and is read under that of another. A :class:`Resolution` is the plan from one to the
other, made once from the two schemas and applied to any number of batches:

- a column of the same id is used, whatever its name, unless the id belonged to another column
  (:mod:`weir.format.field_births`);
- a column that the source never had is null;
- a column that has been cast since is cast: Lance gives a column that changes its type a new id, and the
  table records which was which;
- of a source without ids, as Weir once wrote them, columns are taken by name.

The children of structs, lists and maps are resolved in the same way. Nothing here processes single rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from weir.errors import CorruptionError
from weir.format.field_births import (
    NOTHING_BEFORE,
    STORED_AT,
    BeforeMarks,
    Births,
    Unmarked,
    births_of,
    same_birth,
    unmarked_in,
)
from weir.format.field_ids import SchemaIdentity, children_of, field_id, has_field_ids
from weir.format.widening import wider

__all__ = ["NO_CASTS", "Casts", "FieldPlan", "Resolution", "resolve"]

Casts = Mapping[int, int]
"""Of every field whose values were cast: its id before, and its id after."""

NO_CASTS: Casts = MappingProxyType({})

_TOMBSTONE = "_tombstone"


@dataclass(frozen=True, slots=True)
class FieldPlan:
    """How one field of the target is made.

    Parameters
    ----------
    target : Field
        The field.
    source : Field or None
        The field of the source that holds its values; None if they are all null.
    place : int
        Its index among its sibling fields; -1 where there is none.
    children : tuple of FieldPlan, default ()
        How the fields inside are made, where they differ from those of the source.
    cast : bool, default False
        Whether the values have to be cast.
    """

    target: pa.Field
    source: pa.Field | None
    place: int = -1
    children: tuple[FieldPlan, ...] = ()
    cast: bool = False

    @property
    def is_same(self) -> bool:
        """Whether the values of the source are used unchanged, under the same name."""
        return (
            self.source is not None
            and self.source.name == self.target.name
            and not self.cast
            and not self.children
        )

    def comes_to(self, other: FieldPlan) -> bool:
        """Whether another plan for the same field takes the same values."""
        return (
            self.place == other.place
            and self.cast == other.cast
            and len(self.children) == len(other.children)
            and all(one.comes_to(two) for one, two in zip(self.children, other.children, strict=True))
        )

    def apply(self, array: pa.Array | None, rows: int, *, where: str) -> pa.Array:
        """Return the values of the target.

        Parameters
        ----------
        array : Array or None
            The values of the source; None if it has none.
        rows : int
            How many there are.
        where : str
            Where they are stored, for the error.

        Raises
        ------
        CorruptionError
            If a value cannot have the type of the target.
        """
        if array is None or self.source is None:
            return pa.nulls(rows, self.target.type)
        if self.children:
            return self._rebuilt(array, where)
        if self.cast:
            try:
                return array.cast(self.target.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise CorruptionError(
                    f"column {self.target.name!r} is stored as {array.type} where the table has "
                    f"{self.target.type}",
                    where=where,
                    hint=str(error),
                ) from error
        return array

    def _rebuilt(self, array: pa.Array, where: str) -> pa.Array:
        """Put the children of the target in place of those of the source."""
        type = self.target.type
        mask = array.is_null() if array.null_count else None
        if pa.types.is_struct(type):
            fields = [
                plan.apply(array.field(plan.place) if plan.place >= 0 else None, len(array), where=where)
                for plan in self.children
            ]
            return pa.StructArray.from_arrays(fields, fields=list(type), mask=mask)
        if pa.types.is_fixed_size_list(type):
            size = type.list_size
            inner = array.values.slice(array.offset * size, len(array) * size)
            (values,) = (plan.apply(inner, len(inner), where=where) for plan in self.children)
            return pa.FixedSizeListArray.from_arrays(values, type=type, mask=mask)
        # Offsets from 0: those of a slice are not, and Arrow takes no mask with them.
        first, last = (array.offsets[0].as_py(), array.offsets[-1].as_py()) if len(array) else (0, 0)
        offsets = pc.subtract(array.offsets, array.offsets[0]) if len(array) else array.offsets
        if pa.types.is_map(type):
            keys, items = array.keys.slice(first, last - first), array.items.slice(first, last - first)
            made = [
                plan.apply(inner, len(inner), where=where)
                for plan, inner in zip(self.children, (keys, items), strict=True)
            ]
            return pa.MapArray.from_arrays(offsets, *made, type=type, mask=mask)
        inner = array.values.slice(first, last - first)
        (values,) = (plan.apply(inner, len(inner), where=where) for plan in self.children)
        build = pa.LargeListArray if pa.types.is_large_list(type) else pa.ListArray
        return build.from_arrays(offsets, values, type=type, mask=mask)


@dataclass(frozen=True)
class Resolution:
    """The plan from the columns of a source to those of a target. Immutable, can be pickled.

    Made by :func:`resolve`.

    Parameters
    ----------
    schema : Schema
        The target: what :meth:`apply` returns has exactly this schema.
    columns : tuple of FieldPlan
        How each of its columns is made.

    Examples
    --------
    >>> from weir.format.field_ids import FieldId, with_field_ids
    >>> before = with_field_ids(pa.schema([("delay", pa.int32())]), [FieldId(1)])
    >>> now = pa.schema([("late", pa.int32()), ("delay", pa.int32())])
    >>> now = with_field_ids(now, [FieldId(1), FieldId(2)])
    >>> batch = pa.record_batch([pa.array([5], pa.int32())], schema=before)
    >>> resolve(before, now).apply(batch, where="example").to_pylist()
    [{'late': 5, 'delay': None}]
    """

    schema: pa.Schema
    columns: tuple[FieldPlan, ...]

    @cached_property
    def is_identity(self) -> bool:
        """Whether source and target have the same columns in the same order: there is nothing to do."""
        return all(plan.is_same and plan.place == at for at, plan in enumerate(self.columns))

    @cached_property
    def _by_name(self) -> dict[str, FieldPlan]:
        return {plan.target.name: plan for plan in self.columns}

    @cached_property
    def source_names(self) -> list[str]:
        """The columns of the source that are needed, each once, by their names there."""
        return list(dict.fromkeys(plan.source.name for plan in self.columns if plan.source is not None))

    def comes_to(self, other: Resolution) -> bool:
        """Whether another plan from the same source to the same target takes the same columns."""
        return all(one.comes_to(two) for one, two in zip(self.columns, other.columns, strict=True))

    def source_name(self, column: str) -> str | None:
        """Return what a column of the target is called in the source; None if the source has it not."""
        source = self._by_name[column].source
        return None if source is None else str(source.name)

    def is_cast(self, column: str) -> bool:
        """Whether the values of a column of the target are others than those of the source."""
        plan = self._by_name[column]
        return plan.cast or bool(plan.children)

    def is_same(self, columns: Iterable[str]) -> bool:
        """Whether these columns of the target are in the source as they are, under the same names."""
        return all(self._by_name[name].is_same for name in columns)

    def select(self, columns: Sequence[str]) -> Resolution:
        """Return the plan for some columns of the target, in the order asked for."""
        plans = tuple(self._by_name[name] for name in columns)
        return Resolution(pa.schema([plan.target for plan in plans], self.schema.metadata), plans)

    def apply(self, batch: pa.RecordBatch, *, where: str) -> pa.RecordBatch:
        """Return a batch of the source with the columns of the target.

        Parameters
        ----------
        batch : RecordBatch
            Rows with the columns of the source that are needed, in any order.
        where : str
            Where they are stored, for the error.

        Raises
        ------
        CorruptionError
            If a value cannot have the type of its column, or a column is missing in the batch.
        """
        if not self.columns:
            return batch.select([])
        rows = batch.num_rows
        arrays = [plan.apply(_column(batch, plan.source, where), rows, where=where) for plan in self.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def table(self, rows: pa.Table, *, where: str) -> pa.Table:
        """Return rows of the source with the columns of the target, as :meth:`apply` does."""
        if not self.columns:
            return rows.select([])
        return pa.Table.from_batches([self.apply(one, where=where) for one in rows.to_batches()], self.schema)


def resolve(source: pa.Schema, target: pa.Schema, casts: Casts = NO_CASTS) -> Resolution:
    """Return the plan from the columns of a source to those of a target.

    Parameters
    ----------
    source, target : Schema
        Columns with field ids (:mod:`weir.format.field_ids`). If either has none, they go by name.
    casts : mapping of int to int, optional
        Of every field whose values were cast, its id before and its id after. A field may have been cast
        several times.
    """
    return _resolved(SchemaIdentity(source), SchemaIdentity(target), tuple(sorted(casts.items())))


@lru_cache(maxsize=256)
def _resolved(
    source: SchemaIdentity, target: SchemaIdentity, casts: tuple[tuple[int, int], ...]
) -> Resolution:
    by_id = has_field_ids(source.schema) and has_field_ids(target.schema)
    matcher = _Matcher(dict(casts), source.schema, target.schema) if by_id else _NameMatcher()
    return Resolution(target.schema, matcher.plans(tuple(source.schema), tuple(target.schema)))


class _NameMatcher:
    """Finds the field of a source by its name."""

    def plans(self, source: Sequence[pa.Field], target: Sequence[pa.Field]) -> tuple[FieldPlan, ...]:
        """Return how the fields of the target are made that stand beside each other."""
        places = self.places(source)
        return tuple(self._plan(field, source, self.place(field, places)) for field in target)

    def places(self, source: Sequence[pa.Field]) -> Mapping[object, int]:
        return {field.name: at for at, field in enumerate(source)}

    def place(self, target: pa.Field, places: Mapping[object, int]) -> int:
        return places.get(target.name, -1)

    def _plan(self, target: pa.Field, source: Sequence[pa.Field], place: int) -> FieldPlan:
        if place < 0:
            return FieldPlan(target, None)
        found = source[place]
        inside, wanted = children_of(found.type), children_of(target.type)
        if not wanted or _shape(found.type) != _shape(target.type):
            return FieldPlan(target, found, place, cast=found.type != target.type)
        if pa.types.is_struct(target.type):
            children = self.plans(inside, wanted)
            same = len(inside) == len(wanted) and all(
                plan.is_same and plan.place == at for at, plan in enumerate(children)
            )
        else:
            # The inside of a list or a map is not a column: it exists, whatever its name.
            children = tuple(self._plan(field, inside, at) for at, field in enumerate(wanted))
            same = all(not plan.cast and not plan.children for plan in children)
        # Names inside lists and maps, and what may be null, count for the type and not for the values.
        untouched = same and found.type == target.type
        return FieldPlan(target, found, place, () if untouched else children)


class _Matcher(_NameMatcher):
    """Finds the field of a source by its id."""

    def __init__(self, casts: Mapping[int, int], source: pa.Schema, target: pa.Schema) -> None:
        self._casts = casts
        self._source: Births = births_of(source)
        self._target: Births = births_of(target)
        self._before: BeforeMarks = unmarked_in(target) or NOTHING_BEFORE
        stored_at = (source.metadata or {}).get(STORED_AT)
        self._stored_at = None if stored_at is None else int(stored_at)
        self._types = {field_id(field): field.type for field in target}

    def plans(self, source: Sequence[pa.Field], target: Sequence[pa.Field]) -> tuple[FieldPlan, ...]:
        if not (has_field_ids(source) and has_field_ids(target)):
            # Inside a type that Lance knows no children of.
            return _NameMatcher().plans(source, target)
        return super().plans(source, target)

    def places(self, source: Sequence[pa.Field]) -> Mapping[object, int]:
        found: dict[object, int] = {}
        for at, field in enumerate(source):
            number = field_id(field)
            if number is None:
                if field.name == _TOMBSTONE:
                    found[_TOMBSTONE] = at
                continue
            if self._source.get(number) is None and self._is_another(number, field):
                continue
            # A field that was cast counts as its result.
            found.setdefault(self._followed(number), at)
            found[number] = at
        return found

    def place(self, target: pa.Field, places: Mapping[object, int]) -> int:
        number = field_id(target)
        if number is None:
            return places.get(_TOMBSTONE, -1) if target.name == _TOMBSTONE else -1
        return places.get(number, -1) if same_birth(number, self._source, self._target) else -1

    def _is_another(self, number: int, field: pa.Field) -> bool:
        """Whether a field without a mark is a column that has had the id before the target's."""
        names, since = self._before.get(number, Unmarked())
        if since is not None and self._stored_at is not None and self._stored_at < since:
            return True
        if names is None:
            return False
        before, now = field.type, self._types.get(number, field.type)
        if field.name not in names:
            return True
        # The set of parts means nothing: they come and go.
        parts = pa.types.is_nested(before) and pa.types.is_nested(now)
        return not (parts or before == now or wider(before, now))

    def _followed(self, number: int) -> int:
        seen = {number}
        while (number := self._casts.get(number, number)) not in seen:
            seen.add(number)
        return number


def _shape(type: pa.DataType) -> str:
    """Return the kind of nested type; types of one shape differ only inside."""
    if pa.types.is_fixed_size_list(type):
        return f"fixed_size_list[{type.list_size}]"
    for name in ("struct", "map", "large_list", "list"):
        if getattr(pa.types, f"is_{name}")(type):
            return name
    return "plain"


def _column(batch: pa.RecordBatch, source: pa.Field | None, where: str) -> pa.Array | None:
    if source is None:
        return None
    at = batch.schema.get_field_index(source.name)
    if at < 0:
        raise CorruptionError(f"the column {source.name!r} is missing from what was read", where=where)
    return batch.column(at)
