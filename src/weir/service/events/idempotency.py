"""Batches of events that may be repeated: of one ``Idempotency-Key`` the answer is kept.

The log itself says whether a batch is there and which ids it has: its write is named after key and body. What
is noted beside it is which body came with a key, before the batch is written, and the answer, once it is.
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
    """The answers of batches below a root.

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
        """Append a batch, unless it was done already; return the ids of its events.

        Parameters
        ----------
        name : str
            The event store.
        caller : str
            Id of the key of whoever asks.
        key, body
            Of the request.
        append : callable
            Appends events once that have a name, and returns the ids they have.

        Raises
        ------
        Refusal
            400 if it is no key; 422 if another body came with it before.
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
