"""Storage of idempotency records: the body that came with each ``Idempotency-Key``, and the response."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from weir import Source
from weir.errors import ObjectNotFoundError
from weir.service.refusals import Refusal
from weir.storage.interface import ObjectStore
from weir.storage.local import LocalStore

__all__ = ["KeptAnswer", "keep_together", "key_digest", "noting_store", "with_records"]

_MOST_CHARACTERS = 256
_BODY_BITS = 43
_TOGETHER = "together"
_HOURS = 25
"""Longest validity of a mark: responses are kept for a day."""


def key_digest(caller: str, key: str) -> str:
    """Return the storage name of an ``Idempotency-Key``: 64 hex digits.

    Parameters
    ----------
    caller : str
        Id of the caller's API key: callers never see each other's responses.
    key : str
        The header.

    Raises
    ------
    Refusal
        400 if the key is not valid.
    """
    if not 1 <= len(key) <= _MOST_CHARACTERS or not key.isprintable():
        raise Refusal(400, "invalid_request", "an Idempotency-Key has 1 to 256 characters")
    return hashlib.sha256(f"{caller} {key}".encode()).hexdigest()


def noting_store(store: ObjectStore) -> ObjectStore:
    """Return a store without fsync, for records that need not survive a power loss."""
    return LocalStore(store.uri, fsync=False) if isinstance(store, LocalStore) else store


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """The stored record of one key.

    Parameters
    ----------
    store : ObjectStore
        The root of the service.
    path : str
        The object.
    digest : str
        The digest of the current body.
    """

    store: ObjectStore
    path: str
    digest: str

    @classmethod
    def of(cls, store: ObjectStore, path: str, body: bytes) -> KeptAnswer:
        """Return the record for a body, without keeping a reference to the body."""
        return cls(store, path, hashlib.sha256(body).hexdigest())

    def read(self, counts: Callable[[Mapping[str, Any]], bool] = lambda _: True) -> dict[str, Any] | None:
        """Return the record, or None if there is no readable one.

        Parameters
        ----------
        counts : callable
            Decides whether a record is valid. Default: always.

        Raises
        ------
        Refusal
            422 if the key was used with another body before.
        """
        try:
            found: dict[str, Any] = json.loads(bytes(memoryview(self.store.get(self.path))))
            found = found.get(_TOGETHER, {self.path: found})[self.path]
        except (ObjectNotFoundError, ValueError):  # no record, or one that a power loss has emptied
            return None
        if not counts(found):
            return None
        if found["body"] != self.digest:
            raise _another_body()
        return found

    def keep(self, *, done: bool, **answer: Any) -> None:
        """Store a response, before its write is durable (``done`` is False) or after."""
        self.store.put(self.path, _content(self._note(done, answer)))

    def keep_first(self, *, done: bool, **answer: Any) -> None:
        """Store a response as :meth:`keep` does, if there is no record.

        Raises
        ------
        ObjectExistsError
            If there is one.
        """
        self.store.put_if_absent(self.path, _content(self._note(done, answer)))

    def forget(self) -> None:
        """Remove the record."""
        self.store.delete([self.path])

    def mark(self, digest: str) -> Source:
        """Return the mark of a key's write; its number encodes the body and the time.

        Parameters
        ----------
        digest : str
            The digest of the key.
        """
        return Source.once(digest[:32], int(time.time() // 3600) << _BODY_BITS | self._body_number)

    def has_mark(self, number: int) -> bool:
        """Whether a mark of the key with this number belongs to the same body.

        Raises
        ------
        Refusal
            422 if it belongs to another one, unless it is so old that the key may be reused.
        """
        hour, body = divmod(number, 1 << _BODY_BITS)
        if body == self._body_number:
            return True
        if time.time() // 3600 - hour <= _HOURS:
            raise _another_body()
        return False

    def write_name(self, digest: str) -> str:
        """Return a name for the write of a key with its body; other bodies of the key give other names.

        Parameters
        ----------
        digest : str
            The digest of the key.
        """
        return hashlib.sha256(f"{digest} {self.digest}".encode()).hexdigest()[:32]

    def _note(self, done: bool, answer: Mapping[str, Any]) -> dict[str, Any]:
        return {"body": self.digest, "done": done, **answer}

    @property
    def _body_number(self) -> int:
        return int(self.digest, 16) % (1 << _BODY_BITS)


def with_records(store: ObjectStore, answers: Sequence[KeptAnswer]) -> Sequence[KeptAnswer]:
    """Return those of some that may have a record: nearly all keys are new, and are asked for once.

    Parameters
    ----------
    store : ObjectStore
        The root of the service.
    answers : sequence of KeptAnswer
        Records below it.
    """
    if not isinstance(store, LocalStore):
        return answers  # to look for one takes as long as to read it
    present = store.present(one.path for one in answers)
    return [one for one in answers if one.path in present]


def keep_together(answers: Sequence[tuple[KeptAnswer, Mapping[str, Any]]]) -> None:
    """Store the responses to completed writes as one file with many names: creating a file takes longer.

    Parameters
    ----------
    answers : sequence of KeptAnswer and mapping
        The records, of one local store, that do not exist yet. Each comes with the arguments of
        :meth:`KeptAnswer.keep`.

    Raises
    ------
    WeirError
        If one cannot be stored. Those before it are.
    """
    (first, _), *others = answers
    notes = {kept.path: kept._note(True, answer) for kept, answer in answers}
    store = first.store
    store.put(first.path, _content({_TOGETHER: notes}))
    left: Collection[str] = [kept.path for kept, _ in others]
    if isinstance(store, LocalStore):
        left = store.copy_to_each(first.path, left)
    for kept, answer in others:
        if kept.path in left:  # the record exists after all, or the file system has no hard links
            kept.keep(done=True, **answer)


def _content(note: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(note, enc_hook=str)


def _another_body() -> Refusal:
    return Refusal(422, "idempotency_conflict", "another body came with this Idempotency-Key before")
