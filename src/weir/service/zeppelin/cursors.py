"""Cursors: signed positions for continuing a query, bound to the query and the caller's key."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from weir.errors import ObjectExistsError, ObjectNotFoundError
from weir.service.refusals import Refusal
from weir.storage.interface import ObjectStore

__all__ = ["Cursor", "Cursors"]

_PATH = "security/cursor-secret"


@dataclass(frozen=True, slots=True)
class Cursor:
    """The position at which a query continues.

    Parameters
    ----------
    token : str
        The state it reads.
    offset : int
        How many candidates were already returned.
    """

    token: str
    offset: int


class Cursors:
    """Signs cursors with a secret shared by the processes on a root.

    Parameters
    ----------
    store : ObjectStore
        The root.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._secret = b""

    def issue(self, cursor: Cursor, namespace: str, key_id: str, body: Mapping[str, Any]) -> str:
        """Return the text of a cursor."""
        content = json.dumps([cursor.token, cursor.offset, _bound_to(namespace, key_id, body)]).encode()
        return base64.urlsafe_b64encode(self._signature(content) + content).decode()

    def read(self, text: object, namespace: str, key_id: str, body: Mapping[str, Any]) -> Cursor:
        """Return the cursor of a text.

        Raises
        ------
        Refusal
            400 if it was not issued for this query, to this key, or by this service.
        """
        stale = Refusal(
            400,
            "cursor_policy_stale",
            "cursor was issued under a different security policy; re-query required",
        )
        if not isinstance(text, str):
            raise stale
        try:
            raw = base64.urlsafe_b64decode(text.encode())
        except (binascii.Error, ValueError) as error:
            raise stale from error
        signature, content = raw[:32], raw[32:]
        if not hmac.compare_digest(signature, self._signature(content)):
            raise stale
        token, offset, bound_to = json.loads(content)
        if bound_to != _bound_to(namespace, key_id, body):
            raise stale
        return Cursor(token, offset)

    def _signature(self, content: bytes) -> bytes:
        if not self._secret:
            with suppress(ObjectExistsError):
                try:
                    self._secret = bytes(memoryview(self._store.get(_PATH)))
                except ObjectNotFoundError:
                    self._store.put_if_absent(_PATH, secrets.token_bytes(32))
            self._secret = bytes(memoryview(self._store.get(_PATH)))
        return hmac.new(self._secret, content, hashlib.sha256).digest()


def _bound_to(namespace: str, key_id: str, body: Mapping[str, Any]) -> str:
    asked = {name: value for name, value in body.items() if name != "cursor"}
    text = json.dumps([namespace, key_id, asked], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
