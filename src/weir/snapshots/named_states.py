"""Names for states of a table, and their tokens: a tag, an instant, or a token as text."""

from __future__ import annotations

import re
from datetime import datetime

from weir.base.table import BaseTable
from weir.errors import InputError
from weir.format.snapshot_token import SnapshotToken
from weir.format.tag import is_tag_name
from weir.snapshots.asked_state import At
from weir.snapshots.at_instant import check_instant, token_at_instant
from weir.snapshots.capture import SnapshotCapture
from weir.snapshots.tags import read_tag
from weir.snapshots.tokens import as_token

__all__ = ["token_of"]

_TOKEN = re.compile(r"w[0-9]+\.", re.ASCII)
_INSTANT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}.*", re.ASCII)


def token_of(base: BaseTable, cuts: SnapshotCapture, named: At, *, where: str) -> SnapshotToken:
    """Return the token of a state.

    Parameters
    ----------
    base : BaseTable
        The base table at any version.
    cuts : SnapshotCapture
        Takes the present state, where an instant is named.
    named : SnapshotToken, datetime or str
        A token or its text, which costs no round trip; the name of a tag, which costs one; an instant with a
        time zone, or its text, such as ``"2026-01-31 12:00:00+01:00"``.
    where : str
        What it was passed as, for errors.

    Raises
    ------
    InputError
        If it is none of these, or belongs to another table.
    SnapshotExpiredError
        If the state of an instant has been collected.
    """
    if isinstance(named, datetime):
        return token_at_instant(cuts, check_instant(named, where=where))
    if isinstance(named, str) and _TOKEN.match(named) is None:
        if _INSTANT.fullmatch(named):
            return token_at_instant(cuts, check_instant(_parsed(named, where), where=where))
        tag = read_tag(base.store, named) if is_tag_name(named) else None
        if tag is None:
            raise InputError(
                f"{named[:60]!r} is not the text of a snapshot token or an instant, and the table has no "
                "tag of that name",
                where=where,
                hint="table.tags.list() names the tags, table.snapshot() makes a token",
            )
        named = tag.token
    return as_token(named, base.identity, where=where)


def _parsed(text: str, where: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(f"{text[:60]!r} is not an instant: {error}", where=where) from error
