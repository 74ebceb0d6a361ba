"""The kinds of index that Weir builds and maintains, and the columns that each is for."""

from __future__ import annotations

from enum import StrEnum

import pyarrow as pa

from weir.errors import IndexDefinitionError

__all__ = ["IndexKind", "as_kind", "is_vector"]


class IndexKind(StrEnum):
    """A kind of index, by the name that Lance's calls take."""

    BTREE = "BTREE"
    BITMAP = "BITMAP"
    ZONEMAP = "ZONEMAP"
    BLOOMFILTER = "BLOOMFILTER"
    NGRAM = "NGRAM"
    LABEL_LIST = "LABEL_LIST"
    INVERTED = "INVERTED"
    IVF_FLAT = "IVF_FLAT"
    IVF_PQ = "IVF_PQ"
    IVF_HNSW_SQ = "IVF_HNSW_SQ"

    @property
    def is_vector(self) -> bool:
        """Whether it answers nearest-neighbour searches."""
        return self in (IndexKind.IVF_FLAT, IndexKind.IVF_PQ, IndexKind.IVF_HNSW_SQ)

    @property
    def columns(self) -> str:
        """What it is for, for people."""
        return _FOR[self]

    def accepts(self, type: pa.DataType) -> bool:
        """Whether a column of this type can have it.

        Examples
        --------
        >>> IndexKind.NGRAM.accepts(pa.string()), IndexKind.NGRAM.accepts(pa.int64())
        (True, False)
        """
        if self.is_vector:
            return is_vector(type)
        if self in (IndexKind.NGRAM, IndexKind.INVERTED):
            return _is_text(type) or (
                self is IndexKind.INVERTED and pa.types.is_list(type) and _is_text(type.value_type)
            )
        if self is IndexKind.LABEL_LIST:
            return (pa.types.is_list(type) or pa.types.is_large_list(type)) and _is_plain(type.value_type)
        return _is_plain(type) or (self is IndexKind.ZONEMAP and pa.types.is_decimal128(type))

    @classmethod
    def of_library(cls, name: str) -> IndexKind | None:
        """Return the kind that the library describes by its own name; None if Weir has none for it.

        Examples
        --------
        >>> IndexKind.of_library("LabelList"), IndexKind.of_library("IVF_RQ")
        (<IndexKind.LABEL_LIST: 'LABEL_LIST'>, None)
        """
        return _OF_LIBRARY.get(name)


_FOR = {
    IndexKind.BTREE: "columns of numbers, text, times or booleans",
    IndexKind.BITMAP: "columns of numbers, text, times or booleans with few different values",
    IndexKind.ZONEMAP: "columns of numbers, text, times or booleans",
    IndexKind.BLOOMFILTER: "columns of numbers, text, times or booleans",
    IndexKind.NGRAM: "columns of text",
    IndexKind.LABEL_LIST: "columns of lists of numbers or text",
    IndexKind.INVERTED: "columns of text or lists of text",
    IndexKind.IVF_FLAT: "columns of vectors",
    IndexKind.IVF_PQ: "columns of vectors",
    IndexKind.IVF_HNSW_SQ: "columns of vectors",
}

_OF_LIBRARY = {
    "BTree": IndexKind.BTREE,
    "Bitmap": IndexKind.BITMAP,
    "ZoneMap": IndexKind.ZONEMAP,
    "BloomFilter": IndexKind.BLOOMFILTER,
    "NGram": IndexKind.NGRAM,
    "LabelList": IndexKind.LABEL_LIST,
    "Inverted": IndexKind.INVERTED,
    "IVF_FLAT": IndexKind.IVF_FLAT,
    "IVF_PQ": IndexKind.IVF_PQ,
    "IVF_HNSW_SQ": IndexKind.IVF_HNSW_SQ,
}


def as_kind(name: str | IndexKind) -> IndexKind:
    """Return the kind of a name, in capitals or not.

    Raises
    ------
    IndexDefinitionError
        If there is no such kind.

    Examples
    --------
    >>> as_kind("bitmap"), as_kind("FTS")
    (<IndexKind.BITMAP: 'BITMAP'>, <IndexKind.INVERTED: 'INVERTED'>)
    """
    upper = str(name).upper()
    try:
        return IndexKind("INVERTED" if upper == "FTS" else upper)
    except ValueError:
        raise IndexDefinitionError(
            f"there is no kind of index {name!r}", where="kind", hint=f"The kinds are {', '.join(IndexKind)}"
        ) from None


def is_vector(type: pa.DataType) -> bool:
    """Whether a column of this type holds vectors that can be searched.

    Examples
    --------
    >>> is_vector(pa.list_(pa.float32(), 128)), is_vector(pa.list_(pa.float32()))
    (True, False)
    """
    return bool(pa.types.is_fixed_size_list(type)) and bool(
        pa.types.is_floating(type.value_type) or type.value_type == pa.uint8()
    )


def _is_text(type: pa.DataType) -> bool:
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type))


def _is_plain(type: pa.DataType) -> bool:
    return _is_text(type) or bool(
        pa.types.is_integer(type)
        or pa.types.is_floating(type)
        or pa.types.is_boolean(type)
        or pa.types.is_date(type)
        or pa.types.is_timestamp(type)
        or pa.types.is_time(type)
        or pa.types.is_duration(type)
    )
