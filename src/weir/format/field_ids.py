"""Lance field ids in the metadata of Arrow fields: the identity of a column, independent of its name.

Names change hands: a column is renamed, or dropped and another one added under its name. Ids are given out
once. So bytes that outlive a schema carry them, as the released library's log entries do: every field has
:data:`FIELD_ID` among its metadata, at every level of nesting. The field between a map and its keys
and values is the exception, since Arrow keeps no metadata there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from weakref import WeakValueDictionary

import pyarrow as pa
import xxhash

from weir.errors import CorruptionError

__all__ = [
    "BIRTH",
    "BIRTHS_OF_PARTS",
    "FIELD_ID",
    "UNMARKED_NAMES",
    "UNMARKED_SINCE",
    "FieldId",
    "SchemaIdentity",
    "children_of",
    "field_id",
    "fingerprint",
    "has_field_ids",
    "interned",
    "new_field_ids",
    "with_children",
    "with_field_ids",
    "without_field_ids",
]

FIELD_ID = b"lance:field_id"
"""Field metadata key whose value is the Lance field id, decimal."""

BIRTH = b"weir:birth"
"""Metadata key of a column whose value is its birth (:mod:`weir.format.field_births`)."""

BIRTHS_OF_PARTS = b"weir:births_of_parts"
"""Metadata key of a column whose value are the births of its parts, in JSON."""

UNMARKED_NAMES = b"weir:unmarked_names"
"""Metadata key of a column: its names, and those of its parts, before it was marked, in JSON."""

UNMARKED_SINCE = b"weir:unmarked_since"
"""Metadata key of a column: when it came, and when its parts did, where that was before they were marked."""

_OWN = (FIELD_ID, BIRTH, BIRTHS_OF_PARTS, UNMARKED_NAMES, UNMARKED_SINCE)


@dataclass(frozen=True, slots=True)
class FieldId:
    """The id of a field, and those of its children in their order.

    Lance's tree is not quite Arrow's: a map has one child, the entries, with key and value; a fixed-size
    list of numbers has none.

    Parameters
    ----------
    id : int
        The id.
    children : tuple of FieldId, default ()
        Those of the fields inside.
    """

    id: int
    children: tuple[FieldId, ...] = ()


def field_id(field: pa.Field) -> int | None:
    """Return the id a field carries; None if it carries none.

    Raises
    ------
    CorruptionError
        What it carries is not a number.

    Examples
    --------
    >>> field_id(pa.field("delay", pa.int32(), metadata={"lance:field_id": "7"}))
    7
    """
    text = None if field.metadata is None else field.metadata.get(FIELD_ID)
    if text is None:
        return None
    if not text.isdigit():
        raise CorruptionError(f"column {field.name!r} has the field id {text[:40]!r}, which is not a number")
    return int(text)


def has_field_ids(fields: Iterable[pa.Field]) -> bool:
    """Whether fields carry ids, as those of a schema do that is not older than that."""
    return any(field.metadata is not None and FIELD_ID in field.metadata for field in fields)


def with_field_ids(schema: pa.Schema, ids: Sequence[FieldId]) -> pa.Schema:
    """Return a schema whose fields carry ids, at every level.

    Parameters
    ----------
    schema : Schema
        The columns.
    ids : sequence of FieldId
        Their ids, one for each of the first columns. Further columns carry none.

    Examples
    --------
    >>> schema = pa.schema([("id", pa.int64()), ("place", pa.struct([("x", pa.int32())]))])
    >>> marked = with_field_ids(schema, [FieldId(0), FieldId(4, (FieldId(5),))])
    >>> field_id(marked.field("place")), field_id(marked.field("place").type.field("x"))
    (4, 5)
    """
    marked = [_with_id(field, one) for field, one in zip(schema, ids, strict=False)]
    return pa.schema([*marked, *list(schema)[len(marked) :]], metadata=schema.metadata)


def without_field_ids(schema: pa.Schema, *, births: bool = True) -> pa.Schema:
    """Return a schema whose fields carry no ids at any level: as callers are shown it.

    Parameters
    ----------
    schema : Schema
        The columns.
    births : bool, default True
        Whether to take the births of the columns away too (:mod:`weir.format.field_births`).
    """
    return _without_ids(SchemaIdentity(schema), _OWN if births else (FIELD_ID,))


class SchemaIdentity:
    """A schema that equals itself alone: hashing one by its content costs more than a small log entry."""

    __slots__ = ("schema",)

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def __eq__(self, other: object) -> bool:
        """Whether it is of the same object."""
        return isinstance(other, SchemaIdentity) and other.schema is self.schema

    def __hash__(self) -> int:
        """Return the hash of the object."""
        return id(self.schema)


@lru_cache(maxsize=256)
def _without_ids(of: SchemaIdentity, keys: tuple[bytes, ...]) -> pa.Schema:
    return pa.schema([_without(field, keys) for field in of.schema], metadata=of.schema.metadata)


def fingerprint(schema: pa.Schema) -> int:
    """Return a number that distinguishes schemas by names, types and ids: for the keys of caches.

    The order of metadata makes no difference: the library returns it in another one each time.
    """
    return _fingerprint(SchemaIdentity(schema))


_interned: WeakValueDictionary[int, pa.Schema] = WeakValueDictionary()


def interned(schema: pa.Schema) -> pa.Schema:
    """Return the one object that represents a schema in this process, for as long as it is referenced.

    Equal schemas are then the same object, which is cheap to compare.
    """
    return _interned.setdefault(fingerprint(schema), schema)


@lru_cache(maxsize=256)
def _fingerprint(of: SchemaIdentity) -> int:
    metadata = _in_order(of.schema.metadata)
    ordered = pa.schema([_with_metadata_in_order(field) for field in of.schema], metadata=metadata)
    return xxhash.xxh3_128_intdigest(ordered.serialize().to_pybytes())


def _with_metadata_in_order(field: pa.Field) -> pa.Field:
    children = [_with_metadata_in_order(child) for child in children_of(field.type)]
    type = with_children(field.type, children) if children else field.type
    return field.with_type(type).with_metadata(_in_order(field.metadata))


def _in_order(metadata: Mapping[bytes, bytes] | None) -> dict[bytes, bytes] | None:
    return None if metadata is None else dict(sorted(metadata.items()))


def new_field_ids(schema: pa.Schema) -> tuple[FieldId, ...]:
    """Return the ids that Lance gives the columns of a new dataset: from 0, a field before its children.

    Examples
    --------
    >>> new_field_ids(pa.schema([("tags", pa.list_(pa.string())), ("delay", pa.int32())]))
    (FieldId(id=0, children=(FieldId(id=1, children=()),)), FieldId(id=2, children=()))
    """
    return tuple(_numbered(schema, count()))


def children_of(type: pa.DataType) -> tuple[pa.Field, ...]:
    """Return the fields inside a type that Lance gives ids: of a map its key and its value.

    Examples
    --------
    >>> [field.name for field in children_of(pa.map_(pa.string(), pa.int32()))]
    ['key', 'value']
    >>> children_of(pa.list_(pa.float32(), 128))
    ()
    """
    if not type.num_fields:
        return ()
    if pa.types.is_struct(type):
        return tuple(type)
    if pa.types.is_map(type):
        return type.key_field, type.item_field
    if pa.types.is_list(type) or pa.types.is_large_list(type):
        return (type.value_field,)
    if pa.types.is_fixed_size_list(type) and pa.types.is_struct(type.value_type):
        return (type.value_field,)
    return ()


def with_children(type: pa.DataType, children: Sequence[pa.Field]) -> pa.DataType:
    """Return a type with other fields inside, as :func:`children_of` returns them."""
    if pa.types.is_struct(type):
        return pa.struct(list(children))
    if pa.types.is_map(type):
        key, item = children
        return pa.map_(key, item, keys_sorted=type.keys_sorted)
    if pa.types.is_list(type):
        return pa.list_(children[0])
    if pa.types.is_large_list(type):
        return pa.large_list(children[0])
    if pa.types.is_fixed_size_list(type):
        return pa.list_(children[0], type.list_size)
    return type


def _with_id(field: pa.Field, number: FieldId) -> pa.Field:
    type = field.type
    children = children_of(type)
    if children:
        ids = number.children
        if pa.types.is_map(type) and len(ids) == 1:
            ids = ids[0].children
        if len(ids) == len(children):
            type = with_children(type, [_with_id(one, id) for one, id in zip(children, ids, strict=True)])
    metadata = {**(field.metadata or {}), FIELD_ID: str(number.id).encode()}
    return field.with_type(type).with_metadata(metadata)


def _without(field: pa.Field, keys: tuple[bytes, ...]) -> pa.Field:
    type = field.type
    children = children_of(type)
    if children:
        type = with_children(type, [_without(one, keys) for one in children])
    metadata = {key: value for key, value in (field.metadata or {}).items() if key not in keys}
    return field.with_type(type).with_metadata(metadata or None)


def _numbered(fields: Iterable[pa.Field], numbers: Iterator[int]) -> Iterator[FieldId]:
    for field in fields:
        number = next(numbers)
        children = children_of(field.type)
        if pa.types.is_map(field.type):
            entries = next(numbers)
            yield FieldId(number, (FieldId(entries, tuple(_numbered(children, numbers))),))
        else:
            yield FieldId(number, tuple(_numbered(children, numbers)))
