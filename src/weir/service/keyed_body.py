"""What came with an ``Idempotency-Key``: the names that follow from key and body, and what binds them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from weir import Source
from weir.service.refusals import Refusal

__all__ = ["KeyedBody"]

_MOST_CHARACTERS = 256
_BODY_BITS = 43
_HOURS = 25
"""Longest validity of a mark: responses are kept for a day."""


@dataclass(frozen=True, slots=True)
class KeyedBody:
    """The key and the body of a request, as digests.

    Parameters
    ----------
    key : str
        The name under which the response to the key is kept: 64 hex digits.
    digest : str
        The digest of the body.
    """

    key: str
    digest: str

    @classmethod
    def of(cls, caller: str, key: str, body: bytes) -> KeyedBody:
        """Return the digests of a request.

        Parameters
        ----------
        caller : str
            Id of the caller's API key: callers never see each other's responses.
        key : str
            The header.
        body : bytes
            The body.

        Raises
        ------
        Refusal
            400 if the key is not valid.
        """
        if not 1 <= len(key) <= _MOST_CHARACTERS or not key.isprintable():
            raise Refusal(400, "invalid_request", "an Idempotency-Key has 1 to 256 characters")
        named = hashlib.sha256(f"{caller} {key}".encode()).hexdigest()
        return cls(named, hashlib.sha256(body).hexdigest())

    @property
    def mark(self) -> Source:
        """The mark of the key's write; its number encodes the body and the time."""
        return Source.once(self.key[:32], int(time.time() // 3600) << _BODY_BITS | self._number)

    @property
    def write_name(self) -> str:
        """The name of the write of this key with this body; other bodies of the key give other names."""
        return hashlib.sha256(f"{self.key} {self.digest}".encode()).hexdigest()[:32]

    def has_mark(self, number: int) -> bool:
        """Whether a mark of the key with this number belongs to the same body.

        Raises
        ------
        Refusal
            422 if it belongs to another one, unless it is so old that the key may be reused.
        """
        hour, body = divmod(number, 1 << _BODY_BITS)
        if body == self._number:
            return True
        if time.time() // 3600 - hour <= _HOURS:
            raise _another_body()
        return False

    def note(self, *, done: bool, **answer: Any) -> dict[str, Any]:
        """Return what is kept of the key: the response, before its write is durable or after (``done``)."""
        return {"body": self.digest, "done": done, **answer}

    def check(self, note: Mapping[str, Any]) -> None:
        """Refuse the request if what is kept of its key belongs to another body.

        Raises
        ------
        Refusal
            422.
        """
        if note["body"] != self.digest:
            raise _another_body()

    @property
    def _number(self) -> int:
        return int(self.digest, 16) % (1 << _BODY_BITS)


def _another_body() -> Refusal:
    return Refusal(422, "idempotency_conflict", "another body came with this Idempotency-Key before")
