"""SQL literals of Arrow values, for the key lookups Weir hands to Lance."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["key_filter", "literals"]


def literals(values: pa.Array) -> list[str] | None:
    """Return the SQL literal of every value, or None if Lance's SQL has none for the type.

    Examples
    --------
    >>> import pyarrow as pa
    >>> literals(pa.array(["it's"]))
    ["'it''s'"]
    """
    kind = values.type
    if pa.types.is_integer(kind):
        # Lance reads the digits before the sign, and those of the least int64 are one too many.
        least = -(2**63)
        return [str(value) if value != least else f"{least + 1} - 1" for value in values.to_pylist()]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return ["'" + value.replace("'", "''") + "'" for value in values.to_pylist()]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return [f"X'{value.hex()}'" for value in values.to_pylist()]
    if pa.types.is_date32(kind):
        return [f"date '{value}'" for value in pc.strftime(values, "%Y-%m-%d").to_pylist()]
    if pa.types.is_timestamp(kind) and kind.unit in ("s", "ms", "us"):
        zone = "+00:00" if kind.tz else ""
        texts = pc.cast(
            values.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).cast(pa.timestamp("us")), pa.string()
        )
        return [f"timestamp '{text}{zone}'" for text in texts.to_pylist()]
    return None


def key_filter(names: tuple[str, ...], columns: tuple[pa.Array, ...]) -> str | None:
    """Return a filter that every row with one of the keys passes, or None if none can be written.

    For composite keys it is the product of the columns' values, so other rows may pass it too.
    """
    terms = []
    for name, column in zip(names, columns, strict=True):
        texts = literals(pc.unique(column))
        if texts is not None:
            terms.append(f"`{name}` IN ({', '.join(texts)})")
    return " AND ".join(terms) or None
