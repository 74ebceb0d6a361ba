"""Filters that need no library of files: comparisons of whole numbers, texts and booleans.

DataFusion evaluates them on the rows as they are. Lance, whose meaning a filter has, does so with DataFusion
too, but has to have the rows in a file first.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from datafusion import Expr, col

from weir.sharding.sql import parse, session

__all__ = ["plain_matches"]

_NUMBER = "__weir_row"
_LONGEST = 4_000
"""Characters of a filter that is looked at: each level of a condition is copied when it is."""
_LOGIC = frozenset({"AND", "OR"})
_COMPARISONS = frozenset({"=", "!=", "<", "<=", ">", ">="})
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
    numbered = rows.append_column(_NUMBER, pa.array(np.arange(rows.num_rows)))
    # Without a name: under one, the session would keep the rows for as long as the process lives.
    frame = session().read_batches(numbered.to_batches())
    try:
        condition = parse(frame, text)
    except ValueError:
        return None
    if not _is_plain(condition, rows.schema):
        return None
    found = frame.filter(condition).select(col(_NUMBER)).to_arrow_table()
    offsets: npt.NDArray[np.int64] = found.column(0).to_numpy()
    return np.sort(offsets)


def _is_plain(condition: Expr, schema: pa.Schema) -> bool:
    left = [condition]
    while left:
        one = left.pop()
        form = one.variant_name()
        if form == "Not" or (form == "BinaryExpr" and one.rex_call_operator() in _LOGIC):
            left += one.rex_call_operands()
        elif not _is_plain_part(one, form, schema):
            return False
    return True


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
