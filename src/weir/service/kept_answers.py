"""What is kept of requests with an ``Idempotency-Key``: which body came with it, and what was answered."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from weir.errors import ObjectNotFoundError
from weir.service.refusals import Refusal
from weir.storage.interface import ObjectStore
from weir.storage.local import LocalStore

__all__ = ["KeptAnswer", "key_digest", "noting_store"]

_MOST_CHARACTERS = 256


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
    body : bytes
        What came with the key now.
    """

    store: ObjectStore
    path: str
    body: bytes

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
        if found["body"] != self._digest:
            raise Refusal(422, "idempotency_conflict", "another body came with this Idempotency-Key before")
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

    def write_name(self, digest: str) -> str:
        """Return the name of the one write of a key and its body.

        The body is part of it: a key that is older than what is kept may come with another one, and what came
        before is not to be taken for that.

        Parameters
        ----------
        digest : str
            Of the key.
        """
        return hashlib.sha256(f"{digest} {self._digest}".encode()).hexdigest()[:32]

    def _content(self, done: bool, answer: Mapping[str, Any]) -> bytes:
        return json.dumps({"body": self._digest, "done": done, **answer}, default=str).encode()

    @property
    def _digest(self) -> str:
        return hashlib.sha256(self.body).hexdigest()
