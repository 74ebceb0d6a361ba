"""Chooses the index of each column by its type, the user's declarations and a sample of its values.

Enumerations get bitmaps, times a kind that answers ranges, identifiers Bloom filters, numbers zone maps, text
an inverted index, vectors partitions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from weir.errors import IndexDefinitionError, OptionError
from weir.indexing.definition import IndexDefinition
from weir.indexing.kinds import IndexKind, as_kind, is_vector

__all__ = ["IndexPolicy", "sub_vectors"]

_NAME_OF_IDENTIFIER = re.compile(r"(?:^|_)(?:id|uuid|guid|key|hash)$", re.IGNORECASE)
_MIN_SAMPLE_ROWS = 20
_WORDS_OF_TEXT = 3.0
_SUB_VECTOR_LENGTHS = (8, 4, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPolicy:
    """Decides which kinds of index the columns of a table get.

    Parameters
    ----------
    kinds : mapping of str to sequence of str
        The kinds for columns that are decided already; an empty sequence for no index.
    enumerations : sequence of str
        Columns of text or numbers with few distinct values.
    identifiers : sequence of str
        Columns that are searched for single values.
    text : sequence of str
        Columns that are searched for words.
    rows_per_zone : int
        Rows per zone, for which a zone map keeps the minimum and maximum. Smaller zones let a filter skip
        more, at the cost of more metadata. Default 8,192.
    metric : str
        How vectors are compared: ``"l2"`` (default), ``"cosine"`` or ``"dot"``.
    max_enumeration_values : int
        A text column with at most this many distinct values in the sample is treated as an enumeration, if
        not declared otherwise. Default 100.

    Raises
    ------
    OptionError
        If a number is below 1.
    IndexDefinitionError
        If a kind or the metric does not exist.

    Examples
    --------
    >>> schema = pa.schema([("id", pa.int64()), ("carrier", pa.string()), ("at", pa.timestamp("us"))])
    >>> policy = IndexPolicy(enumerations=["carrier"])
    >>> [(one.column, str(one.kind)) for one in policy.plan(schema, primary_key=("id",))]
    [('carrier', 'BITMAP'), ('at', 'BTREE')]
    """

    kinds: Mapping[str, Sequence[str | IndexKind]] = field(default_factory=lambda: MappingProxyType({}))
    enumerations: Sequence[str] = ()
    identifiers: Sequence[str] = ()
    text: Sequence[str] = ()
    rows_per_zone: int = 8192
    metric: str = "l2"
    max_enumeration_values: int = 100

    def __post_init__(self) -> None:
        """Check the options."""
        for name in ("rows_per_zone", "max_enumeration_values"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise OptionError(f"{name} must be a whole number of at least 1, got {value!r}", where=name)
        for name in ("enumerations", "identifiers", "text"):
            if isinstance(getattr(self, name), str):
                raise OptionError(f"{name} must be a list of columns, not a text", where=name)
        for kinds in self.kinds.values():
            for kind in kinds:
                as_kind(kind)
        IndexDefinition("", "", IndexKind.IVF_FLAT, {"metric": self.metric})

    def plan(
        self, schema: pa.Schema, primary_key: Sequence[str] = (), sample: pa.Table | None = None
    ) -> tuple[IndexDefinition, ...]:
        """Return the indexes for a table, in the order of its columns.

        Parameters
        ----------
        schema : Schema
            The table's columns.
        primary_key : sequence of str, optional
            Key columns. They have their own index, and get another one only if declared.
        sample : Table, optional
            Some rows, which distinguish text from enumerations and identifiers; without them, undeclared text
            gets a zone map, or a Bloom filter if the column's name suggests an identifier.

        Raises
        ------
        IndexDefinitionError
            If a declared column does not exist, or cannot have that kind.
        """
        for name in (*self.kinds, *self.enumerations, *self.identifiers, *self.text):
            if name not in schema.names:
                raise IndexDefinitionError(
                    f"the table has no column {name!r}",
                    where="policy",
                    hint=f"The columns are {', '.join(schema.names)}",
                )
        return tuple(
            definition
            for one in schema
            if one.name not in primary_key or one.name in self._declared
            for definition in self._definitions(one, sample)
        )

    def definition(self, schema: pa.Schema, column: str, sample: pa.Table | None = None) -> IndexDefinition:
        """Return the index for one column.

        Raises
        ------
        IndexDefinitionError
            If there is no such column, or no kind of index for its type.
        """
        if column in schema.names:
            for definition in self._definitions(schema.field(column), sample):
                return definition
            raise IndexDefinitionError(
                f"the kind of index cannot be inferred for a column of type {schema.field(column).type}",
                where=column,
                hint="Name the kind; for text, it can be inferred once there are rows",
            )
        raise IndexDefinitionError(
            f"the table has no column {column!r}",
            where="column",
            hint=f"The columns are {', '.join(schema.names)}",
        )

    @property
    def _declared(self) -> frozenset[str]:
        return frozenset((*self.kinds, *self.enumerations, *self.identifiers, *self.text))

    def _definitions(self, column: pa.Field, sample: pa.Table | None) -> Iterator[IndexDefinition]:
        kinds = [as_kind(kind) for kind in self.kinds[column.name]] if column.name in self.kinds else None
        if kinds is None:
            values = None if sample is None else sample.column(column.name)
            kind = self._kind(column, values)
            kinds = [] if kind is None else [kind]
        for number, kind in enumerate(kinds):
            suffix = "idx" if number == 0 else f"{kind.lower()}_idx"
            definition = IndexDefinition(
                f"{column.name}_{suffix}", column.name, kind, MappingProxyType(self._parameters(kind, column))
            )
            definition.check_column(pa.schema([column]))
            yield definition

    def _kind(self, column: pa.Field, values: pa.ChunkedArray | None) -> IndexKind | None:
        name, type = column.name, column.type
        if name in self.enumerations:
            return IndexKind.BITMAP
        if name in self.identifiers:
            return IndexKind.BLOOMFILTER
        if name in self.text:
            return IndexKind.INVERTED
        if is_vector(type):
            length = type.list_size
            can_quantise = pa.types.is_floating(type.value_type) and any(
                length % part == 0 and length > part for part in _SUB_VECTOR_LENGTHS
            )
            return IndexKind.IVF_PQ if can_quantise else IndexKind.IVF_FLAT
        if IndexKind.LABEL_LIST.accepts(type):
            return IndexKind.LABEL_LIST
        if pa.types.is_boolean(type):
            return IndexKind.BITMAP
        if pa.types.is_temporal(type) and IndexKind.BTREE.accepts(type):
            return IndexKind.BTREE
        if IndexKind.NGRAM.accepts(type):
            return self._kind_of_text(name, values)
        if not IndexKind.ZONEMAP.accepts(type):
            return None
        is_identifier = pa.types.is_integer(type) and _NAME_OF_IDENTIFIER.search(name) is not None
        return IndexKind.BLOOMFILTER if is_identifier else IndexKind.ZONEMAP

    def _kind_of_text(self, name: str, values: pa.ChunkedArray | None) -> IndexKind | None:
        if _NAME_OF_IDENTIFIER.search(name):
            return IndexKind.BLOOMFILTER
        if values is not None and not len(values):
            # The kind of text it will hold is unknown, and an index built now would stay.
            return None
        known = None if values is None else values.drop_null()
        if known is None or len(known) < _MIN_SAMPLE_ROWS:
            return IndexKind.ZONEMAP
        different = pc.count_distinct(known).as_py()
        if different <= min(self.max_enumeration_values, len(known) / 2):
            return IndexKind.BITMAP
        words = pc.mean(pc.add(pc.count_substring_regex(known, r"\s+"), 1)).as_py()
        return IndexKind.INVERTED if words >= _WORDS_OF_TEXT else IndexKind.BLOOMFILTER

    def _parameters(self, kind: IndexKind, column: pa.Field) -> dict[str, Any]:
        if kind is IndexKind.ZONEMAP:
            return {"rows_per_zone": self.rows_per_zone}
        if kind is IndexKind.INVERTED:
            # Without positions there are no searches for phrases.
            return {"with_position": True}
        if not kind.is_vector:
            return {}
        parameters: dict[str, Any] = {"metric": self.metric}
        if kind is IndexKind.IVF_PQ:
            parameters["num_sub_vectors"] = sub_vectors(column.type)
        return parameters


def sub_vectors(type: pa.DataType) -> int:
    """Return the default number of subvectors of a product quantizer for a vector type.

    Examples
    --------
    >>> sub_vectors(pa.list_(pa.float32(), 128)), sub_vectors(pa.list_(pa.float32(), 7))
    (16, 7)
    """
    length: int = type.list_size
    return length // next((part for part in _SUB_VECTOR_LENGTHS if length % part == 0 and length > part), 1)
