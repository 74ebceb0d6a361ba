"""The Arrow types with one-word names, without parameters or children.

The base of every notation of Weir for types: schemas as people type them (:mod:`weir.schema.text`), and
shard specs as the library writes them (:mod:`weir.sharding.type_names`). Each adds what only it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pyarrow as pa

__all__ = ["PLAIN_TYPES"]

PLAIN_TYPES: Mapping[str, pa.DataType] = MappingProxyType(
    {
        "bool": pa.bool_(),
        "int8": pa.int8(),
        "int16": pa.int16(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "uint8": pa.uint8(),
        "uint16": pa.uint16(),
        "uint32": pa.uint32(),
        "uint64": pa.uint64(),
        "float16": pa.float16(),
        "float32": pa.float32(),
        "float64": pa.float64(),
        "string": pa.string(),
        "large_string": pa.large_string(),
        "binary": pa.binary(),
        "large_binary": pa.large_binary(),
        "date32": pa.date32(),
        "date64": pa.date64(),
    }
)
"""The types by the names of the functions of PyArrow that make them."""
