"""Vectors with their ids and attributes, in the bodies of requests and answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from weir.errors import InputError
from weir.namespaces import Documents, Namespace
from weir.namespaces.names import ID, VECTOR, check_attribute_name
from weir.namespaces.values import documents_of
from weir.service.fields import known_only, mapping, sequence, whole
from weir.service.limits import MOST_ANSWER_BYTES
from weir.service.openapi import members
from weir.service.refusals import Refusal
from weir.service.zeppelin import shapes

__all__ = ["check_dimensions", "dimensions_of", "parse_ids", "parse_vectors", "shown_vectors", "unpacked"]

_MOST_FETCHED = 10_000


def parse_vectors(body: Mapping[str, Any]) -> Documents:
    """Parse the vectors of an upsert, row by row or in columns.

    Raises
    ------
    InputError
        If they are not valid.
    """
    columnar = body.get("columnar")
    if columnar is not None:
        known_only(body, frozenset({"columnar"}), "an upsert")
        return _columnar(mapping(columnar, "columnar"))
    known_only(body, frozenset({"vectors"}), "an upsert")
    rows = []
    vectors = sequence(body.get("vectors"), "vectors")
    if not vectors:
        raise InputError("vectors has at least one")
    for at, value in enumerate(vectors):
        one = mapping(value, f"vector {at}")
        known_only(one, members(shapes.VectorShape), f"vector {at}")
        if not isinstance(one.get("id"), str):
            raise InputError(f"vector {at} has no id")
        attributes = _attributes(one.get("attributes"), at)
        values = sequence(one.get("values"), f"values of vector {at}")
        rows.append({ID: one["id"], VECTOR: values, **attributes})
    return Documents.of_rows(rows)


def unpacked(raw: bytes) -> dict[str, Any]:
    """Return a body in MessagePack.

    Raises
    ------
    Refusal
        If it is none.
    """
    try:
        value = msgspec.msgpack.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(400, "invalid_request", "the body is not MessagePack") from error
    return mapping(value, "the body")


def parse_ids(body: Mapping[str, Any]) -> list[str]:
    """Parse the ids that a request names.

    Raises
    ------
    InputError
        If they are not valid.
    """
    ids = sequence(body.get("ids"), "ids")
    if not 1 <= len(ids) <= _MOST_FETCHED or not all(isinstance(one, str) for one in ids):
        raise InputError(f"ids is a list of 1 to {_MOST_FETCHED:,} texts")
    return ids


def dimensions_of(namespace: Namespace) -> int:
    """Return the dimensions of a namespace's vectors.

    Raises
    ------
    InputError
        If it has none.
    """
    vector = namespace.definition.attributes.get(VECTOR)
    if vector is None or vector.type.dimensions is None:
        raise InputError("the namespace has no vectors")
    return vector.type.dimensions


def check_dimensions(documents: Documents, dimensions: int) -> None:
    """Refuse vectors of other dimensions.

    Raises
    ------
    Refusal
        Naming both.
    """
    for values in documents.values[VECTOR]:
        if isinstance(values, list | np.ndarray) and len(values) != dimensions:
            raise Refusal(
                400, "DIMENSION_MISMATCH", f"dimension mismatch: expected {dimensions}, got {len(values)}"
            )


def shown_vectors(
    namespace: Namespace, ids: Sequence[str], with_vector: bool, attributes: Collection[str] | None
) -> dict[str, Any]:
    """Return vectors by their ids in the dialect's form, with some attributes; None is for all.

    Raises
    ------
    InputError
        If they are too large for one answer.
    """
    present = [name for name in namespace.definition.attributes if name != VECTOR]
    names = [name for name in present if attributes is None or name in attributes]
    rows = namespace.get(ids, [*names, *([VECTOR] if with_vector else [])])
    if rows.nbytes > MOST_ANSWER_BYTES:
        raise InputError(f"the vectors have more than {MOST_ANSWER_BYTES:,} bytes: fetch fewer")
    found = {one[ID]: one for one in documents_of(rows, rows.schema.names)}
    results = []
    for one in (found[id] for id in ids if id in found):
        shown: dict[str, Any] = {"id": one[ID]}
        if (vector := one.get(VECTOR)) is not None:
            # With as few digits as float32 needs.
            shown["values"] = [float(text) for text in np.asarray(vector, np.float32).astype(str)]
        # An attribute that was dropped a moment ago is in none of them.
        given = {name: value for name in names if (value := one.get(name)) is not None}
        if given:
            shown["attributes"] = given
        results.append(shown)
    return {"results": results, "missing": [id for id in ids if id not in found]}


def _attributes(value: object, at: int) -> dict[str, Any]:
    attributes = mapping({} if value is None else value, f"attributes of vector {at}")
    for name in attributes:
        check_attribute_name(name)
        if name in (ID, VECTOR):
            raise InputError(f"vector {at}: an attribute is not called {name!r}")
    return attributes


def _columnar(asked: Mapping[str, Any]) -> Documents:
    known_only(asked, frozenset({"ids", "dimensions", "values_f32_le", "attributes"}), "columnar")
    ids = sequence(asked.get("ids"), "ids")
    dimensions = whole(asked, "dimensions", 1, 65_536, 1)
    raw = asked.get("values_f32_le")
    if not ids or not all(isinstance(one, str) for one in ids):
        raise InputError("ids is a list of texts")
    if not isinstance(raw, bytes) or len(raw) != 4 * dimensions * len(ids):
        raise InputError("values_f32_le has 4 bytes for every dimension of every id")
    matrix = np.frombuffer(raw, dtype="<f4").reshape(len(ids), dimensions)
    given = asked.get("attributes") or [None] * len(ids)
    if len(sequence(given, "attributes")) != len(ids):
        raise InputError("attributes has an element for every id")
    rows = [{ID: id, **_attributes(one, at)} for at, (id, one) in enumerate(zip(ids, given, strict=True))]
    documents = Documents.of_rows(rows)
    return Documents(ids, {VECTOR: list(matrix), **documents.values})
