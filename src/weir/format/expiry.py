"""Row expiry: how it is recorded with a table, and which rows have expired.

It stands among the writer defaults of the MemWAL index, the column by field id. A table whose rows expire
carries the feature :data:`FEATURE`: who does not know of it would show rows that are gone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from weir.errors import CorruptionError, SchemaError
from weir.format.field_births import Births
from weir.format.recorded_columns import BIRTHS, with_births_noted, without_born_later

__all__ = ["EXPIRY", "FEATURE", "Expiry", "decode", "encode"]

FEATURE = "expiry"
"""Name of the feature that such a table uses."""

EXPIRY = "weir.expiry"
"""Its key among the writer defaults."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_PER_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1}


@dataclass(frozen=True, slots=True)
class Expiry:
    """When rows expire: some time after the time that they have in a column. Without one they never do.

    Times without a zone are in UTC, and a date is the beginning of its day there.

    Parameters
    ----------
    column : str
        A column of timestamps or dates.
    after : timedelta, default 0
        How long after that time.
    """

    column: str
    after: timedelta = timedelta(0)

    def __str__(self) -> str:
        """Describe it for people."""
        return f"{self.after} after {self.column}" if self.after else f"at {self.column}"

    def latest_expired(self, kind: pa.DataType, instant: datetime) -> pa.Scalar:
        """Return the latest value of the column with which a row has expired at an instant.

        Parameters
        ----------
        kind : DataType
            The type of the column.
        instant : datetime
            The instant, with a zone.

        Examples
        --------
        >>> week = Expiry("day", timedelta(days=7))
        >>> week.latest_expired(pa.date32(), datetime(2026, 3, 9, 12, tzinfo=UTC)).as_py()
        datetime.date(2026, 3, 2)
        """
        micros = (instant - _EPOCH - self.after) // _MICROSECOND
        if pa.types.is_date(kind):
            days = micros // 86_400_000_000
            if pa.types.is_date32(kind):
                return pa.scalar(max(days, -(2**31)), pa.int32()).cast(pa.date32())
            return pa.scalar(days * 86_400_000, pa.int64()).cast(kind)
        count = micros * 1_000 if kind.unit == "ns" else micros // _PER_UNIT[kind.unit]
        return pa.scalar(max(count, -(2**63)), pa.int64()).cast(kind)

    def expired(self, values: pa.Array | pa.ChunkedArray, instant: datetime) -> pa.Array | pa.ChunkedArray:
        """Return of some values of the column which belong to rows that have expired at an instant.

        Examples
        --------
        >>> from datetime import date
        >>> days = pa.array([date(2026, 3, 2), date(2026, 3, 3), None])
        >>> Expiry("day", timedelta(days=7)).expired(days, datetime(2026, 3, 9, 12, tzinfo=UTC)).to_pylist()
        [True, False, False]
        """
        return pc.less_equal(values, self.latest_expired(values.type, instant)).fill_null(False)


def encode(expiry: Expiry, ids: Mapping[str, int], births: Births) -> str:
    """Return the text that is kept with a table.

    Parameters
    ----------
    ids : mapping of str to int
        The field ids of the columns.
    births : mapping of int to str or None
        Their births, by field id.

    Examples
    --------
    >>> encode(Expiry("at", timedelta(seconds=90)), {"at": 3}, {3: "0"})
    '{"by": 3, "after_micros": 90000000, "births": {"3": "0"}}'
    """
    by = ids[expiry.column]
    rule = {"by": by, "after_micros": expiry.after // _MICROSECOND}
    return json.dumps(with_births_noted(rule, [by], births))


def decode(text: str, ids: Mapping[str, int], births: Births, *, where: str) -> Expiry:
    """Read what :func:`encode` returned.

    Raises
    ------
    CorruptionError
        If it is damaged.
    SchemaError
        If the column was dropped, even if another one now has its id.
    """
    try:
        value = json.loads(text)
        there = without_born_later(ids, births, value.get(BIRTHS))
        names = {number: name for name, number in there.items()}
        by, after = int(value["by"]), int(value["after_micros"]) * _MICROSECOND
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise CorruptionError(
            f"the expiry setting under {EXPIRY} cannot be read: {text[:80]!r}", where=where
        ) from error
    if by not in names:
        raise SchemaError(
            "the rows of the table expire by a column that was dropped",
            where=where,
            hint="Restore the last version of the dataset that has the column: LanceDataset.restore",
        )
    return Expiry(names[by], after)
