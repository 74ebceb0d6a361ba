"""The merge engine of a table: how the versions of a key combine, and how that is recorded.

It is stored among the writer defaults of the MemWAL index, with columns by field id. A table that has one
carries the feature :data:`FEATURE`, which stops software that does not know merge engines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from weir.errors import CorruptionError, OptionError, SchemaError
from weir.format.field_births import Births
from weir.format.recorded_columns import BIRTHS, with_births_noted, without_born_later

__all__ = ["FEATURE", "MERGE_ENGINE", "EngineKind", "Function", "MergeEngine", "decode", "encode"]

FEATURE = "merge_engine"
"""Name of the feature of tables with an engine."""

MERGE_ENGINE = "weir.merge_engine"
"""Key among the writer defaults that holds the engine of a table."""


class EngineKind(StrEnum):
    """How the versions of a key become one row."""

    LAST_ROW = "last_row"
    FIRST_ROW = "first_row"
    PARTIAL_UPDATE = "partial_update"
    AGGREGATION = "aggregation"


class Function(StrEnum):
    """How the values of a column combine across the versions of a key."""

    LAST = "last"
    LAST_NON_NULL = "last_non_null"
    SUM = "sum"
    COUNT = "count"
    MIN = "min"
    MAX = "max"
    LIST_APPEND = "list_append"
    DISTINCT_UNION = "distinct_union"
    DISTINCT_SKETCH = "distinct_sketch"


@dataclass(frozen=True, slots=True)
class MergeEngine:
    """How the versions of a key combine into one row, from oldest to newest.

    Under every engine a delete removes the row, and the next write starts from nothing. Made by the class
    methods, and passed to :func:`weir.create`.

    Parameters
    ----------
    kind : EngineKind
        How the versions become one row.
    sequence_by : str or None, default None
        For ``last_row``: the column whose highest value wins, whatever the order of arrival.
    functions : tuple of (str, Function), default ()
        For ``aggregation``: the function of each column. All other columns keep the last non-null value.
    groups : tuple of (str, tuple of str), default ()
        For ``partial_update``: sequence columns, each with the columns it governs.

    Examples
    --------
    >>> str(MergeEngine.aggregation(total="sum", seen="max"))
    'aggregation (total: sum, seen: max)'
    """

    kind: EngineKind
    sequence_by: str | None = None
    functions: tuple[tuple[str, Function], ...] = ()
    groups: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @classmethod
    def first_row(cls) -> MergeEngine:
        """Keep the first row of a key; later writes to the key change nothing."""
        return cls(EngineKind.FIRST_ROW)

    @classmethod
    def partial_update(cls, sequence_groups: Mapping[str, str | list[str]] | None = None) -> MergeEngine:
        """Keep the last non-null value of every column: a null leaves the existing value.

        Parameters
        ----------
        sequence_groups : mapping of str to list of str, optional
            For each sequence column the columns it governs: they change together, nulls included, and only if
            the row's sequence is at least as high as the stored one. A row whose sequence is null leaves the
            group alone.

        Examples
        --------
        >>> MergeEngine.partial_update({"price_version": ["price", "currency"]}).groups
        (('price_version', ('price', 'currency')),)
        """
        groups = tuple(
            (sequence, (columns,) if isinstance(columns, str) else tuple(columns))
            for sequence, columns in (sequence_groups or {}).items()
        )
        return cls(EngineKind.PARTIAL_UPDATE, groups=groups)

    @classmethod
    def aggregation(cls, **functions: str) -> MergeEngine:
        """Aggregate the values of columns.

        Parameters
        ----------
        **functions
            By column what its values become. ``"sum"``, ``"min"``, ``"max"``, ``"last"`` and
            ``"last_non_null"`` (as all columns that are not named) say what they do; nulls count only for
            ``"last"``. ``"count"`` counts writes: a row counts one where the column is null or left out, and
            as many as it says otherwise. ``"list_append"`` puts lists one after the other, and
            ``"distinct_union"`` keeps the first of equal elements; ``"distinct_sketch"`` makes one sketch of
            all (:mod:`weir.sketches`), which estimates how many distinct values they count.

        Raises
        ------
        OptionError
            If the function is unknown.

        Examples
        --------
        >>> MergeEngine.aggregation(total="sum").functions
        (('total', <Function.SUM: 'sum'>),)
        """
        for name, one in functions.items():
            if one not in tuple(Function):
                raise OptionError(
                    f"there is no function {one!r}", where=name, hint=f"Use one of {', '.join(Function)}"
                )
        return cls(
            EngineKind.AGGREGATION, functions=tuple((name, Function(one)) for name, one in functions.items())
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it names."""
        named = [name for name, _ in self.functions]
        for sequence, followers in self.groups:
            named += [sequence, *followers]
        return (*named, *([self.sequence_by] if self.sequence_by else []))

    def __str__(self) -> str:
        """Return it for people."""
        parts = [f"{name}: {function}" for name, function in self.functions]
        parts += [f"{', '.join(followers)} by {sequence}" for sequence, followers in self.groups]
        parts += [f"by {self.sequence_by}"] if self.sequence_by else []
        return f"{self.kind} ({', '.join(parts)})" if parts else str(self.kind)


def encode(engine: MergeEngine, ids: Mapping[str, int], births: Births) -> str:
    """Return the text that is kept with a table.

    Parameters
    ----------
    ids : mapping of str to int
        The field ids of the columns.
    births : mapping of int to str or None
        Their births, by field id.
    """
    value: dict[str, object] = {"kind": str(engine.kind)}
    if engine.sequence_by is not None:
        value["sequence_by"] = ids[engine.sequence_by]
    if engine.functions:
        value["functions"] = [[ids[name], str(function)] for name, function in engine.functions]
    if engine.groups:
        value["groups"] = [[ids[name], [ids[one] for one in followers]] for name, followers in engine.groups]
    return json.dumps(with_births_noted(value, (ids[name] for name in engine.columns), births))


def decode(text: str, ids: Mapping[str, int], births: Births, *, where: str) -> MergeEngine:
    """Read what :func:`encode` returned.

    Columns that have been dropped since are left out, also where another one has the id.

    Raises
    ------
    CorruptionError
        If it is damaged.
    SchemaError
        If a column was dropped by which rows are put in order.
    """
    try:
        value = json.loads(text)
        there = without_born_later(ids, births, value.get(BIRTHS))
        names = {number: name for name, number in there.items()}
        leading = [value.get("sequence_by"), *(number for number, _ in value.get("groups", []))]
        if all(number is None or number in names for number in leading):
            return _with_names(value, names)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptionError(
            f"the merge engine of the table cannot be read: {text!r:.200}",
            where=where,
            hint="It is among the writer defaults of the MemWAL index; restore the table from a backup",
        ) from error
    raise SchemaError(
        "the table's merge engine puts versions in order by a column that was dropped",
        where=where,
        hint="Restore the last version of the dataset that has the column: LanceDataset.restore",
    )


def _with_names(value: Mapping[str, Any], names: Mapping[int, str]) -> MergeEngine:
    sequence = value.get("sequence_by")
    functions = tuple(
        (names[number], Function(function))
        for number, function in value.get("functions", [])
        if number in names
    )
    groups = tuple(
        (names[number], tuple(names[one] for one in followers if one in names))
        for number, followers in value.get("groups", [])
    )
    return MergeEngine(
        EngineKind(value["kind"]), None if sequence is None else names[sequence], functions, groups
    )
