"""Storage of keys: one object each below the root, cached in memory for a few seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from weir.errors import KeyNotFoundError, ObjectNotFoundError, OptionError, PreconditionError
from weir.service.keys.key import Key, decode, encode, new_key, split
from weir.storage.interface import ObjectStore

__all__ = ["KeyStore"]

_DIRECTORY = "security/keys"
_SECONDS_KNOWN = 2.0
_MOST_KNOWN = 10_000


class KeyStore:
    """The keys below a root. Thread-safe.

    A change or revocation of a key by any process takes effect here within two seconds.

    Parameters
    ----------
    store : ObjectStore
        The root.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._known: dict[str, tuple[float, Key | None]] = {}
        self._lock = threading.Lock()

    def create(
        self, name: str, role: str, namespaces: Sequence[str] = (), expires: timedelta | None = None
    ) -> tuple[Key, str]:
        """Create a key; return it and its text.

        Raises
        ------
        OptionError
            If it is not valid.
        """
        key, text = new_key(name, role, namespaces, expires)
        self._store.put_if_absent(_path(key.id), encode(key))
        return key, text

    def rotate(self, id: str, expires: timedelta | None = None) -> tuple[Key, str]:
        """Replace the secret of a key; the old one is no longer valid.

        Parameters
        ----------
        id : str
            The id of the key.
        expires : timedelta, optional
            For how long it is valid from now on. Default: until the moment that it was valid until before.

        Raises
        ------
        KeyNotFoundError
            If there is no such key, or it is being rotated or revoked concurrently.
        OptionError
            If it has expired, and nothing says for how long the new one is valid.
        """
        self.get(id)
        path = _path(id)
        try:
            stored, version = self._store.get_with_version(path)
            with self._store.naming(path) as where:
                before = decode(bytes(memoryview(stored)), where)
            key, text = new_key(before.name, before.role, before.namespaces, expires, before.id)
            if expires is None:
                if before.is_expired(datetime.now(UTC)):
                    raise OptionError(
                        f"the key {id} has expired",
                        where="expires",
                        hint="Say for how long the new one is valid",
                    )
                key = replace(key, expires_at=before.expires_at)
            self._store.compare_and_swap(path, encode(key), version)
        except (ObjectNotFoundError, PreconditionError) as error:
            raise KeyNotFoundError(f"the key {id!r:.40} has just been changed by another process") from error
        self._forget(id)
        return key, text

    def revoke(self, id: str) -> None:
        """Revoke a key.

        Raises
        ------
        KeyNotFoundError
            If there is no such key.
        """
        self.get(id)
        self._store.delete([_path(id)])
        self._forget(id)

    def get(self, id: str) -> Key:
        """Return a key.

        Raises
        ------
        KeyNotFoundError
            If there is none.
        """
        key = self._read(id)
        if key is None:
            raise KeyNotFoundError(f"there is no key {id!r:.40}")
        return key

    def list(self) -> list[Key]:
        """Return all keys, oldest first."""
        ids = [
            meta.path.removeprefix(f"{_DIRECTORY}/").removesuffix(".json")
            for meta in self._store.list(_DIRECTORY)
        ]
        keys = [key for id in ids if (key := self._read(id)) is not None]
        return sorted(keys, key=lambda key: (key.created_at, key.id))

    def is_empty(self) -> bool:
        """Whether there are no keys."""
        return not self._store.list(_DIRECTORY)

    def authenticate(self, text: str) -> Key | None:
        """Return the key of a text; None if it is not a valid key."""
        parts = split(text)
        if parts is None:
            return None
        id, secret = parts
        key = self._recent(id)
        if key is None or not key.proves(secret) or key.is_expired(datetime.now(UTC)):
            return None
        return key

    def knows(self, text: str) -> bool:
        """Whether :meth:`authenticate` can answer from its cache."""
        parts = split(text)
        if parts is None:
            return True
        known = self._known.get(parts[0])
        return known is not None and time.monotonic() - known[0] < _SECONDS_KNOWN

    def is_good(self, key: Key) -> bool:
        """Whether a key is unchanged and has not expired."""
        return self._recent(key.id) == key and not key.is_expired(datetime.now(UTC))

    def _recent(self, id: str) -> Key | None:
        now = time.monotonic()
        known = self._known.get(id)
        if known is not None and now - known[0] < _SECONDS_KNOWN:
            return known[1]
        key = self._read(id)
        with self._lock:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[id] = (now, key)
        return key

    def _forget(self, id: str) -> None:
        with self._lock:
            self._known.pop(id, None)

    def _read(self, id: str) -> Key | None:
        if len(id) != 16 or not all(digit in "0123456789abcdef" for digit in id):
            return None
        path = _path(id)
        try:
            stored = self._store.get(path)
        except ObjectNotFoundError:
            return None
        with self._store.naming(path) as where:
            return decode(bytes(memoryview(stored)), where)


def _path(id: str) -> str:
    return f"{_DIRECTORY}/{id}.json"
