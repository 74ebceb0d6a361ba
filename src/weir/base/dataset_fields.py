"""The field ids of a Lance dataset, applied to the schemas of its rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING

import lance
import pyarrow as pa

from weir.base.manifest import VERSIONS
from weir.format.field_births import (
    NOTHING_BEFORE,
    BeforeMarks,
    Births,
    births_of,
    has_marks,
    unmarked_in,
    with_births,
)
from weir.format.field_ids import FieldId, SchemaIdentity, children_of, field_id, interned, with_field_ids
from weir.format.generation_catalog import GenerationCatalog
from weir.format.resolution import Resolution, resolve
from weir.format.wal_entry import TOMBSTONE, wal_schema
from weir.storage.interface import ObjectStore

if TYPE_CHECKING:
    from lance.lance.schema import LanceField

__all__ = [
    "generation_columns",
    "generation_schema",
    "generation_written",
    "marks_of",
    "renumbering",
    "row_schema",
]


def row_schema(
    dataset: lance.LanceDataset, births: Births | None = None, before: BeforeMarks = NOTHING_BEFORE
) -> pa.Schema:
    """Return the schema of a base table's log entries and generations: its columns, and ``_tombstone``.

    The fields carry Lance's ids at every level (:mod:`weir.format.field_ids`), and the columns their births
    (:mod:`weir.format.field_births`).

    Parameters
    ----------
    dataset : LanceDataset
        The base table.
    births : mapping of int to str or None, optional
        By field id, the births of its columns and their parts. Default: those they are marked with.
    before : mapping of int to Unmarked, optional
        The known history before they were marked, in addition to the marks.
    """
    births = marks_of(dataset) if births is None else births
    return interned(with_births(_with_ids(wal_schema(dataset.schema), dataset), births, before))


def marks_of(dataset: lance.LanceDataset) -> Births:
    """Return what the columns of a dataset, and their parts, are marked with as their births."""
    return births_of(_with_ids(dataset.schema, dataset))


def _with_ids(schema: pa.Schema, dataset: lance.LanceDataset) -> pa.Schema:
    return with_field_ids(schema, _ids(dataset.lance_schema.fields()))


def generation_schema(dataset: lance.LanceDataset) -> pa.Schema:
    """Return the columns of a generation, which carry the ids that its dataset gives them.

    The id that the dataset gives ``_tombstone`` is not one of the table, which may have a column of that id.
    """
    return _generation_schema(
        SchemaIdentity(_met_before(dataset.schema)), _ids(dataset.lance_schema.fields())
    )


@lru_cache(maxsize=64)
def _generation_schema(of: SchemaIdentity, ids: tuple[FieldId, ...]) -> pa.Schema:
    schema = with_field_ids(of.schema, ids)
    at = schema.get_field_index(TOMBSTONE)
    return schema if at < 0 else schema.set(at, of.schema.field(at))


_recent: deque[pa.Schema] = deque(maxlen=16)


def _met_before(schema: pa.Schema) -> pa.Schema:
    """Return the object that an equal schema was when it was met, if that was not long ago.

    Generations mostly have the same columns. What follows from a schema is worked out once for each object.
    """
    for known in tuple(_recent):
        if known.equals(schema, check_metadata=True):
            return known
    _recent.append(schema)
    return schema


def generation_columns(
    dataset: lance.LanceDataset,
    schema: pa.Schema,
    catalog: Callable[[], GenerationCatalog | None],
    stored: Callable[[pa.Schema, BeforeMarks], pa.Schema] = lambda own, _: own,
) -> Resolution:
    """Return the plan from the columns of a generation to those of a table.

    An earlier Weir gave the columns of generations other ids than the table's. In such generations,
    recognised by their catalog, columns are identified by name. The catalog is read only where it makes a
    difference.

    Parameters
    ----------
    dataset : LanceDataset
        The generation.
    schema : Schema
        The table's columns, with their field ids, and ``_tombstone``.
    catalog : callable
        Returns the generation's catalog, if it has one.
    stored : callable, optional
        Takes the generation's columns and the history of the table's unmarked ones; returns the columns that
        rows were stored with, and when. Called if columns have no mark.
    """
    own = generation_schema(dataset)
    if not has_marks(own) and (before := unmarked_in(schema)):
        own = stored(own, before)
    by_id = resolve(own, schema)
    by_name = resolve(_met_before(dataset.schema), schema)
    if by_id.comes_to(by_name):
        return by_id
    found = catalog()
    return by_id if found is None or found.has_field_ids else by_name


def generation_written(store: ObjectStore, path: str) -> datetime | None:
    """Return when the generation at a path was written; None if unknown.

    Raises
    ------
    StorageError
        The store failed.
    """
    return min((meta.last_modified for meta in store.list(f"{path}/{VERSIONS}")), default=None)


def renumbering(dataset: lance.LanceDataset, wanted: pa.Schema) -> dict[int, int]:
    """Return the new id of every field of a dataset, to match the ids of a schema.

    A field that the schema lacks, such as ``_tombstone``, gets an id above all others, as in the library's
    generations.

    Parameters
    ----------
    dataset : LanceDataset
        The dataset.
    wanted : Schema
        Its columns, with field ids.

    Returns
    -------
    dict of int to int
        By the id that the field has. Empty if all of them are as they should be.
    """
    pairs = list(_pairs(_ids(dataset.lance_schema.fields()), tuple(wanted)))
    told = {have: number for have, number in pairs if number is not None}
    above = count(max(told.values(), default=-1) + 1)
    numbers = {have: next(above) if number is None else number for have, number in pairs}
    # The tombstone flag may have any id: it is not looked up by id.
    return numbers if any(have != number for have, number in told.items()) else {}


def _pairs(have: Sequence[FieldId], wanted: Sequence[pa.Field]) -> Iterator[tuple[int, int | None]]:
    """Yield the current and the new id of each field."""
    for one, field in zip(have, wanted, strict=True):
        yield one.id, field_id(field)
        inside, children = one.children, children_of(field.type)
        if pa.types.is_map(field.type) and len(inside) == 1:
            (entries,) = inside
            first = field_id(children[0])
            # Made with the map, between it and its key; Arrow has no place to say so.
            yield entries.id, None if first is None else first - 1
            inside = entries.children
        if len(inside) == len(children):
            yield from _pairs(inside, children)
        else:
            yield from ((number, None) for number in _all_of(inside))


def _all_of(ids: Sequence[FieldId]) -> Iterator[int]:
    for one in ids:
        yield one.id
        yield from _all_of(one.children)


def _ids(fields: Sequence[LanceField]) -> tuple[FieldId, ...]:
    return tuple(FieldId(field.id(), _ids(field.children())) for field in fields)
