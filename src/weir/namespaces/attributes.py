"""Attributes: names and types of a document's values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import pyarrow as pa

from weir.errors import InputError
from weir.namespaces.names import column_of

__all__ = ["Attribute", "AttributeType", "FullText", "Kind", "Metric", "infer_type", "parse_type"]

MAX_DIMENSIONS = 10_752
"""The most elements of a vector."""


class Kind(StrEnum):
    """What one value of an attribute is."""

    STRING = "string"
    INT = "int"
    UINT = "uint"
    FLOAT = "float"
    BOOL = "bool"
    UUID = "uuid"
    DATETIME = "datetime"


class Metric(StrEnum):
    """How far apart two vectors are."""

    COSINE = "cosine_distance"
    EUCLIDEAN = "euclidean_squared"
    DOT = "dot_product"

    @property
    def of_table(self) -> str:
        """The name of the metric at :meth:`weir.Table.search`."""
        return {Metric.COSINE: "cosine", Metric.EUCLIDEAN: "l2", Metric.DOT: "dot"}[self]


_ARROW: dict[Kind, pa.DataType] = {
    Kind.STRING: pa.string(),
    Kind.INT: pa.int64(),
    Kind.UINT: pa.uint64(),
    Kind.FLOAT: pa.float64(),
    Kind.BOOL: pa.bool_(),
    Kind.UUID: pa.binary(16),
    Kind.DATETIME: pa.timestamp("us", "UTC"),
}
_VECTOR = re.compile(r"\[(\d{1,6})\]f(16|32)\Z")


@dataclass(frozen=True, slots=True)
class AttributeType:
    """The type of an attribute.

    Parameters
    ----------
    kind : Kind
        What a value is, or each element of it.
    is_list : bool
        Whether a value is a list.
    dimensions : int, optional
        Elements of a vector; None for other types.
    bits : int
        Bits per element of a vector: 32 or 16.
    """

    kind: Kind
    is_list: bool = False
    dimensions: int | None = None
    bits: int = 32

    @property
    def is_vector(self) -> bool:
        """Whether values are vectors."""
        return self.dimensions is not None

    @property
    def arrow(self) -> pa.DataType:
        """The type of the column."""
        if self.dimensions is not None:
            return pa.list_(pa.float32() if self.bits == 32 else pa.float16(), self.dimensions)
        return pa.list_(_ARROW[self.kind]) if self.is_list else _ARROW[self.kind]

    def __str__(self) -> str:
        if self.dimensions is not None:
            return f"[{self.dimensions}]f{self.bits}"
        return f"[]{self.kind}" if self.is_list else str(self.kind)


def parse_type(text: object) -> AttributeType:
    """Return the type that a text names.

    Raises
    ------
    InputError
        If it names none, or a vector of no or too many dimensions.

    Examples
    --------
    >>> str(parse_type("[]uuid")), str(parse_type("[768]f16"))
    ('[]uuid', '[768]f16')
    """
    if isinstance(text, str):
        vector = _VECTOR.match(text)
        if vector:
            dimensions = int(vector[1])
            if not 1 <= dimensions <= MAX_DIMENSIONS:
                raise InputError(f"a vector has 1 to {MAX_DIMENSIONS:,} dimensions, not {dimensions}")
            return AttributeType(Kind.FLOAT, dimensions=dimensions, bits=int(vector[2]))
        kind = text.removeprefix("[]")
        if kind in Kind.__members__.values():
            return AttributeType(Kind(kind), is_list=text.startswith("[]"))
    raise InputError(
        f"{text!r:.80} is not a type of attribute",
        hint="The types are string, int, uint, float, bool, uuid, datetime, lists of these such as []string, "
        "and vectors such as [768]f32",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FullText:
    """How the texts of an attribute are searched for words.

    Parameters
    ----------
    language : str
        The language of the texts, which decides stop words and stems. Default ``"english"``.
    stemming : bool
        Whether forms of one word are the same. Default False.
    remove_stopwords : bool
        Whether very common words are left out. Default True.
    case_sensitive, ascii_folding : bool
        Whether capitals count, and whether accents do not. Default False.
    max_token_length : int
        Words of more bytes are left out. Default 39.
    k1, b : float
        The parameters of BM25. Default 1.2 and 0.75.
    tokenizer : str
        The name of the requested tokenizer; texts are split at characters other than letters and digits.
    """

    language: str = "english"
    stemming: bool = False
    remove_stopwords: bool = True
    case_sensitive: bool = False
    ascii_folding: bool = False
    max_token_length: int = 39
    k1: float = 1.2
    b: float = 0.75
    tokenizer: str = "word_v4"

    @property
    def index_parameters(self) -> dict[str, Any]:
        """The parameters of the index."""
        return {
            "language": self.language.capitalize(),
            "stem": self.stemming,
            "remove_stop_words": self.remove_stopwords,
            "lower_case": not self.case_sensitive,
            "ascii_folding": self.ascii_folding,
            "max_token_length": self.max_token_length,
            "with_position": True,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """An attribute of the documents of a namespace.

    Parameters
    ----------
    name : str
        What it is called.
    type : AttributeType
        The type of its values.
    filterable : bool
        Whether filters may name it.
    full_text : FullText, optional
        How its texts are searched for words; None if they are not.
    metric : Metric, optional
        How its vectors are compared; None for other types.
    options : mapping of str to object
        Client declarations without effect here, returned as given.
    """

    name: str
    type: AttributeType
    filterable: bool = True
    full_text: FullText | None = None
    metric: Metric | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def column(self) -> str:
        """The column that stores it."""
        return column_of(self.name)

    @property
    def field(self) -> pa.Field:
        """The column that stores it, with its type."""
        return pa.field(self.column, self.type.arrow)


def infer_type(values: list[Any]) -> AttributeType | None:
    """Infer the type of an undeclared attribute from its values; None if all are missing.

    Raises
    ------
    InputError
        If they are of several types, or of none that an attribute can have.

    Examples
    --------
    >>> str(infer_type([1, None, 2.5])), str(infer_type([["a"], []])), infer_type([None])
    ('float', '[]string', None)
    """
    kinds = {*map(type, values)} - {type(None)}
    if not kinds:
        return None
    if list in kinds or tuple in kinds:
        if kinds - {list, tuple}:
            raise InputError("some values are lists and some are not")
        elements = [element for value in values if value is not None for element in value]
        if not elements:
            return AttributeType(Kind.STRING, is_list=True)
        inferred = infer_type(elements)
        if inferred is None or inferred.is_list:
            raise InputError("an attribute has no lists of lists, and no lists of nulls")
        return AttributeType(inferred.kind, is_list=True)
    kind = _kind_of(frozenset(kinds))
    if kind is Kind.INT and max(value for value in values if value is not None) > 2**63 - 1:
        kind = Kind.UINT
    return AttributeType(kind)


_KINDS: dict[frozenset[type], Kind] = {
    frozenset({str}): Kind.STRING,
    frozenset({bool}): Kind.BOOL,
    frozenset({int}): Kind.INT,
    frozenset({float}): Kind.FLOAT,
    frozenset({int, float}): Kind.FLOAT,
    frozenset({UUID}): Kind.UUID,
    frozenset({datetime}): Kind.DATETIME,
}


def _kind_of(kinds: frozenset[type]) -> Kind:
    kind = _KINDS.get(kinds)
    if kind is None:
        names = ", ".join(sorted(one.__name__ for one in kinds))
        raise InputError(f"values of type {names} cannot be one attribute")
    return kind
