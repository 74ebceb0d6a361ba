"""What is kept of requests with an ``Idempotency-Key``: which body came with it, and what was answered."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from weir import Source
from weir.errors import ObjectNotFoundError
from weir.service.refusals import Refusal
from weir.storage.interface import ObjectStore
from weir.storage.local import LocalStore

__all__ = ["KeptAnswer", "key_digest", "noting_store"]

_MOST_CHARACTERS = 256
_BODY_BITS = 43
_HOURS = 25
"""So old a mark tells of its key at most: answers are kept for a day."""


def key_digest(caller: str, key: str) -> str:
    """Return the name under which an ``Idempotency-Key`` is kept: 64 hex digits.

    Parameters
    ----------
    caller : str
        Id of the key of whoever sends it: nobody is told what another one was answered.
    key : str
        The header.

    Raises
    ------
    Refusal
        400 if it is no key.
    """
    if not 1 <= len(key) <= _MOST_CHARACTERS or not key.isprintable():
        raise Refusal(400, "invalid_request", "an Idempotency-Key has 1 to 256 characters")
    return hashlib.sha256(f"{caller} {key}".encode()).hexdigest()


def noting_store(store: ObjectStore) -> ObjectStore:
    """Return a store for notes that need not survive a loss of power: nothing waits for the disk."""
    return LocalStore(store.uri, fsync=False) if isinstance(store, LocalStore) else store


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """The place of one key's answer.

    Parameters
    ----------
    store : ObjectStore
        The root of the service.
    path : str
        The object.
    digest : str
        Of the body that came with the key now.
    """

    store: ObjectStore
    path: str
    digest: str

    @classmethod
    def of(cls, store: ObjectStore, path: str, body: bytes) -> KeptAnswer:
        """Return the place of the answer to a body, which is not held on to."""
        return cls(store, path, hashlib.sha256(body).hexdigest())

    def read(self, counts: Callable[[Mapping[str, Any]], bool] = lambda _: True) -> dict[str, Any] | None:
        """Return what is kept, or None if nothing is that can be read.

        Parameters
        ----------
        counts : callable
            Whether something that is kept is to be gone by. Default: it is.

        Raises
        ------
        Refusal
            422 if another body came with the key before.
        """
        try:
            found: dict[str, Any] = json.loads(bytes(memoryview(self.store.get(self.path))))
        except (ObjectNotFoundError, ValueError):  # no note, or one that a loss of power has emptied
            return None
        if not counts(found):
            return None
        if found["body"] != self.digest:
            raise _another_body()
        return found

    def keep(self, *, done: bool, **answer: Any) -> None:
        """Keep an answer, before what it tells of is durable (``done`` is False) or after."""
        self.store.put(self.path, self._content(done, answer))

    def keep_first(self, *, done: bool, **answer: Any) -> None:
        """Keep an answer, as :meth:`keep`, if nothing is kept.

        Raises
        ------
        ObjectExistsError
            If something is.
        """
        self.store.put_if_absent(self.path, self._content(done, answer))

    def forget(self) -> None:
        """Keep nothing any more."""
        self.store.delete([self.path])

    def mark(self, digest: str) -> Source:
        """Return the mark of the write of a key; its number tells the body, and when it was made.

        Parameters
        ----------
        digest : str
            Of the key.
        """
        return Source.once(digest[:32], int(time.time() // 3600) << _BODY_BITS | self._body_number)

    def has_mark(self, number: int) -> bool:
        """Whether a mark of the key, which has this number, is that of the same body.

        Raises
        ------
        Refusal
            422 if it is of another one, unless it is so old that the key may be used for something else.
        """
        hour, body = divmod(number, 1 << _BODY_BITS)
        if body == self._body_number:
            return True
        if time.time() // 3600 - hour <= _HOURS:
            raise _another_body()
        return False

    def write_name(self, digest: str) -> str:
        """Return a name of the write of a key and its body, for where others may have come with the key.

        Parameters
        ----------
        digest : str
            Of the key.
        """
        return hashlib.sha256(f"{digest} {self.digest}".encode()).hexdigest()[:32]

    def _content(self, done: bool, answer: Mapping[str, Any]) -> bytes:
        return json.dumps({"body": self.digest, "done": done, **answer}, default=str).encode()

    @property
    def _body_number(self) -> int:
        return int(self.digest, 16) % (1 << _BODY_BITS)


def _another_body() -> Refusal:
    return Refusal(422, "idempotency_conflict", "another body came with this Idempotency-Key before")
