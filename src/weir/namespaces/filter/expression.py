"""Filters as values, independent of any query language.

A filter is two-valued. A document that lacks an attribute fails every comparison of it, and ``Not`` is the
complement: ``NotEq`` and ``NotIn`` hold where the attribute is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from weir.errors import InputError

__all__ = [
    "EVERYTHING",
    "And",
    "Comparison",
    "Filter",
    "NewValue",
    "Not",
    "Operator",
    "Or",
    "check_size",
    "comparisons_in",
]

MOST_COMPARISONS = 1_000
"""Comparisons of a filter: what plans it takes more and more time for each."""


class Operator(StrEnum):
    """A comparison of an attribute with a value. Negation is expressed with ``Not``."""

    EQ = "Eq"
    IN = "In"
    LT = "Lt"
    LTE = "Lte"
    GT = "Gt"
    GTE = "Gte"
    CONTAINS = "Contains"
    CONTAINS_ANY = "ContainsAny"
    ANY_LT = "AnyLt"
    ANY_LTE = "AnyLte"
    ANY_GT = "AnyGt"
    ANY_GTE = "AnyGte"
    GLOB = "Glob"
    IGLOB = "IGlob"
    REGEX = "Regex"
    ALL_TOKENS = "ContainsAllTokens"
    ANY_TOKEN = "ContainsAnyToken"
    TOKEN_SEQUENCE = "ContainsTokenSequence"
    FUZZY = "Fuzzy"


@dataclass(frozen=True, slots=True)
class NewValue:
    """In a condition, the value that an attribute gets from the write.

    Parameters
    ----------
    attribute : str
        The attribute.
    """

    attribute: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Documents by one of their attributes.

    Parameters
    ----------
    attribute : str
        The attribute.
    operator : Operator
        How it is compared.
    value : object
        The value; a tuple for operators with several values, None for "is missing".
    last_as_prefix : bool
        For tokens: whether the last one matches as a prefix. Default False.
    edits : int, optional
        For a fuzzy comparison: how many characters may be inserted, deleted or replaced; None if the value is
        too short.
    case_sensitive : bool
        For a fuzzy comparison: whether it is case-sensitive. Default True.
    """

    attribute: str
    operator: Operator
    value: object
    last_as_prefix: bool = False
    edits: int | None = None
    case_sensitive: bool = True


@dataclass(frozen=True, slots=True)
class And:
    """Documents that all of some filters take; all documents if there are none."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Documents that one of some filters takes; none if there are none."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """Documents that a filter does not take."""

    part: Filter


Filter = Comparison | And | Or | Not
"""Any filter."""

EVERYTHING = And(())
"""Takes every document."""


def check_size(filter: Filter) -> Filter:
    """Return a filter, if it has no more comparisons than one may have.

    Raises
    ------
    InputError
        If it has.
    """
    if sum(1 for _ in comparisons_in(filter)) > MOST_COMPARISONS:
        raise InputError(
            f"a filter has at most {MOST_COMPARISONS:,} comparisons",
            hint="In and ContainsAny compare with many values at once",
        )
    return filter


def comparisons_in(filter: Filter) -> Iterator[Comparison]:
    """Yield the comparisons of a filter, from left to right."""
    if isinstance(filter, Comparison):
        yield filter
    elif isinstance(filter, Not):
        yield from comparisons_in(filter.part)
    else:
        for part in filter.parts:
            yield from comparisons_in(part)
