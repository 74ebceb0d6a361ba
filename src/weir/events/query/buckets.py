"""PER: time buckets in the local time of a zone, identified by the instant at which they begin."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
from datafusion import Expr, udf

from weir.events.field_types import INSTANT
from weir.events.language.tree import Name
from weir.events.query.scope import failure
from weir.schema.zone_clocks import clocks_of

__all__ = ["bucket_of", "bucket_starts", "check_zone"]


def check_zone(zone: Name | None) -> str | None:
    """Return the name of a time zone.

    Raises
    ------
    QueryError
        If no such name exists.
    """
    if zone is None:
        return None
    try:
        ZoneInfo(zone.text)
    except Exception:  # a name may also be a path, or that of a directory
        raise failure(
            f"there is no time zone {zone.text!r:.80}", zone.place, 'Expected one such as "Europe/Berlin"'
        ) from None
    return None if zone.text == "UTC" else zone.text


def bucket_starts(instants: pa.Array, unit: str, zone: str) -> pa.Array:
    """Return the start of the bucket of each instant, in the local time of a zone."""
    if zone == "UTC":
        # Its clocks are never set.
        plain = instants.cast(pa.timestamp("us"))
        return pc.floor_temporal(plain, unit=unit, week_starts_monday=True).cast(INSTANT)
    if len(instants) == 0:
        return instants
    micros = pc.fill_null(instants.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    clocks = clocks_of(zone, micros)
    local = clocks.shown(micros)
    plain = pa.array(local).cast(pa.timestamp("us"))
    start = pc.floor_temporal(plain, unit=unit, week_starts_monday=True).cast(pa.int64()).to_numpy()
    # Hours that the clocks show twice are told apart by how far they are from UTC. A day that begins in a gap
    # of the clocks begins at its end; one whose midnight comes twice, at the first.
    found = start - (local - micros) if unit in ("minute", "hour") else clocks.first_shown(start)
    return pa.array(found, mask=instants.is_null().to_numpy(zero_copy_only=False)).cast(INSTANT)


def bucket_of(time: Expr, is_date: bool, unit: str, zone: str | None) -> Expr:
    """Return the bucket of a time as an expression."""
    instant = time.cast(INSTANT) if is_date else time
    named = zone or "UTC"

    def starts(instants: pa.Array) -> pa.Array:
        return bucket_starts(instants, unit, named)

    return udf(starts, [INSTANT], INSTANT, "stable", name=f"bucket_{unit}")(instant)
