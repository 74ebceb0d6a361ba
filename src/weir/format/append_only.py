"""Append-only tables: how the property is recorded with a table.

It is stored among the writer defaults of the MemWAL index, with columns as field ids. Such a table has no
primary key, neither for the library nor for Weir, its generations have no key index, and it carries the
feature :data:`FEATURE`: readers that only know keyed tables stop.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from weir.errors import CorruptionError
from weir.format.field_births import Births
from weir.format.recorded_columns import BIRTHS, with_births_noted, without_born_later

__all__ = ["APPEND_ONLY", "FEATURE", "AppendOnly", "decode", "encode"]

FEATURE = "append_only"
"""Name of the feature that such a table uses."""

APPEND_ONLY = "weir.append_only"
"""Its key among the writer defaults."""


@dataclass(frozen=True, slots=True)
class AppendOnly:
    """Rows are only added.

    Parameters
    ----------
    sort_by : tuple of str, default ()
        The columns by which the rows of a generation, and of a fragment of the base table, are sorted.
    unique : tuple of str, default ()
        Columns whose values the writers have promised to be unique. Nothing checks it.
    """

    sort_by: tuple[str, ...] = ()
    unique: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it names."""
        return (*self.sort_by, *self.unique)


def encode(value: AppendOnly, ids: Mapping[str, int], births: Births) -> str:
    """Return the text that is kept with a table.

    Parameters
    ----------
    ids : mapping of str to int
        The field ids of the columns.
    births : mapping of int to str or None
        Their births, by field id.

    Examples
    --------
    >>> encode(AppendOnly(sort_by=("at",)), {"at": 3}, {3: "0"})
    '{"sort_by": [3], "unique": [], "births": {"3": "0"}}'
    """
    rule = {"sort_by": [ids[name] for name in value.sort_by], "unique": [ids[name] for name in value.unique]}
    return json.dumps(with_births_noted(rule, (ids[name] for name in value.columns), births))


def decode(text: str, ids: Mapping[str, int], births: Births, *, where: str) -> AppendOnly:
    """Read what :func:`encode` returned.

    Columns that have been dropped since are left out, also where another one has the id.

    Raises
    ------
    CorruptionError
        If it is damaged.
    """
    try:
        value = json.loads(text)
        there = without_born_later(ids, births, value.get(BIRTHS))
        names = {number: name for name, number in there.items()}
        sort_by, unique = (
            tuple(names[int(number)] for number in value[part] if int(number) in names)
            for part in ("sort_by", "unique")
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptionError(
            f"the append-only setting under {APPEND_ONLY} cannot be read: {text[:80]!r}", where=where
        ) from error
    return AppendOnly(sort_by, unique)
