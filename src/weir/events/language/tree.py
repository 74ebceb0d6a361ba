"""The syntax tree: commands, clauses and conditions as written, each with its position."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any, TypeAlias

from weir.events.language.scanner import Place

__all__ = [
    "Aggregate",
    "All",
    "AnyOf",
    "Bare",
    "Batch",
    "Between",
    "Command",
    "Compare",
    "Comparison",
    "Condition",
    "Define",
    "Drop",
    "Explain",
    "FieldName",
    "Flush",
    "Forget",
    "IsIn",
    "IsNull",
    "Like",
    "Name",
    "Not",
    "Ordering",
    "Ping",
    "Plot",
    "Query",
    "Remember",
    "Replay",
    "Retain",
    "Show",
    "ShowMaterializations",
    "ShowTypes",
    "Step",
    "Store",
    "Value",
]


@dataclass(frozen=True, slots=True)
class Name:
    """A type, a context, a materialisation or a zone."""

    text: str
    place: Place


@dataclass(frozen=True, slots=True)
class FieldName:
    """A field, in a sequence with its type."""

    text: str
    place: Place
    type: str | None = None

    def __str__(self) -> str:
        return self.text if self.type is None else f"{self.type}.{self.text}"


@dataclass(frozen=True, slots=True)
class Value:
    """A value: ``kind`` is ``"word"``, ``"text"`` or ``"number"``."""

    kind: str
    value: str | int | Decimal
    text: str
    place: Place


# --- Conditions ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Comparison:
    """``field operator value``; the operator is one of ``= != < <= > >=``."""

    field: FieldName
    operator: str
    value: Value


@dataclass(frozen=True, slots=True)
class IsIn:
    """``field [NOT] IN (values)``."""

    field: FieldName
    values: tuple[Value, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Between:
    """``field [NOT] BETWEEN low AND high``, both inclusive."""

    field: FieldName
    low: Value
    high: Value
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Like:
    """``field [NOT] LIKE pattern``."""

    field: FieldName
    pattern: Value
    negated: bool = False


@dataclass(frozen=True, slots=True)
class IsNull:
    """``field IS [NOT] NULL``."""

    field: FieldName
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Bare:
    """A bool field, by itself."""

    field: FieldName


@dataclass(frozen=True, slots=True)
class Not:
    """``NOT condition``."""

    condition: Condition


@dataclass(frozen=True, slots=True)
class All:
    """Conditions with ``AND``."""

    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Conditions with ``OR``."""

    conditions: tuple[Condition, ...]


Condition: TypeAlias = Comparison | IsIn | Between | Like | IsNull | Bare | Not | All | AnyOf


# --- Queries -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate: ``kind`` is ``count``, ``count_unique``, ``total``, ``avg``, ``min`` or ``max``."""

    kind: str
    field: FieldName | None

    @property
    def column(self) -> str:
        """The column of the result."""
        return self.kind if self.field is None else f"{self.kind}_{self.field}"


@dataclass(frozen=True, slots=True)
class Ordering:
    """A field to order by."""

    field: FieldName
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """A further step of a sequence: ``FOLLOWED BY`` or, if ``before``, ``PRECEDED BY``."""

    type: Name
    before: bool


@dataclass(frozen=True, slots=True)
class Query:
    """``QUERY``, of one type or of a sequence of them."""

    type: Name
    steps: tuple[Step, ...] = ()
    linked_by: FieldName | None = None
    using_time: FieldName | None = None
    within: timedelta | None = None
    context: Name | None = None
    since: Value | None = None
    until: Value | None = None
    using: FieldName | None = None
    where: Condition | None = None
    returns: tuple[FieldName, ...] | None = None
    aggregates: tuple[Aggregate, ...] = ()
    per: str | None = None
    zone: Name | None = None
    by: tuple[FieldName, ...] = ()
    order_by: tuple[Ordering, ...] = ()
    limit: int | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """``REPLAY``."""

    context: Name
    type: Name | None = None
    since: Value | None = None
    until: Value | None = None
    using: FieldName | None = None
    returns: tuple[FieldName, ...] | None = None


@dataclass(frozen=True, slots=True)
class Explain:
    """``EXPLAIN``."""

    command: Query | Replay


@dataclass(frozen=True, slots=True)
class Compare:
    """``COMPARE``."""

    left: Query
    right: Query


@dataclass(frozen=True, slots=True)
class Plot:
    """``PLOT``."""

    query: Query


# --- Other commands ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Define:
    """``DEFINE``."""

    name: Name
    version: int | None
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Store:
    """``STORE``."""

    type: Name
    context: Name
    payload: dict[str, Any]
    at: Value | None = None
    expected: int | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """``BATCH``."""

    events: tuple[Store, ...]


@dataclass(frozen=True, slots=True)
class Remember:
    """``REMEMBER``."""

    query: Query
    name: Name
    keep_rows: int | None = None
    keep_age: timedelta | None = None
    text: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Show:
    """``SHOW`` of a materialisation."""

    name: Name


@dataclass(frozen=True, slots=True)
class Drop:
    """``DROP`` of a materialisation."""

    name: Name


@dataclass(frozen=True, slots=True)
class ShowTypes:
    """``SHOW TYPES``."""


@dataclass(frozen=True, slots=True)
class ShowMaterializations:
    """``SHOW MATERIALIZATIONS``."""


@dataclass(frozen=True, slots=True)
class Retain:
    """``RETAIN``; without an age, for ever."""

    type: Name
    age: timedelta | None


@dataclass(frozen=True, slots=True)
class Forget:
    """``FORGET``."""

    context: Name


@dataclass(frozen=True, slots=True)
class Flush:
    """``FLUSH``."""


@dataclass(frozen=True, slots=True)
class Ping:
    """``PING``."""


Command: TypeAlias = (
    Define
    | Store
    | Batch
    | Query
    | Explain
    | Compare
    | Plot
    | Replay
    | Remember
    | Show
    | Drop
    | ShowTypes
    | ShowMaterializations
    | Retain
    | Forget
    | Flush
    | Ping
)
