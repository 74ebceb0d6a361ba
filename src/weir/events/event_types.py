"""A type of events with its versions, and the columns that hold its fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from weir.errors import SchemaError
from weir.events.field_types import INSTANT, FieldType, parse_field_type

__all__ = ["CORE_FIELDS", "EventType"]

CORE_FIELDS = (
    pa.field("event_id", pa.int64()),
    pa.field("context_id", pa.string()),
    pa.field("event_type", pa.string()),
    pa.field("timestamp", INSTANT),
)


@dataclass(frozen=True, slots=True)
class EventType:
    """A type of events.

    Parameters
    ----------
    name : str
        Its name.
    versions : mapping of int to (mapping of str to FieldType)
        The fields of every version, in their order.
    columns : mapping of str to tuple of str
        For every field the columns of the events table that hold it, oldest first: a field whose type was
        widened has more than one.
    """

    name: str
    versions: Mapping[int, Mapping[str, FieldType]]
    columns: Mapping[str, tuple[str, ...]]

    @property
    def version(self) -> int:
        """The newest version."""
        return max(self.versions)

    @property
    def fields(self) -> Mapping[str, FieldType]:
        """The fields of the newest version."""
        return self.versions[self.version]

    @property
    def schema(self) -> pa.Schema:
        """The columns of its events in a result."""
        return pa.schema([*CORE_FIELDS, *(pa.field(name, kind.arrow) for name, kind in self.fields.items())])

    def evolved(self, fields: Mapping[str, FieldType], version: int | None) -> EventType:
        """Return the type with a new version, or unchanged if there is nothing new.

        The columns of new fields are not assigned yet.

        Raises
        ------
        SchemaError
            If the version is not valid, or changes what a version may not change.
        """
        newest = self.version
        if dict(fields) == dict(self.fields) and version in (None, newest):
            return self
        if version is not None and version in self.versions and dict(self.versions[version]) == dict(fields):
            return self
        number = newest + 1 if version is None else version
        if number <= newest:
            raise SchemaError(
                f"event {self.name!r}: version {number} has other fields; the newest is {newest}",
                where=self.name,
            )
        self._check_evolution(fields)
        kept = [*self.fields, *(name for name in fields if name not in self.fields)]
        ordered = {name: fields[name] for name in kept}
        return EventType(self.name, {**self.versions, number: ordered}, self.columns)

    def _check_evolution(self, fields: Mapping[str, FieldType]) -> None:
        for name, kind in self.fields.items():
            if name not in fields:
                raise SchemaError(
                    f"event {self.name!r}: a new version keeps field {name!r}",
                    where=f"{self.name}.{name}",
                    hint="A version may add optional fields, add values to enums and widen types",
                )
            if not kind.widens_to(fields[name]):
                raise SchemaError(
                    f"event {self.name!r}, field {name!r}: {kind} does not widen to {fields[name]}",
                    where=f"{self.name}.{name}",
                    hint="A version may add optional fields, add values to enums and widen types",
                )
        for name, kind in fields.items():
            if name not in self.fields and not kind.optional:
                raise SchemaError(
                    f"event {self.name!r}: the new field {name!r} must be optional: older events lack it",
                    where=f"{self.name}.{name}",
                    hint='Add " | null" to its type',
                )

    def to_json(self) -> dict[str, Any]:
        """Return the form stored in the catalog."""
        return {
            "versions": {
                str(number): {name: kind.to_json() for name, kind in fields.items()}
                for number, fields in self.versions.items()
            },
            "columns": {name: list(columns) for name, columns in self.columns.items()},
        }

    @classmethod
    def from_json(cls, name: str, stored: Mapping[str, Any]) -> EventType:
        """Return a type from its stored form."""
        versions = {
            int(number): {field: parse_field_type(kind, name, field) for field, kind in fields.items()}
            for number, fields in stored["versions"].items()
        }
        return cls(name, versions, {field: tuple(columns) for field, columns in stored["columns"].items()})
