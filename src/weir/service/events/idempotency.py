"""Idempotent appends of events: the response to each ``Idempotency-Key`` is kept.

The log itself says whether an append was written and which ids it has: its write is named after key and
body. The body of a key is recorded before its events are written, and the response afterwards.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from weir.errors import ConflictError, InputError, ObjectExistsError, TableError
from weir.service.kept_answers import KeptAnswer, key_digest, noting_store
from weir.storage.interface import ObjectStore

__all__ = ["IdempotentBatches"]

_LOCKS = 64


class IdempotentBatches:
    """The kept responses of appends below a root.

    Parameters
    ----------
    store : ObjectStore
        The root.
    """

    def __init__(self, store: ObjectStore) -> None:
        # What a loss of power takes of the notes, the log tells.
        self._store = noting_store(store)
        self._locks = [threading.Lock() for _ in range(_LOCKS)]

    def append(
        self, name: str, caller: str, key: str, body: bytes, append: Callable[[str], list[int]]
    ) -> list[int]:
        """Append events, unless they were appended already; return their ids.

        Parameters
        ----------
        name : str
            The event store.
        caller : str
            Id of the caller's API key.
        key, body
            The key and body of the request.
        append : callable
            Appends named events once, and returns their ids.

        Raises
        ------
        Refusal
            400 if the key is not valid; 422 if it was used with another body before.
        """
        digest = key_digest(caller, key)
        kept = KeptAnswer.of(self._store, f"idempotency-events/{name}/{digest}.json", body)
        # Of one key one at a time: whoever waits finds what the other has done.
        with self._locks[int(digest[:8], 16) % _LOCKS]:
            known = kept.read()
            if known is None:
                try:
                    kept.keep_first(done=False, ids=[])
                except ObjectExistsError:  # another process was faster, perhaps with another body
                    known = kept.read()
            if known is not None and known["done"]:
                return list(known["ids"])
            try:
                ids = append(kept.write_name(digest))
            except (InputError, ConflictError, TableError):
                # Refused as a whole: the key may come with what is mended.
                if known is None:
                    kept.forget()
                raise
            kept.keep(done=True, ids=ids)
            return ids
