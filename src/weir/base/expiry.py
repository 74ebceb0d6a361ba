"""Validation of row expiry: whether the columns of a new table permit it."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa

from weir.errors import OptionError, SchemaError
from weir.format.expiry import Expiry
from weir.format.merge_engine import EngineKind, MergeEngine

__all__ = ["chosen_expiry"]

_LONGEST = timedelta(days=365_000)


def chosen_expiry(
    expire_after: timedelta | None, expire_by: str | None, schema: pa.Schema, engine: MergeEngine | None
) -> Expiry | None:
    """Return when rows expire; None if they do not.

    Parameters
    ----------
    expire_after : timedelta, optional
        How long after the time in the column. Default: at that time.
    expire_by : str, optional
        The column.
    schema : Schema
        The columns of the table.
    engine : MergeEngine or None
        The merge engine of the table.

    Raises
    ------
    OptionError
        If there is a time and no column, the time is none, or rows of the merge engine cannot expire.
    SchemaError
        If there is no such column, or it is not a time.
    """
    if expire_after is not None and not isinstance(expire_after, timedelta):
        raise OptionError(
            f"expire_after is a timedelta, got {expire_after!r:.80}",
            where="expire_after",
            hint="datetime.timedelta(days=7), for example",
        )
    if expire_after is not None and not timedelta(0) <= expire_after <= _LONGEST:
        raise OptionError(
            f"expire_after is from 0 to {_LONGEST.days} days, got {expire_after}", where="expire_after"
        )
    if expire_by is None:
        if expire_after is not None:
            raise OptionError(
                "expire_after counts from the time in a column, but no column is named",
                where="expire_after",
                hint="Name it: expire_by=",
            )
        return None
    if not isinstance(expire_by, str) or expire_by not in schema.names:
        raise SchemaError(
            f"there is no column {expire_by!r} by which rows could expire",
            where=str(expire_by),
            hint=f"Columns: {', '.join(schema.names)}",
        )
    kind = schema.field(expire_by).type
    if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        raise SchemaError(
            f"rows cannot expire by a column of the type {kind}",
            where=expire_by,
            hint="Use a timestamp or a date",
        )
    if engine is not None and engine.kind is not EngineKind.LAST_ROW:
        raise OptionError(
            f"with {engine.kind} a row combines all versions of its key, so that expired values would return "
            "with the next one",
            where="expire_by",
            hint="Leave out the merge engine, or delete rows yourself",
        )
    return Expiry(expire_by, expire_after or timedelta(0))
