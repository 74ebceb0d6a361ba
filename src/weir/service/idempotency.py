"""Writes that may be repeated: of one ``Idempotency-Key`` the answer is kept.

The answer is stored before the write is done, and the write carries a mark of the key. Whoever repeats a
request after a crash writes it again with the same mark: if that was there, the stored answer is the one.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from weir import Source
from weir.errors import ObjectNotFoundError
from weir.namespaces import Namespace, Write, Written
from weir.namespaces.names import directory_of
from weir.service.refusals import Refusal
from weir.storage.interface import ObjectStore

__all__ = ["IdempotentWrites"]

_MOST_CHARACTERS = 256


class IdempotentWrites:
    """The answers of writes below a root.

    Parameters
    ----------
    store : ObjectStore
        The root.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def write(self, namespace: Namespace, write: Write, key: str, body: bytes) -> Written:
        """Do a write, unless it was done already; return what it did.

        Raises
        ------
        Refusal
            400 if it is no key; 422 if another body came with it before.
        """
        if not 1 <= len(key) <= _MOST_CHARACTERS or not key.isprintable():
            raise Refusal(400, "invalid_request", "an Idempotency-Key has 1 to 256 characters")
        name = hashlib.sha256(key.encode()).hexdigest()
        path = f"idempotency/{directory_of(namespace.name)}/{name}.json"
        digest = hashlib.sha256(body).hexdigest()
        known = self._read(path)
        if known is not None and known["body"] != digest:
            raise Refusal(422, "idempotency_conflict", "another body came with this Idempotency-Key before")
        if known is not None and known["done"]:
            return Written(**known["answer"])

        def remember(written: Written, done: bool) -> None:
            answer = {field: getattr(written, field) for field in Written.__dataclass_fields__}
            content = {"body": digest, "done": done, "answer": answer}
            self._store.put(path, json.dumps(content, default=str).encode())

        written, is_repeated = namespace.write_once(
            write,
            Source(f"request {name}", 1),
            (lambda decided: remember(decided, False)) if known is None else (lambda _: None),
        )
        if is_repeated and known is not None:
            written = Written(**known["answer"])
        remember(written, True)
        return written

    def _read(self, path: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads(bytes(memoryview(self._store.get(path))))
        except ObjectNotFoundError:
            return None
        return found
