"""Columns in recorded rules of a table: each by field id and birth.

Lance reuses the id of a dropped column once nothing in the newest version has it
(:mod:`weir.format.field_births`). A rule that names the id alone would then mean the new column, which only
shares the number. A rule that was recorded without births, by an older Weir, goes by the ids.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from weir.errors import ShardingError
from weir.format.field_births import Births

if TYPE_CHECKING:
    from weir.format.index_details import ShardSpec

__all__ = ["BIRTHS", "SOURCE_BIRTHS", "births_noted", "sources_there", "with_births_noted"]
__all__ += ["without_born_later"]

BIRTHS = "births"
"""Member of a rule, as JSON, with the births of the columns that it names."""

SOURCE_BIRTHS = "weir:source_births"
"""Parameter of a field of a shard spec with the births of its source columns, by field id in JSON."""


def births_noted(numbers: Iterable[int], births: Births) -> dict[str, str]:
    """Return the recorded births of columns, by field id, without columns that have none.

    Examples
    --------
    >>> births_noted([3, 5], {3: "0", 5: None})
    {'3': '0'}
    """
    known = {number: births.get(number) for number in sorted(set(numbers))}
    return {str(number): birth for number, birth in known.items() if birth is not None}


def with_births_noted(rule: Mapping[str, Any], numbers: Iterable[int], births: Births) -> dict[str, Any]:
    """Return a rule with the births of the columns that it names.

    Examples
    --------
    >>> with_births_noted({"by": 3}, [3], {3: "0"})
    {'by': 3, 'births': {'3': '0'}}
    """
    noted = births_noted(numbers, births)
    return {**rule, BIRTHS: noted} if noted else dict(rule)


def without_born_later(
    ids: Mapping[str, int], births: Births, noted: Mapping[str, str] | None
) -> dict[str, int]:
    """Return the columns of a table that a rule may name: those that are not others of the same id.

    Parameters
    ----------
    ids : mapping of str to int
        The field ids of the columns, by name.
    births : mapping of int to str or None
        The births of the columns, by field id.
    noted : mapping of str to str or None
        What :func:`births_noted` returned when the rule was recorded; None of a rule without.

    Examples
    --------
    >>> without_born_later({"id": 0, "at": 3}, {0: "0", 3: "7-00c0ffee00c0ffee"}, {"3": "0"})
    {'id': 0}
    """
    then = {int(number): str(birth) for number, birth in (noted or {}).items()}
    return {
        name: number
        for name, number in ids.items()
        if number not in then or births.get(number) in (None, then[number])
    }


def sources_there(spec: ShardSpec, ids: Mapping[str, int], births: Births) -> dict[str, int]:
    """Return the columns of a table that a shard spec may mean.

    Parameters
    ----------
    spec : ShardSpec
        The spec.
    ids : mapping of str to int
        The field ids of the columns, by name.
    births : mapping of int to str or None
        The births of the columns, by field id.

    Raises
    ------
    ShardingError
        What the spec records of births is malformed.
    """
    there = dict(ids)
    for one in spec.fields:
        text = one.parameters.get(SOURCE_BIRTHS)
        try:
            there = without_born_later(there, births, None if text is None else json.loads(text))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise ShardingError(
                f"shard field {one.field_id!r} records {text!r:.80} as the births of its columns"
            ) from error
    return there
