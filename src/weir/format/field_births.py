"""When a column came into its table: what tells it from another one that has had its field id before.

Lance gives the id of a dropped column out again, where nothing in the newest version has it any more: no file
of its data, and no column. Rows in a log or a generation that still have the dropped column would then show
its values in the new one. So each column of a table is marked with its *birth*, and with those of its parts,
among the metadata that Lance keeps with the column. Whoever writes a log entry or a generation copies the
mark with the column, the released library too. Two fields of one id and different births are two fields.

Plain Lance marks nothing that it adds. What birth such a column or part has is found out from the versions of
the table (:mod:`weir.base.column_births`), and the next writer of Weir marks it. Until then the released
library writes rows without a mark. The mark names what the column was called meanwhile, since a field of its
id with another name, or of another type, is that of a column before it.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import pyarrow as pa

from weir.errors import CorruptionError
from weir.format.field_ids import BIRTH, BIRTHS_OF_PARTS, UNMARKED_NAMES, children_of, field_id

__all__ = [
    "BIRTH",
    "BIRTHS_OF_PARTS",
    "FIRST",
    "NO_NAMES",
    "Births",
    "Names",
    "birth_at",
    "births_of",
    "decode_mark",
    "encode_mark",
    "names_of",
    "same_birth",
    "with_births",
    "without_births",
]

Births = Mapping[int, str | None]
"""The births of columns and their parts, by field id; None where nothing tells it."""

Names = Mapping[int, frozenset[str]]
"""By field id, every name of a column or part before it was marked; of others they are not known."""

FIRST = "0"
"""Birth of what a table had when its columns were first marked."""

NO_NAMES: Names = MappingProxyType({})

_MARKS = (BIRTH, BIRTHS_OF_PARTS, UNMARKED_NAMES)


def birth_at(version: int, identity: bytes | None = None) -> str:
    """Return the birth of a column that came with a version of the table.

    Parameters
    ----------
    version : int
        The version.
    identity : bytes, optional
        What tells it from others that have had its number. Default: random bytes, for a version that is
        still to be made.

    Examples
    --------
    >>> birth_at(7, bytes.fromhex("00c0ffee00c0ffee"))
    '7-00c0ffee00c0ffee'
    """
    return f"{version}-{(secrets.token_bytes(8) if identity is None else identity).hex()}"


def encode_mark(birth: str, parts: Mapping[int, tuple[str, str]], names: Names = NO_NAMES) -> dict[str, str]:
    """Return the metadata with which a column is marked.

    Parameters
    ----------
    birth : str
        Its birth.
    parts : mapping of int to tuple of str and str
        Of its parts at any depth, by field id, names and births. A column has one mark for all of them,
        since the library's writers take no rows where parts have metadata of their own.
    names : mapping of int to frozenset of str, optional
        Of the column and its parts, the names before they were marked, as far as they are known.

    Examples
    --------
    >>> encode_mark("0", {5: ("x", "0")})
    {'weir:birth': '0', 'weir:births_of_parts': '{"5":["x","0"]}'}
    """
    mark = {BIRTH.decode(): birth}
    if parts:
        of_parts = {str(number): list(parts[number]) for number in sorted(parts)}
        mark[BIRTHS_OF_PARTS.decode()] = json.dumps(of_parts, separators=(",", ":"))
    if names:
        unmarked = {str(number): sorted(names[number]) for number in sorted(names)}
        mark[UNMARKED_NAMES.decode()] = json.dumps(unmarked, separators=(",", ":"))
    return mark


def decode_mark(metadata: Mapping[bytes, bytes]) -> tuple[str | None, dict[int, tuple[str, str]]]:
    """Return the birth in the metadata of a column, and names and births of its parts, as far as marked.

    Raises
    ------
    CorruptionError
        The mark is none.
    """
    birth, of_parts = metadata.get(BIRTH), metadata.get(BIRTHS_OF_PARTS)
    if birth is None:
        return None, {}
    if of_parts is None:
        return birth.decode(errors="replace"), {}
    try:
        parts = {int(number): (str(name), str(own)) for number, (name, own) in json.loads(of_parts).items()}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptionError(
            f"a column is marked with {of_parts[:80]!r} as the births of its parts"
        ) from error
    return birth.decode(errors="replace"), parts


def births_of(schema: Iterable[pa.Field]) -> dict[int, str | None]:
    """Return the births of columns with field ids, and of their parts, as far as they are marked.

    A part that has another name by now than the mark says may be another one.

    Examples
    --------
    >>> mark = {"lance:field_id": "7", "weir:birth": "3-00c0ffee00c0ffee"}
    >>> births_of(pa.schema([pa.field("delay", pa.int32(), metadata=mark)]))
    {7: '3-00c0ffee00c0ffee'}
    """
    births: dict[int, str | None] = {}
    for column in schema:
        number = field_id(column)
        if number is None:
            continue
        birth, parts = decode_mark(column.metadata)
        births[number] = birth
        for part in _parts(column):
            number = field_id(part)
            if number is not None:
                name, own = parts.get(number, ("", ""))
                births[number] = own if own and name == part.name else None
    return births


def names_of(schema: Iterable[pa.Field]) -> dict[int, frozenset[str]]:
    """Return by field id the names that columns and parts have had before they were marked.

    Raises
    ------
    CorruptionError
        What is noted is no such names.

    Examples
    --------
    >>> noted = {"weir:unmarked_names": '{"7":["delay","late"]}'}
    >>> sorted(names_of(pa.schema([pa.field("late", pa.int32(), metadata=noted)]))[7])
    ['delay', 'late']
    """
    names: dict[int, frozenset[str]] = {}
    for column in schema:
        noted = (column.metadata or {}).get(UNMARKED_NAMES)
        if noted is None:
            continue
        try:
            names |= {int(number): frozenset(map(str, own)) for number, own in json.loads(noted).items()}
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptionError(
                f"column {column.name!r} is marked with {noted[:80]!r} as its names before"
            ) from error
    return names


def same_birth(number: int, one: Births, other: Births) -> bool:
    """Whether two fields of one id may be the same: their births do not tell otherwise.

    Examples
    --------
    >>> same_birth(7, {7: "0"}, {7: "3-00c0ffee00c0ffee"}), same_birth(7, {7: "0"}, {7: None})
    (False, True)
    """
    before, after = one.get(number), other.get(number)
    return before is None or after is None or before == after


def with_births(schema: pa.Schema, births: Births, names: Names = NO_NAMES) -> pa.Schema:
    """Return a schema with field ids whose columns are marked with births, as far as they are known.

    Names before that are those given, and those that a column is marked with.

    Examples
    --------
    >>> delay = pa.field("delay", pa.int32(), metadata={"lance:field_id": "7"})
    >>> births_of(with_births(pa.schema([delay]), {7: "0"}))
    {7: '0'}
    """
    return pa.schema([_marked(column, births, names) for column in schema], metadata=schema.metadata)


def without_births(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose columns are not marked: as callers are shown it."""
    if not any(column.metadata and BIRTH in column.metadata for column in schema):
        return schema
    return pa.schema([_unmarked(column) for column in schema], metadata=schema.metadata)


def _marked(column: pa.Field, births: Births, names: Names) -> pa.Field:
    number = field_id(column)
    birth = None if number is None else births.get(number)
    if number is None or birth is None:
        return _unmarked(column)
    parts = {}
    called = names_of([column])
    if number in names:
        called[number] = names[number]
    for part in _parts(column):
        own = field_id(part)
        known = None if own is None else births.get(own)
        if own is not None and known is not None:
            parts[own] = (part.name, known)
            if own in names:
                called[own] = names[own]
    mark = {key.encode(): value.encode() for key, value in encode_mark(birth, parts, called).items()}
    return column.with_metadata({**(_unmarked(column).metadata or {}), **mark})


def _unmarked(column: pa.Field) -> pa.Field:
    metadata = column.metadata or {}
    kept = {key: value for key, value in metadata.items() if key not in _MARKS}
    return column.with_metadata(kept or None)


def _parts(column: pa.Field) -> Iterable[pa.Field]:
    for part in children_of(column.type):
        yield part
        yield from _parts(part)
