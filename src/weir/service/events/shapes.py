"""The request and response types of event stores, from which the API description is generated."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

__all__ = [
    "Batch",
    "Commit",
    "Done",
    "Event",
    "Execution",
    "IngestParameters",
    "Ingested",
    "Store",
    "Stores",
    "SubscriptionParameters",
]


class Execution(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A command of the language."""

    command: str


class Done(msgspec.Struct, kw_only=True):
    """The result of a command."""

    columns: list[str] | UnsetType = UNSET
    rows: list[dict[str, Any]] | UnsetType = UNSET
    warnings: list[str] | UnsetType = UNSET
    status: str | UnsetType = UNSET
    result: Any | UnsetType = UNSET
    ids: list[int] | UnsetType = UNSET
    version: int | UnsetType = UNSET


class Event(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """An event to append."""

    type: str
    payload: dict[str, Any]
    timestamp: str | int | UnsetType | None = UNSET


class Batch(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Events of one context: all are appended, or none."""

    context: str
    events: list[Event]
    expected: Annotated[int, Meta(ge=0, le=2**63 - 1)] | UnsetType | None = UNSET


class IngestParameters(msgspec.Struct, kw_only=True):
    """The type and source of a table of events."""

    type: str = ""
    source: str | UnsetType = UNSET
    number: Annotated[int, Meta(ge=0, le=2**63 - 1)] | UnsetType = UNSET


class Ingested(msgspec.Struct, kw_only=True):
    """How many events were appended."""

    status: Literal["OK"]
    rows: int


class SubscriptionParameters(msgspec.Struct, kw_only=True):
    """Which events to stream, and from where."""

    types: str | UnsetType = UNSET
    cursor: str | UnsetType = UNSET
    follow: Literal["true", "false"] = "true"


class Commit(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The position up to which a subscriber has processed everything."""

    cursor: str


class Store(msgspec.Struct, kw_only=True):
    """An event store."""

    id: str


class Stores(msgspec.Struct, kw_only=True):
    """The event stores that a key may use."""

    stores: list[Store]
