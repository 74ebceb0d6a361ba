"""Updating the marks of garbage collections."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable
from dataclasses import replace

from weir.errors import ConflictError, ObjectExistsError, ObjectNotFoundError, PreconditionError
from weir.format import garbage_marks
from weir.format.garbage_marks import MARKS, Marks
from weir.storage.interface import ObjectStore

__all__ = ["update_marks"]

_MAX_ATTEMPTS = 32
_LONGEST_WAIT_SECONDS = 0.2


def update_marks(store: ObjectStore, change: Callable[[Marks], Marks]) -> Marks:
    """Apply ``change`` to the newest marks and store the result, by compare-and-swap.

    Parameters
    ----------
    change : callable
        Maps the newest marks to what should follow them. It is called again after a lost race. If it
        changes nothing, nothing is written.

    Raises
    ------
    ConflictError
        If other collections changed them during every attempt.
    """
    for attempt in range(_MAX_ATTEMPTS):
        if attempt:
            time.sleep(random.uniform(0, min(0.002 * 2**attempt, _LONGEST_WAIT_SECONDS)))
        marks, version = _read(store)
        changed = change(marks)
        shards = {name: one for name, one in changed.shards.items() if one}
        if shards == dict(marks.shards) and changed.swept_versions == marks.swept_versions:
            return marks
        changed = replace(changed, write_id=secrets.token_hex(16))
        data = garbage_marks.encode(changed)
        try:
            if version is None:
                store.put_if_absent(MARKS, data)
            else:
                store.compare_and_swap(MARKS, data, version)
        except (ObjectExistsError, PreconditionError):
            # It can be our own, if the answer to a first attempt was lost (invariant I4).
            if _read(store)[0].write_id != changed.write_id:
                continue
        return changed
    raise ConflictError(
        f"the marks of garbage collections changed during each of {_MAX_ATTEMPTS} attempts to add to them",
        where=f"{store.uri}/{MARKS}",
        hint="Run fewer garbage collections at once",
    )


def _read(store: ObjectStore) -> tuple[Marks, str | None]:
    """Return the marks, and a version that is theirs or an older one."""
    # Asked for first: if the object changes in between, the swap fails, which is right.
    meta = store.head(MARKS)
    if meta is None:
        return Marks(), None
    try:
        data = store.get(MARKS)
    except ObjectNotFoundError:
        return Marks(), None
    with store.naming(MARKS) as where:
        return garbage_marks.decode(data, where=where), meta.version
