"""The columns of the primary key, recorded in addition to Lance's own marks.

Plain Lance drops a key column like any other. The rest of a key of several columns would then pass for the
whole key, and rows would replace others that share only a part of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from weir.errors import CorruptionError, SchemaError
from weir.format.field_births import Births
from weir.format.recorded_columns import BIRTHS, with_births_noted, without_born_later

__all__ = ["PRIMARY_KEY", "decode", "encode"]

PRIMARY_KEY = "weir.primary_key"
"""Key among the writer defaults of the MemWAL index under which it is kept."""


def encode(key: Sequence[str], ids: Mapping[str, int], births: Births) -> str:
    """Return the text that is kept with a table.

    Parameters
    ----------
    key : sequence of str
        The columns, in key order.
    ids : mapping of str to int
        The field ids of the columns of the table.
    births : mapping of int to str or None
        Their births, by field id.

    Examples
    --------
    >>> encode(["site", "id"], {"id": 0, "site": 3}, {0: "0", 3: None})
    '{"columns": [3, 0], "births": {"0": "0"}}'
    """
    numbers = [ids[name] for name in key]
    return json.dumps(with_births_noted({"columns": numbers}, numbers, births))


def decode(text: str, ids: Mapping[str, int], births: Births, *, where: str) -> tuple[str, ...]:
    """Read what :func:`encode` returned.

    Raises
    ------
    CorruptionError
        If it is damaged.
    SchemaError
        If a column was dropped, even if another one now has its id.
    """
    try:
        value = json.loads(text)
        there = without_born_later(ids, births, value.get(BIRTHS))
        names = {number: name for name, number in there.items()}
        numbers = [int(number) for number in value["columns"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptionError(
            f"the primary key recorded under {PRIMARY_KEY} cannot be read: {text[:80]!r}",
            where=where,
        ) from error
    if not names.keys() >= set(numbers):
        raise SchemaError(
            "the primary key of the table has a column that was dropped",
            where=where,
            hint="Restore the last version of the dataset that has the column: LanceDataset.restore",
        )
    return tuple(names[number] for number in numbers)
