"""Idempotent appends of events: the response to each ``Idempotency-Key`` is kept.

The log itself says whether an append was written and which ids it has: its write is named after key and
body. The body of a key is recorded before its events are written, and the response afterwards.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from weir.errors import ConflictError, InputError, ObjectExistsError, TableError
from weir.service.kept_answers import AnswerObjects
from weir.service.keyed_body import KeyedBody
from weir.storage.interface import ObjectStore
from weir.storage.local import LocalStore

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
        self._store = LocalStore(store.uri, fsync=False) if isinstance(store, LocalStore) else store
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
        asked = KeyedBody.of(caller, key, body)
        answers = AnswerObjects(self._store, f"idempotency-events/{name}")
        # Of one key one at a time: whoever waits finds what the other has done.
        with self._locks[int(asked.key[:8], 16) % _LOCKS]:
            known = answers.read(asked.key)
            if known is None:
                try:
                    answers.keep_first(asked.key, asked.note(done=False, ids=[]))
                except ObjectExistsError:  # another process was faster, perhaps with another body
                    known = answers.read(asked.key)
            if known is not None:
                asked.check(known)
                if known["done"]:
                    return list(known["ids"])
            try:
                ids = append(asked.write_name)
            except (InputError, ConflictError, TableError):
                # Refused as a whole: the key may come with what is mended.
                if known is None:
                    answers.forget(asked.key)
                raise
            answers.keep({asked.key: asked.note(done=True, ids=ids)}, synced=False)
            return ids
