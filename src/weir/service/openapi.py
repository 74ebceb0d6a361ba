"""The description of the service's calls: made from its routes and the types of its refusals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

import weir

__all__ = ["Declared", "description"]

_PARAMETER = re.compile(r"\{(\w+)\}")
_STATUSES = {
    "400": "The request is malformed; nothing was changed.",
    "401": "No key, or none that is good.",
    "403": "The key is not for this, whether or not it exists.",
    "404": "There is none.",
    "413": "Too large.",
    "429": "Too many requests, or too much to merge: try again after Retry-After.",
    "501": "A feature that is left out, by its name.",
    "503": "Not at this moment: try again after Retry-After.",
}


@dataclass(frozen=True, slots=True)
class Declared:
    """A call that the service answers.

    Parameters
    ----------
    path, method : str
        Of the requests.
    summary : str
        What it does, in a sentence.
    is_open : bool
        Whether it needs no key.
    refused : type
        The type of what tells that it is refused.
    """

    path: str
    method: str
    summary: str
    is_open: bool
    refused: type[msgspec.Struct]


def description(calls: Sequence[Declared]) -> dict[str, Any]:
    """Return the description of calls, by OpenAPI 3.1."""
    kinds = list(dict.fromkeys(call.refused for call in calls))
    shown, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schema_of = dict(zip(kinds, shown, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for call in calls:
        paths.setdefault(call.path, {})[call.method.lower()] = _operation(call, schema_of[call.refused])
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


def _operation(call: Declared, refused: dict[str, Any]) -> dict[str, Any]:
    content = {"application/json": {"schema": refused}}
    statuses = ("503",) if call.is_open else tuple(_STATUSES)
    operation: dict[str, Any] = {
        "summary": call.summary,
        "operationId": re.sub(r"\W+", "_", f"{call.method.lower()}{call.path}").strip("_"),
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
            for name in _PARAMETER.findall(call.path)
        ],
        "responses": {
            "2XX": {"description": "Done."},
            **{status: {"description": _STATUSES[status], "content": content} for status in statuses},
        },
    }
    if call.method in ("POST", "PUT", "PATCH"):
        operation["requestBody"] = {"content": {"application/json": {"schema": {"type": "object"}}}}
    return {**operation, "security": []} if call.is_open else operation
