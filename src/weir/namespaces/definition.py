"""The definition of a namespace: where its documents are and what their attributes mean.

The documents are in the table that it names, ``namespaces/{name}/{table}`` below the root; a namespace that
was deleted and made again has another one. See :mod:`weir.namespaces.catalog` for where it is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pyarrow as pa

from weir.errors import CorruptionError, WeirError
from weir.format import checked_json
from weir.namespaces.attributes import Attribute, AttributeType, FullText, Kind, Metric, parse_type
from weir.namespaces.names import ID

__all__ = ["Definition", "decode", "encode"]

_FORMAT = 2
_UNCHECKED_FORMAT = 1
"""The same without a checksum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A namespace at one moment.

    Parameters
    ----------
    table : str
        The directory of its table.
    created_at : datetime
        When it was made.
    id_kind : Kind
        What its ids are: text, ``uint`` or UUID.
    attributes : mapping of str to Attribute
        By name, without the id.
    metric : Metric
        How vectors are compared whose attribute does not say.
    read_only : bool
        Whether documents and attributes may not be changed.
    dialect : mapping of str to object
        What the dialect that made it has to remember: nothing here looks into it.
    """

    table: str
    created_at: datetime
    id_kind: Kind
    attributes: Mapping[str, Attribute]
    metric: Metric = Metric.COSINE
    read_only: bool = False
    dialect: Mapping[str, Any]

    @classmethod
    def new(cls, id_kind: Kind, metric: Metric, dialect: Mapping[str, Any] | None = None) -> Definition:
        """Return that of a namespace without attributes."""
        return cls(
            table=uuid4().hex,
            created_at=datetime.now(UTC),
            id_kind=id_kind,
            attributes={},
            metric=metric,
            dialect=dialect or {},
        )

    @property
    def id_type(self) -> AttributeType:
        """The type of its ids."""
        return AttributeType(self.id_kind)

    @property
    def schema(self) -> pa.Schema:
        """The columns of its table."""
        key = pa.field(ID, self.id_type.arrow, nullable=False)
        return pa.schema([key, *(one.field for one in self.attributes.values())])

    @property
    def vectors(self) -> tuple[Attribute, ...]:
        """The attributes that are vectors."""
        return tuple(one for one in self.attributes.values() if one.type.is_vector)

    def type_of(self, attribute: str) -> AttributeType | None:
        """Return the type of an attribute; None for one that no document has."""
        if attribute == ID:
            return self.id_type
        known = self.attributes.get(attribute)
        return None if known is None else known.type

    def is_filterable(self, attribute: str) -> bool:
        """Return whether filters may name an attribute."""
        known = self.attributes.get(attribute)
        return known is None or known.filterable

    def with_attributes(self, added: Mapping[str, Attribute]) -> Definition:
        """Return the definition with attributes added or replaced."""
        return replace(self, attributes={**self.attributes, **added})

    def without_attributes(self, dropped: frozenset[str]) -> Definition:
        """Return the definition without some attributes."""
        left = {name: one for name, one in self.attributes.items() if name not in dropped}
        return replace(self, attributes=left)


def encode(definition: Definition) -> bytes:
    """Return a definition as stored."""
    return checked_json.encode(
        {
            "format": _FORMAT,
            # Two definitions never have equal bytes, so compare-and-swap distinguishes them.
            "write_id": uuid4().hex,
            "table": definition.table,
            "created_at": definition.created_at.isoformat(),
            "id": definition.id_kind,
            "metric": definition.metric,
            "read_only": definition.read_only,
            "dialect": dict(definition.dialect),
            "attributes": [
                {
                    "name": one.name,
                    "type": str(one.type),
                    "filterable": one.filterable,
                    "full_text": None if one.full_text is None else asdict(one.full_text),
                    "metric": one.metric,
                    "options": dict(one.options),
                }
                for one in definition.attributes.values()
            ],
        }
    )


def decode(data: bytes, where: str) -> Definition:
    """Return the definition that is stored.

    Raises
    ------
    CorruptionError
        If it cannot be read.
    """
    try:
        stored = checked_json.decode(data, where=where, unchecked_format=_UNCHECKED_FORMAT)
        if stored["format"] not in (_FORMAT, _UNCHECKED_FORMAT):
            raise ValueError(f"it is of format {stored['format']}, this version of Weir knows {_FORMAT}")
        attributes = [
            Attribute(
                name=one["name"],
                type=parse_type(one["type"]),
                filterable=one["filterable"],
                full_text=None if one["full_text"] is None else FullText(**one["full_text"]),
                metric=None if one["metric"] is None else Metric(one["metric"]),
                options=one["options"],
            )
            for one in stored["attributes"]
        ]
        return Definition(
            table=stored["table"],
            created_at=datetime.fromisoformat(stored["created_at"]),
            id_kind=Kind(stored["id"]),
            attributes={one.name: one for one in attributes},
            metric=Metric(stored["metric"]),
            read_only=stored["read_only"],
            dialect=stored["dialect"],
        )
    except CorruptionError:
        raise
    except (KeyError, TypeError, ValueError, WeirError) as error:
        raise CorruptionError(
            f"the definition of a namespace cannot be read: {error}", where=where
        ) from error
