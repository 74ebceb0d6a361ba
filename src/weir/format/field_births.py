"""The birth of a column: distinguishes it from an earlier column with the same field id.

Lance reuses the id of a dropped column once nothing in the newest version has it: no data file, and no
column. Rows in a log or a generation that still have the dropped column would then show its values in the new
one. So each column of a table is marked with its *birth*, and with those of its parts, among the metadata
that Lance keeps with the column. Every writer of a log entry or a generation copies the mark with the column,
the released library included. Two fields of one id and different births are two fields.

Plain Lance marks nothing that it adds. The birth of such a column or part is derived from the versions of the
table (:mod:`weir.base.column_births`), and the next writer of Weir marks it. Until then the released library
writes rows without a mark. The mark says when the column was added and which names it has had, since a field
of its id that was stored earlier, or has another name or type, belongs to an earlier column.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa

from weir.errors import CorruptionError
from weir.format.field_ids import (
    BIRTH,
    BIRTHS_OF_PARTS,
    UNMARKED_NAMES,
    UNMARKED_SINCE,
    children_of,
    field_id,
)

__all__ = [
    "BIRTH",
    "BIRTHS_OF_PARTS",
    "FIRST",
    "NOTHING_BEFORE",
    "STORED_AT",
    "BeforeMarks",
    "Births",
    "Unmarked",
    "birth_at",
    "births_of",
    "decode_mark",
    "encode_mark",
    "has_marks",
    "microseconds",
    "same_birth",
    "stored_at",
    "unmarked_in",
    "with_births",
    "without_births",
]

Births = Mapping[int, str | None]
"""The births of columns and their parts, by field id; None where unknown."""


class Unmarked(NamedTuple):
    """What is known about a column or part from the time before it was marked.

    Parameters
    ----------
    names : frozenset of str or None
        Every name that it had; None where they are not known.
    since : int or None
        When it was added, in microseconds since 1970: what was stored earlier does not belong to it. None
        where that is not known.
    """

    names: frozenset[str] | None = None
    since: int | None = None


BeforeMarks = Mapping[int, Unmarked]
"""By field id, what is known about columns and parts before they were marked."""

FIRST = "0"
"""Birth of what a table had when its columns were first marked."""

NOTHING_BEFORE: BeforeMarks = MappingProxyType({})

STORED_AT = b"weir:stored_at"
"""Key among the metadata of the schema of rows without marks, in memory alone: when they were stored."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MARKS = (BIRTH, BIRTHS_OF_PARTS, UNMARKED_NAMES, UNMARKED_SINCE)


def birth_at(version: int, identity: bytes | None = None) -> str:
    """Return the birth of a column that came with a version of the table.

    Parameters
    ----------
    version : int
        The version.
    identity : bytes, optional
        What distinguishes it from others that have had its number. Default: random bytes, for a version that
        is still to be made.

    Examples
    --------
    >>> birth_at(7, bytes.fromhex("00c0ffee00c0ffee"))
    '7-00c0ffee00c0ffee'
    """
    return f"{version}-{(secrets.token_bytes(8) if identity is None else identity).hex()}"


def encode_mark(
    birth: str, parts: Mapping[int, tuple[str, str]], before: BeforeMarks = NOTHING_BEFORE
) -> dict[str, str]:
    """Return the metadata with which a column is marked.

    Parameters
    ----------
    birth : str
        Its birth.
    parts : mapping of int to tuple of str and str
        Of its parts at any depth, by field id, names and births. A column has one mark for all of them,
        since the library's writers take no rows where parts have metadata of their own.
    before : mapping of int to Unmarked, optional
        What is known about the column and its parts from the time before they were marked.

    Examples
    --------
    >>> encode_mark("0", {5: ("x", "0")})
    {'weir:birth': '0', 'weir:births_of_parts': '{"5":["x","0"]}'}
    """
    mark = {BIRTH.decode(): birth}
    if parts:
        of_parts = {str(number): list(parts[number]) for number in sorted(parts)}
        mark[BIRTHS_OF_PARTS.decode()] = json.dumps(of_parts, separators=(",", ":"))
    known = [(str(one), before[one]) for one in sorted(before)]
    names = {one: sorted(then.names) for one, then in known if then.names is not None}
    since = {one: then.since for one, then in known if then.since is not None}
    if names:
        mark[UNMARKED_NAMES.decode()] = json.dumps(names, separators=(",", ":"))
    if since:
        mark[UNMARKED_SINCE.decode()] = json.dumps(since, separators=(",", ":"))
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

    A part whose name differs from the mark may be another one.

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


def unmarked_in(schema: Iterable[pa.Field]) -> dict[int, Unmarked]:
    """Return by field id what columns and parts are marked with of the time before.

    Raises
    ------
    CorruptionError
        The note is malformed.

    Examples
    --------
    >>> noted = {"weir:unmarked_names": '{"7":["delay","late"]}', "weir:unmarked_since": '{"7":1000}'}
    >>> (before,) = unmarked_in(pa.schema([pa.field("late", pa.int32(), metadata=noted)])).values()
    >>> sorted(before.names), before.since
    (['delay', 'late'], 1000)
    """
    before: dict[int, Unmarked] = {}
    for column in schema:
        names = _noted(column, UNMARKED_NAMES, lambda own: frozenset(map(str, own)))
        since = _noted(column, UNMARKED_SINCE, int)
        before |= {one: Unmarked(names.get(one), since.get(one)) for one in {*names, *since}}
    return before


def _noted(column: pa.Field, key: bytes, read: Callable[[Any], Any]) -> dict[int, Any]:
    text = (column.metadata or {}).get(key)
    if text is None:
        return {}
    try:
        return {int(number): read(value) for number, value in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise CorruptionError(
            f"column {column.name!r} is marked with {text[:80]!r} as {key.decode()}"
        ) from error


def same_birth(number: int, one: Births, other: Births) -> bool:
    """Whether two fields of one id may be the same: their births do not differ.

    Examples
    --------
    >>> same_birth(7, {7: "0"}, {7: "3-00c0ffee00c0ffee"}), same_birth(7, {7: "0"}, {7: None})
    (False, True)
    """
    before, after = one.get(number), other.get(number)
    return before is None or after is None or before == after


def has_marks(schema: Iterable[pa.Field]) -> bool:
    """Whether every column and part with a field id is marked with its birth, or none has a field id.

    Examples
    --------
    >>> delay = pa.field("delay", pa.int32(), metadata={"lance:field_id": "7"})
    >>> has_marks(pa.schema([delay])), has_marks(with_births(pa.schema([delay]), {7: "0"}))
    (False, True)
    """
    return None not in births_of(schema).values()


def microseconds(time: datetime) -> int:
    """Return a time as :class:`Unmarked` has it.

    Examples
    --------
    >>> microseconds(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    1000000
    """
    return (time - _EPOCH) // timedelta(microseconds=1)


def stored_at(schema: pa.Schema, time: datetime) -> pa.Schema:
    """Return the schema of rows that were stored at a time, for who looks for what they are of."""
    return schema.with_metadata({**(schema.metadata or {}), STORED_AT: str(microseconds(time)).encode()})


def with_births(schema: pa.Schema, births: Births, before: BeforeMarks = NOTHING_BEFORE) -> pa.Schema:
    """Return a schema with field ids whose columns are marked with births, as far as they are known.

    Of the time before it is told what is given, and what a column is marked with. A column without a birth
    bears that alone.

    Examples
    --------
    >>> delay = pa.field("delay", pa.int32(), metadata={"lance:field_id": "7"})
    >>> births_of(with_births(pa.schema([delay]), {7: "0"}))
    {7: '0'}
    """
    return pa.schema([_marked(column, births, before) for column in schema], metadata=schema.metadata)


def without_births(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose columns are not marked: as callers are shown it."""
    if not any(column.metadata and not column.metadata.keys().isdisjoint(_MARKS) for column in schema):
        return schema
    return pa.schema([_unmarked(column) for column in schema], metadata=schema.metadata)


def _marked(column: pa.Field, births: Births, before: BeforeMarks) -> pa.Field:
    number = field_id(column)
    if number is None:
        return _unmarked(column)
    told = unmarked_in([column])
    parts = {}
    if number in before:
        told[number] = before[number]
    for part in _parts(column):
        own = field_id(part)
        if own is None:
            continue
        if own in before:
            told[own] = before[own]
        known = births.get(own)
        if known is not None:
            parts[own] = (part.name, known)
    birth = births.get(number)
    if birth is None and not told:
        return _unmarked(column)
    mark = {key.encode(): value.encode() for key, value in encode_mark(birth or "", parts, told).items()}
    if birth is None:
        del mark[BIRTH]
        mark.pop(BIRTHS_OF_PARTS, None)
    return column.with_metadata({**(_unmarked(column).metadata or {}), **mark})


def _unmarked(column: pa.Field) -> pa.Field:
    metadata = column.metadata or {}
    kept = {key: value for key, value in metadata.items() if key not in _MARKS}
    return column.with_metadata(kept or None)


def _parts(column: pa.Field) -> Iterable[pa.Field]:
    for part in children_of(column.type):
        yield part
        yield from _parts(part)
