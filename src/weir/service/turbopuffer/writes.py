"""Parsing of writes in JSON, and their results in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from weir.errors import InputError, UnsupportedError
from weir.namespaces import Documents, Patch, Write, Written
from weir.namespaces.filter.expression import Filter
from weir.namespaces.names import ID, VECTOR, check_attribute_name
from weir.namespaces.vectors import Base64Texts, one_vector
from weir.service.fields import flag, given, known_only, mapping, sequence
from weir.service.openapi import members
from weir.service.turbopuffer.filters import parse_filter
from weir.service.turbopuffer.schema import parse_metric, parse_schema
from weir.service.turbopuffer.shapes import CopySource, PatchByFilter, WriteBody

__all__ = ["copied_from", "parse_write", "refuse_doubled", "shown_written"]

_KNOWN = members(WriteBody)
_LEFT_OUT = ("branch_from_namespace", "sharding")


def refuse_left_out(body: Mapping[str, Any]) -> None:
    """Refuse unsupported features by name.

    Raises
    ------
    UnsupportedError
        Naming it.
    """
    for name in _LEFT_OUT:
        if body.get(name) is not None:
            raise UnsupportedError(f"{name} is not offered")
    encryption = body.get("encryption")
    if encryption is not None and encryption != {"mode": "default"}:
        raise UnsupportedError("encryption by keys of the customer is not offered")


def copied_from(body: Mapping[str, Any]) -> str | None:
    """Return the namespace that a write copies; None if it copies none.

    Raises
    ------
    InputError
        If it also does something else.
    """
    value = body.get("copy_from_namespace")
    if value is None:
        return None
    known_only(body, _KNOWN, "a write")
    refuse_left_out(body)
    others = {*body} - {"copy_from_namespace", "encryption"}
    if others:
        raise InputError(f"a write that copies a namespace does nothing else, such as {min(others)}")
    if isinstance(value, dict):
        known_only(
            value,
            members(CopySource),
            "copy_from_namespace",
        )
        for name in ("source_api_key", "source_region", "dest_encryption"):
            if value.get(name):
                raise UnsupportedError(f"{name} of copy_from_namespace is not offered")
        value = value.get("source_namespace")
    if not isinstance(value, str):
        raise InputError("copy_from_namespace names a namespace")
    return value


def parse_write(body: Mapping[str, Any], depth: int) -> Write:
    """Parse a write.

    Raises
    ------
    InputError, UnsupportedError
        If it is not valid.
    """
    known_only(body, _KNOWN, "a write")
    refuse_left_out(body)

    def condition(name: str) -> Filter | None:
        value = body.get(name)
        return None if value is None else parse_filter(value, depth)

    write = Write(
        upserts=_documents(body, "upsert_rows", "upsert_columns"),
        patches=_documents(body, "patch_rows", "patch_columns"),
        deletes=sequence(given(body, "deletes", []), "deletes"),
        delete_where=condition("delete_by_filter"),
        patch_where=_patch(body.get("patch_by_filter"), depth),
        delete_partial=flag(body, "delete_by_filter_allow_partial"),
        patch_partial=flag(body, "patch_by_filter_allow_partial"),
        upsert_condition=condition("upsert_condition"),
        patch_condition=condition("patch_condition"),
        delete_condition=condition("delete_condition"),
        declarations=parse_schema(body.get("schema")),
        metric=parse_metric(body.get("distance_metric")),
        create=None if body.get("create_namespace") is None else flag(body, "create_namespace"),
        return_ids=flag(body, "return_affected_ids"),
    )
    refuse_doubled(write)
    return write


def refuse_doubled(write: Write) -> None:
    """Refuse invalid ids, and ids that occur twice in a write.

    Raises
    ------
    InputError
        Naming the row.
    """
    seen: set[Any] = set()
    for ids in (
        () if write.upserts is None else write.upserts.ids,
        () if write.patches is None else write.patches.ids,
        write.deletes,
    ):
        for row, one in enumerate(ids):
            if not isinstance(one, int | str) or isinstance(one, bool):
                raise InputError(f"row {row}: an id is a whole number or a text")
            if one in seen:
                raise InputError(f"row {row}: the id occurs twice in the write")
            seen.add(one)


def _documents(body: Mapping[str, Any], rows_name: str, columns_name: str) -> Documents | None:
    rows, columns = body.get(rows_name), body.get(columns_name)
    if rows is None and columns is None:
        return None
    of_rows = None if rows is None else _rows(sequence(rows, rows_name), rows_name)
    of_columns = None if columns is None else _columns(mapping(columns, columns_name), columns_name)
    if of_rows is not None and of_columns is not None:
        if len(of_rows) and len(of_columns):
            raise InputError(f"a write has {rows_name} or {columns_name}, and not both")
        return _decodable(of_rows if len(of_rows) else of_columns)
    return _decodable(of_rows if of_rows is not None else of_columns)


def _decodable(documents: Documents | None) -> Documents | None:
    """Return documents whose texts, should they turn out to be vectors, are decoded fast."""
    if documents is None:
        return None
    values = {
        name: Base64Texts(column, _decode) if column and isinstance(column[0], str) else column
        for name, column in documents.values.items()
    }
    return Documents(documents.ids, values, documents.given)


def _decode(texts: list[str]) -> list[bytes]:
    return msgspec.convert(texts, list[bytes])


def _rows(rows: list[Any], name: str) -> Documents:
    for at, row in enumerate(rows):
        if not isinstance(row, dict):
            raise InputError(f"row {at}: {name} is a list of objects")
        if ID not in row:
            raise InputError(f"row {at}: the document has no id")
    documents = Documents.of_rows(rows)
    for attribute in documents.values:
        check_attribute_name(attribute)
    return documents


def _columns(columns: Mapping[str, Any], name: str) -> Documents:
    ids = sequence(columns.get(ID), f"id of {name}")
    values: dict[str, list[Any]] = {}
    for attribute, column in columns.items():
        if attribute == ID:
            continue
        check_attribute_name(attribute)
        if attribute == VECTOR and _is_one_vector(column):
            column = _parted(column, len(ids))
        values[attribute] = sequence(column, f"{attribute!r} of {name}")
        if len(values[attribute]) != len(ids):
            raise InputError(
                f"{attribute!r} of {name} has {len(values[attribute])} values for {len(ids)} ids"
            )
    return Documents(ids, values)


def _is_one_vector(column: object) -> bool:
    if isinstance(column, str):
        return True
    return isinstance(column, list) and bool(column) and all(isinstance(one, int | float) for one in column)


def _parted(column: object, rows: int) -> list[Any]:
    """Return the vectors of all documents, given as one value."""
    flat = one_vector(column)
    if not rows or len(flat) % rows:
        raise InputError(f"the vectors of {rows} documents do not have {len(flat)} numbers together")
    return list(flat.reshape(rows, -1))


def _patch(value: object, depth: int) -> Patch | None:
    if value is None:
        return None
    asked = mapping(value, "patch_by_filter")
    known_only(asked, members(PatchByFilter), "patch_by_filter")
    values = mapping(asked.get("patch"), "patch of patch_by_filter")
    for name in values:
        check_attribute_name(name)
        if name == ID:
            raise InputError("a patch does not change the id of a document")
    if VECTOR in values:
        raise InputError("a patch by filter does not change vectors")
    return Patch(parse_filter(asked.get("filters"), depth), values)


def shown_written(write: Write, written: Written, milliseconds: int) -> dict[str, Any]:
    """Return the result of a write in the dialect's form."""
    affected = written.upserted + written.patched + written.deleted
    shown: dict[str, Any] = {
        "status": "OK",
        "message": "written",
        "rows_affected": affected,
        "billing": {"billable_logical_bytes_written": written.bytes},
        "performance": {"server_total_ms": milliseconds},
    }
    if write.upserts is not None:
        shown["rows_upserted"] = written.upserted
    if write.patches is not None or write.patch_where is not None:
        shown["rows_patched"] = written.patched
    if len(write.deletes) or write.delete_where is not None:
        shown["rows_deleted"] = written.deleted
    if write.delete_where is not None or write.patch_where is not None:
        shown["rows_remaining"] = written.remaining
    if write.return_ids:
        ids = {
            "upserted_ids": written.upserted_ids,
            "patched_ids": written.patched_ids,
            "deleted_ids": written.deleted_ids,
        }
        shown.update({name: one for name, one in ids.items() if one})
    return shown
