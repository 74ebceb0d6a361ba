"""Namespaces of documents: vectors and schemaless attributes, in process.

A document has an id and attributes; the first write makes the namespace, and any write may bring new
attributes. :func:`open` is the way in; :mod:`weir.service` puts it behind HTTP.
"""

from __future__ import annotations

from weir.namespaces.attributes import Attribute, AttributeType, FullText, Kind, Metric, parse_type
from weir.namespaces.collection import Namespaces, open
from weir.namespaces.definition import Definition
from weir.namespaces.fusion import fused
from weir.namespaces.namespace import Namespace
from weir.namespaces.query import Aggregate, Answer, Each, Limit, Query, State
from weir.namespaces.ranking import (
    Constant,
    Decay,
    Distance,
    Matches,
    Max,
    Nearest,
    Order,
    Product,
    Saturate,
    Sum,
    Value,
    Words,
)
from weir.namespaces.write import (
    Declaration,
    Documents,
    MarkedWrite,
    Patch,
    Write,
    Written,
    WrittenOnce,
)

__all__ = [
    "Aggregate",
    "Answer",
    "Attribute",
    "AttributeType",
    "Constant",
    "Decay",
    "Declaration",
    "Definition",
    "Distance",
    "Documents",
    "Each",
    "FullText",
    "Kind",
    "Limit",
    "MarkedWrite",
    "Matches",
    "Max",
    "Metric",
    "Namespace",
    "Namespaces",
    "Nearest",
    "Order",
    "Patch",
    "Product",
    "Query",
    "Saturate",
    "State",
    "Sum",
    "Value",
    "Words",
    "Write",
    "Written",
    "WrittenOnce",
    "fused",
    "open",
    "parse_type",
]
