"""Which schemas a base table may have, and how the primary key is recorded in them.

Lance records an unenforced primary key in the metadata of its fields (Lance table format spec,
"Unenforced Primary Key"): every key column carries :data:`KEY_FIELD`, and :data:`KEY_POSITION` counts
the columns of a composite key from 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

import lance
import pyarrow as pa
from lance.schema import LanceSchema

from weir.base.library_errors import LIBRARY_ERRORS
from weir.base.stored_types import check_type, refuse_blobs
from weir.errors import SchemaError
from weir.format.keys import PrimaryKey

if TYPE_CHECKING:
    from lance.lance.schema import LanceField

__all__ = [
    "FEED_NAMES",
    "KEY_FIELD",
    "KEY_POSITION",
    "MOST_CHARACTERS",
    "RESERVED_NAMES",
    "all_field_ids",
    "check_column_name",
    "check_new_column",
    "check_new_part",
    "field_ids",
    "key_metadata",
    "table_schema",
]

KEY_FIELD = "lance-schema:unenforced-primary-key"
"""Field metadata key that marks a primary-key column; its value is ``true``."""

KEY_POSITION = "lance-schema:unenforced-primary-key:position"
"""Field metadata key with the place of a column in a composite primary key, from 1."""

_REFUSALS: tuple[type[Exception], ...] = (*LIBRARY_ERRORS, NotImplementedError, TypeError)

RESERVED_NAMES = frozenset(
    {
        "*",
        "__action",
        "__merge_source_sentinel",
        "_distance",
        "_gen",
        "_memtable_gen",
        "_row_created_at_version",
        "_row_last_updated_at_version",
        "_rowaddr",
        "_rowid",
        "_rowoffset",
        "_score",
        "_tombstone",
    }
)
"""Names of columns that Weir or Lance adds to rows, and the name that Lance reads as all columns."""

FEED_NAMES = frozenset({"_before", "_epoch", "_op", "_position", "_shard"})
"""Names of columns that the change feed adds: a table that has one of them has no feed."""


MOST_CHARACTERS = 255
"""Longest name of a new column. Lance has no limit; schemas, entries and manifests all repeat the name."""


def table_schema(
    schema: pa.Schema, primary_key: Sequence[str], *, required: Sequence[str] | None = None
) -> pa.Schema:
    """Return the schema a base table gets: checked, as Lance stores it, with its primary key marked.

    Key columns become not nullable. Types that Lance stores as
    another one (``string_view`` as ``string``) come back as that. Nothing is written.

    Parameters
    ----------
    schema : pyarrow.Schema
        What the caller asks for. Primary-key marks in it are replaced.
    primary_key : sequence of str
        Key columns, in key order; empty for an append-only table.
    required : sequence of str, optional
        For an append-only table: columns that become not nullable. Default: the table has a key.

    Raises
    ------
    SchemaError
        There is no column, a name is empty, doubled, reserved or not one Lance can store, a key
        column is missing, named twice or of a type no key may have, or Lance cannot store a type.

    Examples
    --------
    >>> marked = table_schema(pa.schema([("id", pa.int64()), ("delay", pa.float32())]), ["id"])
    >>> marked.field("id").nullable, marked.field("id").metadata
    (False, {b'lance-schema:unenforced-primary-key': b'true'})
    """
    if not isinstance(schema, pa.Schema):
        raise SchemaError(f"a table schema is a pyarrow.Schema, not {type(schema).__name__}")
    if not isinstance(primary_key, Sequence):
        raise SchemaError(
            f"the primary key is a column name or a sequence of them, not {primary_key!r}",
            where="primary_key",
        )
    if isinstance(primary_key, str):
        raise SchemaError(
            f"the primary key is a sequence of column names, not the text {primary_key!r}",
            hint=f"Pass ({primary_key!r},)",
        )
    _check_names(schema)
    refuse_blobs(schema)
    for field in schema:
        check_type(field.type, field.name)
    quoted = next((name for name in primary_key if isinstance(name, str) and '"' in name), None)
    if quoted is not None:
        raise SchemaError(f"Lance cannot merge by a key column called {quoted!r}", where=quoted)
    missing = [name for name in primary_key if name not in schema.names]
    if missing:
        raise SchemaError(
            f"primary-key column {missing[0]!r} is not in the schema",
            where=missing[0],
            hint=f"Columns: {', '.join(schema.names)}",
        )
    marked = pa.schema([_marked(field, primary_key) for field in schema], metadata=schema.metadata)
    if required is None:
        # Before the library sees it: Weir knows better what to say about keys.
        PrimaryKey.from_schema(marked, tuple(primary_key))
    marked = pa.schema(
        [one.with_nullable(False) if one.name in (required or ()) else one for one in marked],
        metadata=marked.metadata,
    )
    return _dry_run(marked).schema


def key_metadata(position: int, columns: int) -> dict[str, str]:
    """Return the field metadata of a key column.

    Parameters
    ----------
    position : int
        Place of the column in the key, from 0.
    columns : int
        Number of key columns.
    """
    metadata = {KEY_FIELD: "true"}
    if columns > 1:
        metadata[KEY_POSITION] = str(position + 1)
    return metadata


def field_ids(schema: pa.Schema) -> dict[str, int]:
    """Return the id Lance gives every top-level column of a new table.

    Shard specs name their source columns by id, and are needed before the table exists.

    Examples
    --------
    >>> field_ids(pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string())), ("delay", pa.float32())]))
    {'id': 0, 'tags': 1, 'delay': 3}
    """
    names = set(schema.names)
    return {name: number for name, number in all_field_ids(schema).items() if name in names}


def all_field_ids(schema: pa.Schema | LanceSchema) -> dict[str, int]:
    """Return the id of every column and nested field, by its path with dots.

    Parameters
    ----------
    schema : pyarrow.Schema or LanceSchema
        The schema of a new or an existing table.
    """
    lance_schema = _dry_run(schema).lance_schema if isinstance(schema, pa.Schema) else schema
    found: dict[str, int] = {}

    def visit(field: LanceField, path: str) -> None:
        found[path] = field.id()
        for child in field.children():
            visit(child, f"{path}.{child.name()}")

    for field in lance_schema.fields():
        visit(field, field.name())
    return found


def _check_names(schema: pa.Schema) -> None:
    if not len(schema):
        raise SchemaError("a table needs at least one column")
    seen: set[str] = set()
    for name in schema.names:
        if name in seen:
            raise SchemaError(f"column {name!r} is in the schema more than once", where=name)
        seen.add(name)
        check_column_name(name)


def _marked(field: pa.Field, primary_key: Sequence[str]) -> pa.Field:
    metadata = {
        key: value
        for key, value in (field.metadata or {}).items()
        if key not in (KEY_FIELD.encode(), KEY_POSITION.encode())
    }
    if pa.types.is_string_view(field.type) or pa.types.is_binary_view(field.type):
        field = field.with_type(pa.string() if pa.types.is_string_view(field.type) else pa.binary())
    if field.name in primary_key:
        position = list(primary_key).index(field.name)
        marks = key_metadata(position, len(primary_key))
        metadata.update({key.encode(): value.encode() for key, value in marks.items()})
        field = field.with_nullable(False)
    return field.with_metadata(metadata)


def _dry_run(schema: pa.Schema) -> lance.LanceDataset:
    """Write an empty dataset to memory: the library's own verdict, before anything is stored."""
    try:
        return lance.write_dataset(schema.empty_table(), f"memory://{uuid4()}", schema=schema)
    except _REFUSALS as error:
        raise SchemaError(
            f"Lance cannot store this schema: {_first_line(error)}",
            where=_culprit(schema),
            hint="Change the type or name of the column",
        ) from error


def _culprit(schema: pa.Schema) -> str | None:
    """Return the first column that fails on its own, to name it in the error."""
    for field in schema:
        lonely = pa.schema([field])
        try:
            lance.write_dataset(lonely.empty_table(), f"memory://{uuid4()}", schema=lonely)
        except _REFUSALS:
            return str(field.name)
    return None


def _first_line(error: Exception) -> str:
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return text.split(", /")[0]


def check_column_name(name: str) -> None:
    """Refuse a name that no column can have.

    Raises
    ------
    SchemaError
        If it is reserved, empty, has a dot or a backtick in it, half of a surrogate pair, which no file can
        hold, or the character 0, at which it would be cut.
    """
    if name in RESERVED_NAMES:
        raise SchemaError(
            f"the column name {name!r} is reserved",
            where=name,
            hint=f"Reserved names: {', '.join(sorted(RESERVED_NAMES))}",
        )
    is_text = not any("\ud800" <= character <= "\udfff" for character in name)
    if not name or not is_text or any(character in name for character in ".`\0"):
        raise SchemaError(
            f"Lance cannot store a column called {name!r}",
            where=name,
            hint="A name has at least one character, and no dot, no backtick, no character 0 and no half of "
            "a surrogate pair",
        )


def check_new_column(field: pa.Field) -> None:
    """Refuse a name that no column, or part of one, gets through Weir, though plain Lance may have given it.

    Raises
    ------
    SchemaError
        As :func:`check_column_name`; it is too long; or the change feed adds a column of that name.

    Examples
    --------
    >>> check_new_column(pa.field("_op", pa.string()))
    Traceback (most recent call last):
    weir.errors.SchemaError: the column name '_op' is reserved: the change feed adds a column of that name ...
    """
    check_column_name(field.name)
    if field.name in FEED_NAMES:
        raise SchemaError(
            f"the column name {field.name!r} is reserved: the change feed adds a column of that name",
            where=field.name,
            hint=f"Choose a name other than {', '.join(sorted(FEED_NAMES))}",
        )
    _check_lengths(field)


def check_new_part(name: str) -> None:
    """Refuse a name that no part of a column gets through Weir.

    Raises
    ------
    SchemaError
        As :func:`check_column_name`, or it is too long.
    """
    check_column_name(name)
    _check_lengths(pa.field(name, pa.null()))


def _check_lengths(field: pa.Field) -> None:
    if len(field.name) > MOST_CHARACTERS:
        raise SchemaError(
            f"a column name has at most {MOST_CHARACTERS} characters, and {field.name[:20]!r}... has "
            f"{len(field.name):,}",
            where=f"{field.name[:20]}...",
        )
    for number in range(field.type.num_fields):
        _check_lengths(field.type.field(number))
