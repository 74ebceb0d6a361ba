"""The catalog of a store, as a value: types, columns, retention, forgotten contexts, materialisations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from weir.errors import CorruptionError, InputError, UnknownFeatureError
from weir.events.event_types import EventType
from weir.events.names import check_name
from weir.format import checked_json

__all__ = ["Catalog", "Floor", "Forgotten", "Remembered", "Retention", "type_text"]

_FORMAT = 3
_UNCHECKED_FORMAT = 1
"""The magic without a checksum."""
_WITHOUT_CALENDARS = (_UNCHECKED_FORMAT, 2)
"""Magics of stores whose events have no days: looked for by them, none would be found."""


@dataclass(frozen=True, slots=True)
class Floor:
    """Events that retention has removed permanently.

    Parameters
    ----------
    before : int
        Upper bound of their timestamps, exclusive, in microseconds since 1970.
    through : int
        Their highest id: old events that arrive later are not among them.
    """

    before: int
    through: int


@dataclass(frozen=True, slots=True)
class Retention:
    """How long the events of a type are kept, by timestamp.

    Parameters
    ----------
    age : int or None
        In microseconds; None for ever.
    floors : tuple of Floor
        What earlier retention has removed.
    """

    age: int | None
    floors: tuple[Floor, ...] = ()


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A forgotten context: its events up to an id are gone."""

    context: str
    through: int


@dataclass(frozen=True, slots=True)
class Remembered:
    """A materialisation, as recorded in the catalog.

    Parameters
    ----------
    query : str
        The command of the query.
    incarnation : str
        Distinguishes it from others of the same name, and locates its table.
    keep_rows : int or None
        How many rows to keep.
    keep_age : int or None
        How long to keep rows, in microseconds.
    created : int
        Creation time, in microseconds since 1970.
    """

    query: str
    incarnation: str
    keep_rows: int | None = None
    keep_age: int | None = None
    created: int = 0


@dataclass(frozen=True, slots=True)
class Catalog:
    """The catalog of a store.

    Parameters
    ----------
    options : mapping of str to object
        The options the store was created with.
    types : mapping of str to EventType
        By name.
    columns : mapping of str to FieldColumn
        Columns of the events table, with the text of their type.
    retention : mapping of str to Retention
        By type.
    forgotten : tuple of Forgotten
        Forgotten contexts whose events may still be in files.
    materializations : mapping of str to Remembered
        By name.
    erasures : int
        How often a command has changed retention or forgotten a context.
    erased_through : int
        The highest id of a deleted event: later ids are above it, though no row shows it any more.
    cleared : int or None
        When the last name of a forgotten context left the catalog, in microseconds since 1970, as long as a
        file may still hold a former catalog with one.
    swept : int
        The number of erasures whose rows are gone from the files of every table's newest version.
    swept_at : int or None
        When that became so, in microseconds since 1970, as long as a table may have former versions with such
        rows.
    """

    options: Mapping[str, Any]
    types: Mapping[str, EventType] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    retention: Mapping[str, Retention] = field(default_factory=dict)
    forgotten: tuple[Forgotten, ...] = ()
    materializations: Mapping[str, Remembered] = field(default_factory=dict)
    erasures: int = 0
    erased_through: int = 0
    cleared: int | None = None
    swept: int = 0
    swept_at: int | None = None

    def type(self, name: object) -> EventType:
        """Return a type.

        Raises
        ------
        InputError
            If no such name exists.
        """
        found = self.types.get(name) if isinstance(name, str) else None
        if found is None:
            raise InputError(
                f"there is no event type {name!r:.150}",
                where="type",
                hint=f"The types are {', '.join(sorted(self.types)) or 'yet to be defined'}",
            )
        return found

    def with_type(self, kind: EventType, present: Mapping[str, str] | None = None) -> Catalog:
        """Return the catalog with a type, and with columns for its new fields.

        ``present`` are the columns of the events table, with the text of their type. It may have columns that
        the catalog lacks: another process is about to define a type, or has died before it had.
        """
        columns, known = dict(self.columns), {**(present or {}), **self.columns}
        of_fields = dict(kind.columns)
        taken = {name for held in of_fields.values() for name in held}
        for name, of_type in kind.fields.items():
            text = type_text(of_type.arrow)
            held = of_fields.get(name, ())
            if held and columns[held[-1]] == text:
                continue
            column = next((one for one in _candidates(name) if _fits(one, text, known, taken)), "")
            columns[column] = known[column] = text
            taken.add(column)
            of_fields[name] = (*held, column)
        grown = replace(kind, columns=of_fields)
        return replace(self, types={**self.types, kind.name: grown}, columns=columns)

    def defined(
        self,
        name: object,
        fields: Mapping[str, Any],
        version: int | None,
        present: Mapping[str, str] | None = None,
    ) -> Catalog:
        """Return the catalog with a new type, or a new version of one; ``present`` as for :meth:`with_type`.

        Raises
        ------
        SchemaError
            If the version is not valid.
        """
        checked = check_name(name, "an event type")
        former = self.types.get(checked)
        if former is not None:
            evolved = former.evolved(fields, version)
            return self if evolved is former else self.with_type(evolved, present)
        return self.with_type(EventType(checked, {version or 1: dict(fields)}, {}), present)

    def encode(self, write_id: str) -> bytes:
        """Return the stored form, with a mark that distinguishes this write from others."""
        return checked_json.encode(
            {
                "format": _FORMAT,
                "write_id": write_id,
                "options": dict(self.options),
                "types": {name: kind.to_json() for name, kind in self.types.items()},
                "columns": dict(self.columns),
                "retention": {
                    name: {"age": one.age, "floors": [[floor.before, floor.through] for floor in one.floors]}
                    for name, one in self.retention.items()
                },
                "forgotten": [[one.context, one.through] for one in self.forgotten],
                "materializations": {
                    name: {
                        "query": one.query,
                        "incarnation": one.incarnation,
                        "keep_rows": one.keep_rows,
                        "keep_age": one.keep_age,
                        "created": one.created,
                    }
                    for name, one in self.materializations.items()
                },
                "erasures": self.erasures,
                "erased_through": self.erased_through,
                "cleared": self.cleared,
                "swept": self.swept,
                "swept_at": self.swept_at,
            },
            sort=False,  # the fields of an event are told in the order in which they were defined
        )

    @classmethod
    def decode(cls, data: bytes, where: str) -> tuple[Catalog, str]:
        """Return a stored catalog, and the mark of its write.

        Raises
        ------
        CorruptionError
            If it is not valid.
        UnknownFeatureError
            If a newer version of Weir wrote it, or one from before calendars.
        """
        try:
            stored = checked_json.decode(data, where=where, unchecked_format=_UNCHECKED_FORMAT)
            if stored["format"] in _WITHOUT_CALENDARS:
                raise UnknownFeatureError(
                    "the events were written by a Weir of before calendars",
                    where=where,
                    hint="Export them with that Weir, and restore the export into a new store",
                )
            if stored["format"] != _FORMAT:
                raise UnknownFeatureError(
                    f"the catalog is of format {stored['format']!r:.20}, which this Weir does not know",
                    where=where,
                )
            catalog = cls(
                stored["options"],
                {name: EventType.from_json(name, one) for name, one in stored["types"].items()},
                stored["columns"],
                {
                    name: Retention(one["age"], tuple(Floor(*floor) for floor in one["floors"]))
                    for name, one in stored["retention"].items()
                },
                tuple(Forgotten(*one) for one in stored["forgotten"]),
                {name: Remembered(**one) for name, one in stored["materializations"].items()},
                stored["erasures"],
                stored.get("erased_through", 0),
                stored.get("cleared"),
                stored.get("swept", 0),
                stored.get("swept_at"),
            )
            return catalog, stored["write_id"]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptionError(
                f"the catalog of the event store cannot be read: {error!r:.200}", where=where
            ) from error


def type_text(kind: pa.DataType) -> str:
    """Return the text that the catalog has for the type of a column."""
    return str(kind).replace("list<item: ", "list<")


def _candidates(name: str) -> Any:
    plain = name.lower() if name.isascii() and name.replace("_", "a").isalnum() else "field"
    # In front of the number something no name of a field column has by itself.
    yield f"f_{plain}"
    number = 2
    while True:
        yield f"f_{plain}__{number}"
        number += 1


def _fits(column: str, text: str, columns: Mapping[str, str], taken: Sequence[str] | set[str]) -> bool:
    return column not in taken and columns.get(column, text) == text
