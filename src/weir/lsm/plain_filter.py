"""Simple filters evaluated without Lance: comparisons of integers, texts and booleans.

DataFusion parses them; Arrow evaluates them on the rows as they are, which for a few takes a tenth of the
time that a plan takes to begin. Lance, whose meaning a filter has, has to have the rows in a file first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from datafusion import Expr

from weir.sharding.sql import empty_frame, parse

__all__ = ["plain_matches"]

_LONGEST = 4_000
"""Longest filter that is evaluated here, in characters: each level of a condition is copied."""
_DEEPEST = 50
"""How deep conditions may lie in each other: Python has a call for each level."""
_LOGIC: Mapping[str, Callable[..., pa.ChunkedArray]] = {"AND": pc.and_kleene, "OR": pc.or_kleene}
_COMPARISONS: Mapping[str, Callable[..., pa.ChunkedArray]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_FORMS = frozenset({"Between", "BinaryExpr", "InList", "IsNotNull", "IsNull", "Not"})
_TYPES = frozenset({pa.int64(), pa.string(), pa.bool_()})


def plain_matches(rows: pa.Table, text: str) -> npt.NDArray[np.int64] | None:
    """Return the offsets of the rows that match a filter, ascending; None if it is not a plain one.

    Parameters
    ----------
    rows : Table
        Rows with the columns that the filter names.
    text : str
        The filter, which can be used.

    Examples
    --------
    >>> rows = pa.table({"n": [1, 5, None], "name": ["a", "b", "c"]})
    >>> plain_matches(rows, "n > 3 OR name = 'c'").tolist()
    [1, 2]
    >>> plain_matches(rows, "abs(n) > 3") is None
    True
    """
    # Lance takes "x" for text, DataFusion for a column.
    if (
        len(text) > _LONGEST
        or '"' in text
        or not rows.num_rows
        or not rows.column_names
        or not _TYPES.issuperset(rows.schema.types)
    ):
        return None
    condition = _condition(tuple((one.name, one.type) for one in rows.schema), text)
    if condition is None:
        return None
    offsets: npt.NDArray[np.int64] = np.flatnonzero(pc.fill_null(_holds(condition, rows), False).to_numpy())
    return offsets


@lru_cache(64)
def _condition(columns: tuple[tuple[str, pa.DataType], ...], text: str) -> Expr | None:
    """Return a filter, read once for all sources of a scan; None if it is not a plain one."""
    try:
        condition = parse(empty_frame(columns), text)
    except ValueError:
        return None
    return condition if _is_plain(condition, pa.schema(list(columns))) else None


def _is_plain(condition: Expr, schema: pa.Schema) -> bool:
    left = [(condition, 0)]
    listed: list[str] = []
    is_negated = False
    while left:
        one, depth = left.pop()
        form = one.variant_name()
        if form == "InList":
            listed.append(str(one.rex_call_operands()[0]))
            is_negated = is_negated or one.to_variant().negated()
        is_negated = is_negated or form == "Not"
        operator = one.rex_call_operator() if form == "BinaryExpr" else ""
        if form == "Not" or operator in _LOGIC:
            if depth > _DEEPEST:
                return False
            parts = one.rex_call_operands() if form == "Not" else _joined(one, operator)
            left += [(part, depth + 1) for part in parts]
        elif not _is_plain_part(one, form, schema):
            return False
    # To the library ``n NOT IN (1) OR n NOT IN (2)`` is true of null too.
    return not is_negated or len(set(listed)) == len(listed)


def _is_plain_part(part: Expr, form: str, schema: pa.Schema) -> bool:
    """Whether a part of a condition that holds no other conditions is a plain one."""
    if form == "Column":
        return bool(_type(part, schema) == pa.bool_())
    if form not in _FORMS or (form == "BinaryExpr" and part.rex_call_operator() not in _COMPARISONS):
        return False
    operands = part.rex_call_operands()
    columns = [one for one in operands if one.variant_name() == "Column"]
    kind = _type(columns[0], schema) if len(columns) == 1 else None
    others = (one for one in operands if one.variant_name() != "Column")
    return kind is not None and all(
        one.variant_name() == "Literal" and one.python_value().type == kind for one in others
    )


def _type(column: Expr, schema: pa.Schema) -> pa.DataType | None:
    name = column.to_variant().name()
    return schema.field(name).type if name in schema.names else None


def _holds(condition: Expr, rows: pa.Table) -> pa.ChunkedArray:
    """Return where a plain condition holds, null where it is unknown."""
    form = condition.variant_name()
    if form == "Column":
        return rows.column(condition.to_variant().name())
    operands = condition.rex_call_operands()
    if form == "Not":
        return pc.invert(_holds(operands[0], rows))
    if form == "BinaryExpr" and condition.rex_call_operator() in _LOGIC:
        joined = _joined(condition, condition.rex_call_operator())
        return reduce(_LOGIC[condition.rex_call_operator()], [_holds(one, rows) for one in joined])
    values = [
        rows.column(one.to_variant().name()) if one.variant_name() == "Column" else one.python_value()
        for one in operands
    ]
    if form == "BinaryExpr":
        return _COMPARISONS[condition.rex_call_operator()](*values)
    if form in ("IsNull", "IsNotNull"):
        return pc.is_null(values[0]) if form == "IsNull" else pc.is_valid(values[0])
    if form == "Between":
        of, least, most = values
        found = pc.and_kleene(pc.greater_equal(of, least), pc.less_equal(of, most))
    else:
        found = reduce(pc.or_kleene, (pc.equal(values[0], one) for one in values[1:]))
    return pc.invert(found) if condition.to_variant().negated() else found


def _joined(condition: Expr, operator: str) -> list[Expr]:
    """Return the parts of a chain of one operator, however long, without a call for each."""
    left, parts = [condition], []
    while left:
        one = left.pop()
        if one.variant_name() == "BinaryExpr" and one.rex_call_operator() == operator:
            left += reversed(one.rex_call_operands())
        else:
            parts.append(one)
    return parts
