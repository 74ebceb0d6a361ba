"""Which rows have expired at an instant: a condition for Lance, and a mask for rows in memory."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.base.table import BaseTable
from weir.lsm.literals import literals

__all__ = ["expired_filter", "expiry_instant", "live_filter", "live_mask"]


def expiry_instant() -> datetime:
    """Return the instant at which a read of the newest state judges what has expired: now, here."""
    return datetime.now(UTC)


def expired_filter(base: BaseTable, instant: datetime) -> str | None:
    """Return the condition of rows that have expired at an instant; None of a table whose rows do not."""
    expiry = base.expiry
    return None if expiry is None else f"`{expiry.column}` <= {_latest(base, instant)}"


def live_filter(base: BaseTable, filter: str | None, instant: datetime | None) -> str | None:
    """Return a filter with the condition that rows have not expired.

    Parameters
    ----------
    filter : str or None
        The filter; None lets every row pass.
    instant : datetime or None
        When. None: now.
    """
    expiry = base.expiry
    if expiry is None:
        return filter
    latest = _latest(base, instant or expiry_instant())
    live = f"(`{expiry.column}` > {latest} OR `{expiry.column}` IS NULL)"
    return live if filter is None else f"({filter}\n) AND {live}"


def live_mask(base: BaseTable, rows: pa.Table, instant: datetime | None) -> npt.NDArray[np.bool_] | None:
    """Return which rows have not expired; None if all count, as where rows do not expire.

    Parameters
    ----------
    rows : Table
        Rows with their expiry column.
    instant : datetime or None
        When. None: now.
    """
    expiry = base.expiry
    if expiry is None or not rows.num_rows:
        return None
    expired = expiry.expired(rows.column(expiry.column), instant or expiry_instant())
    if isinstance(expired, pa.ChunkedArray):
        expired = expired.combine_chunks()
    gone: npt.NDArray[np.bool_] = expired.to_numpy(zero_copy_only=False)
    return ~gone if gone.any() else None


def _latest(base: BaseTable, instant: datetime) -> str:
    expiry = base.expiry
    assert expiry is not None
    kind = base.schema.field(expiry.column).type
    latest = pa.array([expiry.latest_expired(kind, instant)], kind)
    if pa.types.is_date64(kind):
        latest = latest.cast(pa.date32())
    texts = literals(latest)
    assert texts is not None
    return texts[0]
