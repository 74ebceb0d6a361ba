"""The scope of a query: the fields it may name, and the columns that hold them while it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from weir.errors import QueryError
from weir.events.event_types import EventType
from weir.events.field_types import FieldType
from weir.events.language.scanner import Place, place_error
from weir.events.language.tree import FieldName
from weir.events.names import CORE_NAMES

__all__ = ["CORE_TYPES", "Column", "Scope", "failure"]

CORE_TYPES: Mapping[str, FieldType] = {
    "event_id": FieldType("int"),
    "context_id": FieldType("string"),
    "event_type": FieldType("string"),
    "timestamp": FieldType("datetime"),
}


@dataclass(frozen=True, slots=True)
class Column:
    """A field of a step of a query.

    Parameters
    ----------
    step : int
        Which step, from 0.
    name : str
        The field.
    type : FieldType
        Its type.
    internal : str
        The column's name while the query runs, independent of any user-given name.
    shown : str
        Its name in a result.
    """

    step: int
    name: str
    type: FieldType
    internal: str
    shown: str

    @property
    def arrow(self) -> pa.Field:
        """The column of a result."""
        return pa.field(self.shown, self.type.arrow)


def failure(message: str, place: Place | None, hint: str | None = None) -> QueryError:
    """Return the error for a query that is not valid, with its position if it comes from a text."""
    return (
        QueryError(message, where="query", hint=hint) if place is None else place_error(message, place, hint)
    )


@dataclass(frozen=True)
class Scope:
    """The types of a query: one, or the steps of a sequence.

    Parameters
    ----------
    types : tuple of EventType
        In the order of the steps.
    """

    types: tuple[EventType, ...]

    @property
    def is_sequence(self) -> bool:
        """Whether fields are named with their type."""
        return len(self.types) > 1

    @cached_property
    def _columns(self) -> list[dict[str, Column]]:
        return [self._of_step(step, kind) for step, kind in enumerate(self.types)]

    def _of_step(self, step: int, kind: EventType) -> dict[str, Column]:
        fields = {**CORE_TYPES, **kind.fields}
        prefix = f"{kind.name}." if self.is_sequence else ""
        return {
            name: Column(step, name, of_type, f"s{step}c{at}", f"{prefix}{name}")
            for at, (name, of_type) in enumerate(fields.items())
        }

    def columns_of(self, step: int) -> Sequence[Column]:
        """Return every column of a step, the four common ones first."""
        return list(self._columns[step].values())

    def core(self, step: int) -> Sequence[Column]:
        """Return the common columns of a step."""
        return [self._columns[step][name] for name in CORE_NAMES]

    def of(self, step: int, name: str) -> Column | None:
        """Return a column, or None if it does not exist."""
        return self._columns[step].get(name)

    def find(self, field: FieldName, *, first_step: bool = False) -> Column | None:
        """Return the column that a field names, or None.

        Parameters
        ----------
        field : FieldName
            The field.
        first_step : bool
            Whether a field without a type belongs to the first step. Default False: in a sequence it is
            unknown.
        """
        if field.type is not None:
            step = next((at for at, kind in enumerate(self.types) if kind.name == field.type), None)
            return None if step is None else self.of(step, field.text)
        if self.is_sequence and not first_step:
            return None
        return self.of(0, field.text)

    def get(self, field: FieldName, *, first_step: bool = False) -> Column:
        """Return the column that a field names.

        Raises
        ------
        QueryError
            If it does not exist.
        """
        found = self.find(field, first_step=first_step)
        if found is not None:
            return found
        if self.is_sequence and field.type is None:
            raise failure(
                f"in a sequence the field {field.text!r:.150} needs its type",
                field.place,
                "Expected " + " or ".join(f"{kind.name}.{field.text:.150}" for kind in self.types),
            )
        of = (
            self.types[0]
            if field.type is None
            else next((kind for kind in self.types if kind.name == field.type), None)
        )
        if of is None:
            raise failure(
                f"{field.type!r:.150} is no type of this query",
                field.place,
                "Expected " + " or ".join(kind.name for kind in self.types),
            )
        raise failure(
            f"event {of.name!r} has no field {field.text!r:.150}",
            field.place,
            f"Its fields are {', '.join([*CORE_NAMES, *of.fields])}",
        )
