"""When a column came into its table: what tells it from another one that has had its field id before.

Lance gives the id of a dropped column out again, where nothing in the newest version has it any more: no file
of its data, and no column. Rows in a log or a generation that still have the dropped column would then show
its values in the new one. So each column of a table is marked with its *birth*, among the metadata that
Lance keeps with the column. Whoever writes a log entry or a generation copies the mark with the column, the
released library too. Two columns of one id and different births are two columns.

Plain Lance marks no column that it adds. What birth such a column has is found out from the versions of the
table (:mod:`weir.base.column_births`), and the next writer of Weir marks it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

import pyarrow as pa

__all__ = ["BIRTH", "FIRST", "birth_at", "birth_of", "same_birth", "with_births", "without_births"]

BIRTH = b"weir:birth"
"""Metadata key of a column whose value is its birth."""

FIRST = "0"
"""Birth of the columns that a table had when its columns were first marked."""


def birth_of(field: pa.Field) -> str | None:
    """Return the birth a column is marked with; None if it has no mark."""
    mark = None if field.metadata is None else field.metadata.get(BIRTH)
    return None if mark is None else mark.decode(errors="replace")


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


def same_birth(one: pa.Field, other: pa.Field) -> bool:
    """Whether two columns of one field id may be the same column: their births do not tell otherwise.

    Examples
    --------
    >>> dropped = pa.field("delay", pa.int32(), metadata={"weir:birth": "0"})
    >>> added = pa.field("gate", pa.int32(), metadata={"weir:birth": "7-00c0ffee00c0ffee"})
    >>> same_birth(dropped, added), same_birth(dropped, added.remove_metadata())
    (False, True)
    """
    before, after = birth_of(one), birth_of(other)
    return before is None or after is None or before == after


def with_births(schema: pa.Schema, births: Mapping[str, str]) -> pa.Schema:
    """Return a schema whose columns are marked with births, by their names; the others stay as they are."""
    fields = [
        field.with_metadata({**(field.metadata or {}), BIRTH: births[field.name].encode()})
        if field.name in births
        else field
        for field in schema
    ]
    return pa.schema(fields, metadata=schema.metadata)


def without_births(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose columns are not marked: as callers are shown it."""
    if all(birth_of(field) is None for field in schema):
        return schema
    return pa.schema([_without(field) for field in schema], metadata=schema.metadata)


def _without(field: pa.Field) -> pa.Field:
    metadata = {key: value for key, value in (field.metadata or {}).items() if key != BIRTH}
    return field.with_metadata(metadata or None)
