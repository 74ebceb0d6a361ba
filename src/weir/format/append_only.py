"""Tables whose rows are only added: how that is recorded with a table.

It stands among the writer defaults of the MemWAL index, columns by field id. Such a table has no primary
key, neither for the library nor for Weir, its generations have no key index, and it carries the feature
:data:`FEATURE`: whoever only knows of keys stops.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from weir.errors import CorruptionError

__all__ = ["APPEND_ONLY", "FEATURE", "AppendOnly", "decode", "encode"]

FEATURE = "append_only"
"""Name of the feature that such a table uses."""

APPEND_ONLY = "weir.append_only"
"""Key among the writer defaults under which it is kept."""


@dataclass(frozen=True, slots=True)
class AppendOnly:
    """Rows are only added.

    Parameters
    ----------
    sort_by : tuple of str, default ()
        The columns by which the rows of a generation, and of a fragment of the base table, are sorted.
    unique : tuple of str, default ()
        Columns whose values the writers have promised to be there once. Nobody looks.
    """

    sort_by: tuple[str, ...] = ()
    unique: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it names."""
        return (*self.sort_by, *self.unique)


def encode(value: AppendOnly, ids: Mapping[str, int]) -> str:
    """Return the text that is kept with a table.

    Parameters
    ----------
    ids : mapping of str to int
        The field ids of the columns.

    Examples
    --------
    >>> encode(AppendOnly(sort_by=("at",)), {"at": 3})
    '{"sort_by": [3], "unique": []}'
    """
    return json.dumps(
        {"sort_by": [ids[name] for name in value.sort_by], "unique": [ids[name] for name in value.unique]}
    )


def decode(text: str, ids: Mapping[str, int], *, where: str) -> AppendOnly:
    """Read what :func:`encode` returned. Columns that have been dropped since are left out.

    Raises
    ------
    CorruptionError
        If it is not what was written.
    """
    names = {number: name for name, number in ids.items()}
    try:
        value = json.loads(text)
        sort_by, unique = (
            tuple(names[int(number)] for number in value[part] if int(number) in names)
            for part in ("sort_by", "unique")
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptionError(
            f"what is recorded of appending under {APPEND_ONLY} cannot be read: {text[:80]!r}", where=where
        ) from error
    return AppendOnly(sort_by, unique)
