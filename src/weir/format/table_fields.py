"""The columns in a Lance table's own manifest, with their ids.

The library exports a schema only as Arrow, and chooses the ids itself when it imports one. To rename a
column, or to add one, the ids of all others must stay: so the fields are taken from the manifest, changed,
and put back as messages. Lance table format spec, "Schema".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from weir.format import messages
from weir.format.buffers import Bytes
from weir.format.field_births import NOTHING_BEFORE, BeforeMarks, Births, Unmarked, decode_mark, encode_mark
from weir.format.proto import memwal_pb2
from weir.format.table_manifest import read_head

__all__ = ["NO_PARENT", "TableField", "decode_fields", "encode_fields", "paths"]

NO_PARENT = -1
"""Parent of a column that is not part of another."""


@dataclass(frozen=True, slots=True)
class TableField:
    """A column of a table, or a part of one.

    Parameters
    ----------
    name : str
        Its name, without those of its parents.
    id : int
        Its field id.
    parent_id : int
        The id of its parent; :data:`NO_PARENT` for a column.
    logical_type : str
        Its type as Lance writes it, such as ``int32`` or ``fixed_size_list:float:128``.
    encoding : int
        The encoding that Lance notes beside the type.
    rest : bytes, default b""
        Everything else about it, serialised: nullability, marks of the primary key.
    metadata : mapping of str to bytes, default {}
        What users and libraries have noted about it.
    """

    name: str
    id: int
    parent_id: int
    logical_type: str
    encoding: int
    rest: bytes = b""
    metadata: Mapping[str, bytes] = dataclasses.field(default_factory=dict, hash=False)

    def as_key(self, position: int, metadata: Mapping[str, str]) -> TableField:
        """Return the field as a column of the primary key, which is never null.

        Parameters
        ----------
        position : int
            Its place in the key, from 1; 0 if it is the whole key.
        metadata : mapping of str to str
            The note about such a column.
        """
        marks = memwal_pb2.KeyMarks(nullable=False, is_key=True, key_position=position)
        noted = {**self.metadata, **{name: value.encode() for name, value in metadata.items()}}
        # What comes later counts.
        return replace(self, rest=self.rest + marks.SerializeToString(), metadata=noted)

    def typed_as(self, other: TableField) -> TableField:
        """Return the field with the type of another."""
        return replace(self, logical_type=other.logical_type, encoding=other.encoding)


def decode_fields(manifest: Bytes, *, where: str) -> tuple[TableField, ...]:
    """Return every field of a table's schema, each column followed by its parts.

    Parameters
    ----------
    manifest : bytes-like
        The whole manifest file.
    where : str
        Path of the file, for the error.

    Raises
    ------
    CorruptionError
        The bytes are not a Lance table manifest.
    """
    return tuple(
        TableField(
            field.name,
            field.id,
            field.parent_id,
            field.logical_type,
            field.encoding,
            metadata=dict(field.metadata),
            # Last: it uses the message up.
            rest=messages.unknown_fields(field),
        )
        for field in read_head(manifest, where=where).fields
    )


def encode_fields(fields: Iterable[TableField]) -> list[bytes]:
    """Return each field as the message that the library makes a schema of."""
    encoded = []
    for field in fields:
        message = memwal_pb2.TableField(
            name=field.name,
            id=field.id,
            parent_id=field.parent_id,
            logical_type=field.logical_type,
            encoding=field.encoding,
            metadata=field.metadata,
        )
        message.MergeFromString(field.rest)
        encoded.append(messages.serialize(message))
    return encoded


def paths(fields: Iterable[TableField]) -> dict[str, TableField]:
    """Return the fields by their path, with dots between the names.

    Examples
    --------
    >>> point = TableField("point", 0, NO_PARENT, "struct", 0)
    >>> list(paths([point, TableField("x", 1, 0, "float", 1)]))
    ['point', 'point.x']
    """
    by_id: dict[int, str] = {}
    found = {}
    for field in fields:
        path = field.name if field.parent_id == NO_PARENT else f"{by_id[field.parent_id]}.{field.name}"
        by_id[field.id] = path
        found[path] = field
    return found


def births_in(fields: Iterable[TableField]) -> dict[int, str | None]:
    """Return the births of fields as far as they are marked (:mod:`weir.format.field_births`)."""
    births: dict[int, str | None] = {}
    columns: dict[int, dict[int, tuple[str, str]]] = {}
    for field in fields:
        if field.parent_id == NO_PARENT:
            mark = {key.encode(): value for key, value in field.metadata.items()}
            births[field.id], columns[field.id] = decode_mark(mark)
        else:
            columns[field.id] = columns[field.parent_id]
            name, birth = columns[field.id].get(field.id, ("", ""))
            births[field.id] = birth if birth and name == field.name else None
    return births


def marks_for(
    fields: Iterable[TableField], births: Births, before: BeforeMarks = NOTHING_BEFORE
) -> dict[int, dict[str, str]]:
    """Return the metadata with which columns are marked with births, by field id.

    Columns and parts whose birth is unknown are left out.
    """
    parts: dict[int, dict[int, tuple[str, str]]] = {}
    told: dict[int, dict[int, Unmarked]] = {}
    for field in fields:
        is_column = field.parent_id == NO_PARENT
        told[field.id] = {} if is_column else told[field.parent_id]
        if field.id in before:
            told[field.id][field.id] = before[field.id]
        if is_column:
            parts[field.id] = {}
            continue
        parts[field.id] = parts[field.parent_id]
        birth = births.get(field.id)
        if birth is not None:
            parts[field.id][field.id] = (field.name, birth)
    return {
        field.id: encode_mark(birth, parts[field.id], told[field.id])
        for field in fields
        if field.parent_id == NO_PARENT and (birth := births.get(field.id)) is not None
    }
