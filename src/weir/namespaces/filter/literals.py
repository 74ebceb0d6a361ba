"""Values as SQL literals: the only way for client values into a query."""

from __future__ import annotations

from datetime import UTC, datetime

from weir.errors import InputError
from weir.namespaces.attributes import AttributeType, Kind
from weir.namespaces.values import check_value

__all__ = ["identifier", "literal", "text_literal"]


def identifier(column: str) -> str:
    """Return a column as SQL: its name in backticks, which it cannot contain itself."""
    if "`" in column:
        raise InputError(f"no column is called {column!r}")
    return f"`{column}`"


def text_literal(text: str) -> str:
    """Return a text as SQL.

    Examples
    --------
    >>> text_literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def literal(name: str, type: AttributeType, value: object) -> str:
    """Return a value as SQL, of the type of an attribute or of its elements.

    An integer literal is untyped, which leaves indexes usable, unless it is compared with list elements.

    Raises
    ------
    InputError
        If it is of another type.
    """
    if type.kind in (Kind.INT, Kind.UINT) and isinstance(value, float) and value.is_integer():
        value = int(value)
    checked = check_value(name, type, value)
    if isinstance(checked, bool):
        return "true" if checked else "false"
    if type.kind is Kind.UINT:
        wide = type.is_list or int(str(checked)) > 2**63 - 1
        return f"arrow_cast('{checked}', 'UInt64')" if wide else str(checked)
    if type.kind is Kind.INT:
        # The least of all cannot be written as a number with a sign before it.
        return f"arrow_cast('{checked}', 'Int64')" if checked == -(2**63) else str(checked)
    if isinstance(checked, int | float):
        return repr(float(checked) + 0.0)  # no zero has a sign, as in the columns
    if isinstance(checked, datetime):
        moment = checked.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00")
        return f"arrow_cast('{moment}Z', 'Timestamp(Microsecond, Some(\"UTC\"))')"
    if isinstance(checked, bytes):
        return f"arrow_cast(X'{checked.hex()}', 'FixedSizeBinary(16)')"
    assert isinstance(checked, str)
    return text_literal(checked)
