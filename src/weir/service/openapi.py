"""The OpenAPI description, generated from routes and the types of bodies, responses and errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

import weir

__all__ = ["JSON", "Declared", "Shape", "description", "members"]

JSON = "application/json"

_PARAMETER = re.compile(r"\{(\w+)\}")
_STATUSES = {
    "400": "The request is malformed; nothing was changed.",
    "401": "No key, or none that is good.",
    "403": "The key is not for this, whether or not it exists.",
    "404": "There is none.",
    "409": "It is not as the request expects it.",
    "410": "It is being deleted.",
    "413": "Too large.",
    "415": "Packed in an unknown way.",
    "422": "Another body came with this Idempotency-Key before.",
    "429": "Too many requests, or too much to merge: try again after Retry-After.",
    "501": "A feature that is left out, by its name.",
    "503": "Not at this moment: try again after Retry-After.",
    "507": "The disk is full: try again after Retry-After.",
}


_REFERENCE = "#/components/schemas/{name}"
_NAMED = frozenset({"namespace", "store", "name"})
_NAMES = {"type": "string", "pattern": r"^[A-Za-z0-9\-_.]{1,128}$"}
_OTHERS = {"type": "string", "pattern": r"^[A-Za-z0-9\-_]{1,128}$"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The input and output of a call.

    Parameters
    ----------
    body : type, optional
        The type of the JSON body. Default: no body.
    parameters : type, optional
        The type of the query parameters. Default: none.
    answer : type, optional
        The type of the JSON response. Default: empty.
    statuses : tuple of int
        The statuses of successful responses. Default 200.
    is_optional : bool
        Whether the body may be omitted. Default False.
    body_media, answer_media : tuple of str
        Media types beside JSON, or instead of it if there is no type.
    """

    body: Any = None
    parameters: type[msgspec.Struct] | None = None
    answer: Any = None
    statuses: tuple[int, ...] = (200,)
    is_optional: bool = False
    body_media: tuple[str, ...] = ()
    answer_media: tuple[str, ...] = ()


def members(shape: type[msgspec.Struct]) -> frozenset[str]:
    """Return the members of a type, with the names that clients use."""
    return frozenset(one.encode_name for one in msgspec.structs.fields(shape))


@dataclass(frozen=True, slots=True)
class Declared:
    """A call of the service.

    Parameters
    ----------
    path, method : str
        The path and method of the requests.
    summary : str
        What it does, in one sentence.
    is_open : bool
        Whether it needs no key.
    refused : type
        The type of its error response.
    shape : Shape
        Its input and output.
    """

    path: str
    method: str
    summary: str
    is_open: bool
    refused: type[msgspec.Struct]
    shape: Shape = field(default_factory=Shape)


def description(calls: Sequence[Declared]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 description of calls."""
    kinds: list[Any] = []
    for call in calls:
        for kind in (call.refused, call.shape.body, call.shape.answer, call.shape.parameters):
            if kind is not None and kind not in kinds:
                kinds.append(kind)
    shown, components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    schemas = _Schemas(list(zip(kinds, shown, strict=True)), components)
    paths: dict[str, dict[str, Any]] = {}
    for call in calls:
        paths.setdefault(call.path, {})[call.method.lower()] = _operation(call, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Weir", "version": weir.__version__},
        "paths": paths,
        "security": [{"key": []}],
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


class _Schemas:
    """The schemas of types."""

    def __init__(self, shown: Sequence[tuple[Any, dict[str, Any]]], components: dict[str, Any]) -> None:
        self._shown = shown
        self._components = components

    def of(self, kind: Any) -> dict[str, Any]:
        """Return the schema of a type, by reference if it has a name."""
        return next(schema for known, schema in self._shown if known is kind)

    def members_of(self, kind: type[msgspec.Struct]) -> dict[str, Any]:
        """Return the schemas of a type's members."""
        name = self.of(kind)["$ref"].rpartition("/")[2]
        properties: dict[str, Any] = self._components[name]["properties"]
        return properties


def _operation(call: Declared, schemas: _Schemas) -> dict[str, Any]:
    shape = call.shape
    refused = {JSON: {"schema": schemas.of(call.refused)}}
    statuses = ("503",) if call.is_open else tuple(_STATUSES)
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": _NAMES if name in _NAMED else _OTHERS}
        for name in _PARAMETER.findall(call.path)
    ]
    if shape.parameters is not None:
        parameters.extend(
            {"name": name, "in": "query", "required": False, "schema": schema}
            for name, schema in schemas.members_of(shape.parameters).items()
        )
    told: dict[str, Any] = {"description": "Done."}
    content = _content(shape.answer, shape.answer_media, schemas)
    if content:
        told["content"] = content
    operation: dict[str, Any] = {
        "summary": call.summary,
        "operationId": re.sub(r"\W+", "_", f"{call.method.lower()}{call.path}").strip("_"),
        "parameters": parameters,
        "responses": {
            **{str(status): told for status in shape.statuses},
            **{status: {"description": _STATUSES[status], "content": refused} for status in statuses},
        },
    }
    taken = _content(shape.body, shape.body_media, schemas)
    if taken:
        operation["requestBody"] = {"required": not shape.is_optional, "content": taken}
    return {**operation, "security": []} if call.is_open else operation


def _content(kind: Any, media: Sequence[str], schemas: _Schemas) -> dict[str, Any]:
    content: dict[str, Any] = {} if kind is None else {JSON: {"schema": schemas.of(kind)}}
    return {**content, **{name: {} for name in media}}
